//! The API as one OpenAPI 3.1 document, made from the list of routes and from the types their
//! handlers take and give.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::route::{Gives, Operation, Route, Subject};
use crate::api::{Code, Problem, REQUEST_ID_HEADER, REVISION, REVISION_HEADER, VERSION_HEADER};
use crate::model::{TokenId, TokenScope, WorkerId};

/// Codes that any route may answer with: the gate in front of it, and the site behind it. Besides
/// the path and the headers, what is too large is a body.
/// A token that is shown and not known is refused wherever it is shown.
const OF_ALL: [Code; 7] = [
    Code::BadRequest,
    Code::Unauthorized,
    Code::TooMany,
    Code::Internal,
    Code::Busy,
    Code::DatabaseAway,
    Code::VersionMismatch,
];

/// The document for `routes`.
pub(super) fn document(routes: &[Route], version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>().to_value();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let operation = operation(route, &mut generator, &problem);
        let method = route.method.as_str().to_ascii_lowercase();
        paths.entry(route.path.clone()).or_default().insert(method, operation);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "relay",
            "version": version,
            "summary": "One queue for many machines",
            "description": about(),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "this site" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of this site. Scopes are named beside each route.",
                },
            },
        },
    })
}

fn about() -> String {
    format!(
        "Every request shows a bearer token; which scopes a route needs stands beside it. Requests \
         are refused where they hold a field that is not known; answers may grow. A client that \
         sends `{VERSION_HEADER}` and `{REVISION_HEADER}` is told where the two are more than one \
         revision apart (this is revision {REVISION}). Each answer carries `{REQUEST_ID_HEADER}`, \
         under which a failure stands in the site's log. Errors are problems (RFC 9457) with a \
         `code` for programs and a `hint` for people."
    )
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), name(route).into());
    operation.insert("summary".to_owned(), route.says.into());
    operation.insert("tags".to_owned(), json!([tag(&route.path)]));
    operation.insert("description".to_owned(), who(route.scopes).into());
    operation.insert("security".to_owned(), security(route.scopes));
    let parameters = parameters(&route.takes, generator);
    if !parameters.is_empty() {
        operation.insert("parameters".to_owned(), parameters.into());
    }
    if let Some(body) = route.takes.body {
        let schema = body(generator).to_value();
        operation.insert(
            "requestBody".to_owned(),
            json!({ "required": true, "content": { "application/json": { "schema": schema } } }),
        );
    }
    operation.insert("responses".to_owned(), responses(route, generator, problem));
    operation.into()
}

/// `post_api_v1_tasks_owner_task_cancel` without the prefix: `post_tasks_owner_task_cancel`.
fn name(route: &Route) -> String {
    let path = route.path.strip_prefix(crate::api::PREFIX).unwrap_or(&route.path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let method = route.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
}

/// The first word of a route's path.
pub(super) fn tag(path: &str) -> &str {
    let rest = path.strip_prefix(crate::api::PREFIX);
    rest.map_or("operator", |rest| rest.trim_start_matches('/').split('/').next().unwrap_or(rest))
}

fn who(scopes: &[TokenScope]) -> String {
    if scopes.is_empty() {
        return "Needs no token.".to_owned();
    }
    let words: Vec<String> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
    format!("Needs a token with the scope {} (or `admin`).", words.join(" or "))
}

/// Any one of the scopes will do, so each is an alternative.
fn security(scopes: &[TokenScope]) -> Value {
    scopes.iter().map(|scope| json!({ "token": [scope.as_str()] })).collect()
}

fn parameters(takes: &Operation, generator: &mut SchemaGenerator) -> Vec<Value> {
    let in_path = |name: &str, schema: Value, says: &str| json!({ "name": name, "in": "path", "required": true, "schema": schema, "description": says });
    // A name that the whole id is made of: the pattern of the one part.
    let part = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let owner = in_path(
        "owner",
        part("^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}$"),
        "the repository's owner, or `local`",
    );
    let mut all = match takes.of {
        None => Vec::new(),
        Some(Subject::Task) => {
            let task = part(
                "^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}#[1-9][0-9]{0,17}(:(process:)?[a-z0-9][a-z0-9_-]{0,39})?$",
            );
            vec![owner, in_path("task", task, "`repo#12` or `repo#12:lane`, with the `#` as `%23`")]
        }
        Some(Subject::Project) => {
            let name = part("^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}$");
            vec![owner, in_path("repo", name, "the repository's name")]
        }
        Some(Subject::Worker) => {
            let id = generator.subschema_for::<WorkerId>().to_value();
            vec![in_path("id", id, "the worker's id")]
        }
        Some(Subject::Token) => {
            let id = generator.subschema_for::<TokenId>().to_value();
            vec![in_path("id", id, "the token's id")]
        }
    };
    let Some(query) = takes.query else { return all };
    // Parameters are told one by one, so the struct's own schema is not referred to.
    let mut apart = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let schema = query(&mut apart).to_value();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, mut schema) in schema["properties"].as_object().cloned().unwrap_or_default() {
        let says = schema.get("description").cloned().unwrap_or_else(|| "".into());
        never_null(&mut schema);
        all.push(json!({
            "name": name,
            "in": "query",
            "required": required.contains(&Value::from(name.as_str())),
            "description": says,
            "schema": schema,
        }));
    }
    all
}

/// A query has no way to say null: what may be left out is left out.
fn never_null(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("description");
    fields.remove("default");
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = fields.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
        any.retain(|one| one["type"] != "null");
        if let [only] = any.as_slice() {
            let only = only.clone();
            *schema = only;
        }
    }
}

fn responses(route: &Route, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut all = Map::new();
    let (status, answer) = match route.takes.gives {
        Gives::Nothing => ("204", json!({ "description": "Done." })),
        Gives::Json(schema) => {
            let schema = schema(generator).to_value();
            let content = json!({ "application/json": { "schema": schema } });
            ("200", json!({ "description": "Done.", "content": content }))
        }
        Gives::Text(kind) => {
            let content = json!({ kind: { "schema": { "type": "string" } } });
            ("200", json!({ "description": "Done.", "content": content }))
        }
    };
    all.insert(status.to_owned(), answer);
    for (status, codes) in codes(route) {
        let words: Vec<String> =
            codes.iter().map(|code| format!("`{}`: {}.", code.as_str(), code.title())).collect();
        let known: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
        let schema = json!({ "allOf": [problem, { "properties": { "code": { "enum": known } } }] });
        all.insert(
            status.to_string(),
            json!({
                "description": words.join(" "),
                "content": { "application/problem+json": { "schema": schema } },
            }),
        );
    }
    all.into()
}

/// Every status a route may answer with when it refuses, and the codes that come with it.
pub(super) fn codes(route: &Route) -> BTreeMap<u16, Vec<Code>> {
    let mut all: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    let mut add = |status: u16, code: Code| {
        let codes = all.entry(status).or_default();
        if !codes.contains(&code) {
            codes.push(code);
        }
    };
    for code in OF_ALL {
        add(code.status(), code);
    }
    // The path, and the headers.
    add(414, Code::TooLarge);
    add(431, Code::TooLarge);
    if !route.scopes.is_empty() {
        add(Code::Forbidden.status(), Code::Forbidden);
        // What is kept is behind a token, and what is kept has a disk.
        add(Code::Disk.status(), Code::Disk);
    }
    if route.takes.of.is_some() || route.takes.body.is_some() || route.takes.query.is_some() {
        add(Code::NotFound.status(), Code::NotFound);
    }
    if route.takes.body.is_some() {
        for code in [Code::Timeout, Code::TooLarge, Code::UnsupportedType] {
            add(code.status(), code);
        }
    }
    for code in route.refuses {
        add(code.status(), *code);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::router::routes;
    use super::*;

    fn whole() -> Value {
        document(&routes(), "0.0.0")
    }

    #[test]
    fn every_route_is_told_with_its_scopes_and_its_answers() {
        let document = whole();
        for route in routes() {
            let method = route.method.as_str().to_ascii_lowercase();
            let told = &document["paths"][route.path.as_str()][method.as_str()];
            assert!(!route.says.is_empty() && told["summary"] == route.says, "{}", route.path);
            assert_eq!(told["security"], security(route.scopes), "{}", route.path);
            let answers = told["responses"].as_object().expect("answers");
            assert!(answers.keys().any(|status| status.starts_with('2')), "{}", route.path);
            for code in route.refuses {
                let status = code.status().to_string();
                let text = answers[&status]["description"].as_str().expect("words");
                assert!(text.contains(code.as_str()), "{} {status}", route.path);
            }
        }
    }

    #[test]
    fn every_name_in_a_path_is_a_parameter() {
        let document = whole();
        for route in routes() {
            let method = route.method.as_str().to_ascii_lowercase();
            let told = &document["paths"][route.path.as_str()][method.as_str()]["parameters"];
            let told = told.as_array().cloned().unwrap_or_default();
            let names =
                |segment: &str| Some(segment.strip_prefix('{')?.strip_suffix('}')?.to_owned());
            for name in route.path.split('/').filter_map(names) {
                let named = told.iter().any(|p| p["in"] == "path" && p["name"] == name.as_str());
                assert!(named, "{} does not tell {name}", route.path);
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn refs(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(|r| r.as_str()).map(str::to_owned));
                    fields.values().for_each(|value| refs(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| refs(value, found)),
                _ => {}
            }
        }
        let (document, mut found) = (whole(), Vec::new());
        refs(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("a place in this document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }

    /// Seed 002, "The protocol": each step's route.
    #[test]
    fn the_protocol_is_there_route_by_route() {
        let document = whole();
        for (method, path, fields) in [
            ("post", "/workers", &["name", "host", "lanes", "labels", "version"][..]),
            ("post", "/workers/{id}/heartbeat", &["interval_ms"]),
            ("get", "/work/doorbell", &[]),
            ("post", "/work/claim", &["worker_id", "lanes", "labels"]),
            ("post", "/work/{owner}/{task}/start", &["worker_id", "branch"]),
            (
                "post",
                "/work/{owner}/{task}/release",
                &["worker_id", "pr", "pr_url", "summary", "error", "usage"],
            ),
            ("get", "/workers", &[]),
        ] {
            let told = &document["paths"][format!("/api/v1{path}").as_str()][method];
            assert!(told.is_object(), "{method} {path} is missing");
            let body = &told["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let body = body.as_str().map(|r| r.trim_start_matches('#'));
            for field in fields {
                let schema = document.pointer(body.expect("a body")).expect("a schema");
                assert!(schema["properties"][field].is_object(), "{path} does not take {field}");
            }
        }
        let asked = &document["paths"]["/api/v1/work/doorbell"]["get"]["parameters"];
        assert!(asked.as_array().expect("a query").iter().any(|p| p["name"] == "lanes"));
        for field in ["version", "queued", "ts"] {
            assert!(document["components"]["schemas"]["Doorbell"]["properties"][field].is_object());
        }
    }
}
