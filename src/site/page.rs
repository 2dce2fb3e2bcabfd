//! The API's document, and the page to read it: whole in itself, without a script.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::openapi::{document, tag};
use super::router::routes;
use super::state::Site;
use crate::api::route::{DOCS_STYLE, OPENAPI};
use crate::api::{Code, PREFIX};

/// Nothing but the page's own style is loaded, and nobody frames it.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const STYLE: &str = include_str!("page/style.css");

/// The document and its page, made when they are first asked for.
#[derive(Debug, Default)]
pub struct Pages(OnceLock<(Bytes, Bytes)>);

impl Pages {
    /// The document as JSON, and as a page.
    fn get(&self, version: &str) -> &(Bytes, Bytes) {
        self.0.get_or_init(|| {
            let document = document(&routes(), version);
            let json = serde_json::to_vec_pretty(&document).unwrap_or_default();
            (json.into(), page(&document).into())
        })
    }
}

pub(super) async fn json(State(site): State<Arc<Site>>) -> Response {
    told(site.pages.get(&site.version).0.clone(), "application/json")
}

pub(super) async fn html(State(site): State<Arc<Site>>) -> Response {
    told(site.pages.get(&site.version).1.clone(), "text/html; charset=utf-8")
}

pub(super) async fn style() -> Response {
    told(Bytes::from_static(STYLE.as_bytes()), "text/css; charset=utf-8")
}

fn told(body: Bytes, kind: &'static str) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let frames = HeaderName::from_static("x-frame-options");
    headers.insert(frames, HeaderValue::from_static("DENY"));
    response
}

/// The page: routes by their first word, then problems, then types.
fn page(document: &Value) -> String {
    let info = &document["info"];
    let mut body = format!(
        "<header><h1>relay <small>{}</small></h1><p>{}</p><p><a href=\"{PREFIX}{OPENAPI}\">openapi.json</a></p></header>\n",
        text(&info["version"]),
        words(info["description"].as_str().unwrap_or_default())
    );
    let mut tags: Vec<&str> = Vec::new();
    for path in fields(&document["paths"]).map(|(path, _)| tag(path)) {
        if !tags.contains(&path) {
            tags.push(path);
        }
    }
    let links = tags.iter().chain(&["problems", "types"]);
    let links: String = links.map(|tag| format!("<a href=\"#{tag}\">{tag}</a>\n")).collect();
    put(&mut body, format!("<nav>{links}</nav>\n<main>"));
    for tag_of in tags {
        put(&mut body, format!("<section id=\"{tag_of}\"><h2>{tag_of}</h2>"));
        for (path, methods) in fields(&document["paths"]).filter(|(path, _)| tag(path) == tag_of) {
            for (method, operation) in fields(methods) {
                put(&mut body, operation_html(document, path, method, operation));
            }
        }
        put(&mut body, "</section>");
    }
    put(&mut body, problems());
    put(&mut body, types(document));
    put(&mut body, "</main>");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>relay API</title><link rel=\"stylesheet\" href=\"{PREFIX}{DOCS_STYLE}\"></head>\n\
         <body>{body}</body></html>\n"
    )
}

fn operation_html(document: &Value, path: &str, method: &str, operation: &Value) -> String {
    let id = text(&operation["operationId"]);
    let mut html = format!(
        "<article id=\"{id}\"><h3><b class=\"{method}\">{}</b> <code>{}</code></h3><p>{}</p><p class=\"who\">{}</p>",
        method.to_ascii_uppercase(),
        escaped(path),
        words(operation["summary"].as_str().unwrap_or_default()),
        words(operation["description"].as_str().unwrap_or_default())
    );
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !parameters.is_empty() {
        let rows = parameters.iter().map(|p| {
            let name = p["name"].as_str().unwrap_or_default();
            row(name, &kind(&p["schema"]), p["required"] == true, &p["description"])
        });
        put(&mut html, table("parameter", rows));
    }
    let sent = &operation["requestBody"]["content"]["application/json"]["schema"];
    if let Some(schema) = resolved(document, sent) {
        put(&mut html, format!("<p>Takes {}:</p>", kind(sent)));
        put(&mut html, table("field", of_struct(schema)));
    }
    put(&mut html, "<ul class=\"answers\">");
    for (status, answer) in fields(&operation["responses"]) {
        let json = &answer["content"]["application/json"]["schema"];
        let what = if json.is_null() {
            words(answer["description"].as_str().unwrap_or_default())
        } else {
            kind(json)
        };
        put(&mut html, format!("<li><b>{status}</b> {what}</li>"));
    }
    put(&mut html, "</ul></article>");
    html
}

fn problems() -> String {
    let mut html = "<section id=\"problems\"><h2>problems</h2><table><tr><th>code</th><th>status</th><th></th></tr>".to_owned();
    for code in Code::ALL {
        let word = code.as_str();
        put(
            &mut html,
            format!(
                "<tr id=\"{word}\"><td><code>{word}</code></td><td>{}</td><td>{}</td></tr>",
                code.status(),
                code.title()
            ),
        );
    }
    put(&mut html, "</table></section>");
    html
}

fn types(document: &Value) -> String {
    let mut html = "<section id=\"types\"><h2>types</h2>".to_owned();
    for (name, schema) in fields(&document["components"]["schemas"]) {
        let says = words(schema["description"].as_str().unwrap_or_default());
        put(
            &mut html,
            format!("<article id=\"type-{name}\"><h3><code>{name}</code></h3><p>{says}</p>"),
        );
        if schema["properties"].is_object() {
            put(&mut html, table("field", of_struct(schema)));
        } else if let Some(any) = schema["oneOf"].as_array() {
            for one in any {
                let says = words(one["description"].as_str().unwrap_or_default());
                if one["properties"].is_object() {
                    put(&mut html, format!("<p>{says}</p>{}", table("field", of_struct(one))));
                } else {
                    put(&mut html, format!("<p><code>{}</code> {says}</p>", kind(one)));
                }
            }
        } else {
            put(&mut html, format!("<p>{}</p>", kind(schema)));
        }
        put(&mut html, "</article>");
    }
    put(&mut html, "</section>");
    html
}

fn of_struct(schema: &Value) -> impl Iterator<Item = String> {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    fields(&schema["properties"]).map(|(name, field)| {
        let needed = required.iter().any(|r| r == name);
        row(name, &kind(field), needed, &field["description"])
    })
}

fn table(what: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: String = rows.collect();
    format!("<table><tr><th>{what}</th><th>type</th><th></th></tr>{rows}</table>")
}

fn row(name: &str, kind: &str, required: bool, says: &Value) -> String {
    let mark = if required { "" } else { " <i>optional</i>" };
    let says = words(says.as_str().unwrap_or_default());
    format!("<tr><td><code>{}</code>{mark}</td><td>{kind}</td><td>{says}</td></tr>", escaped(name))
}

/// What a schema is, in a word or a link.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escaped(reference.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#type-{name}\">{name}</a>");
    }
    if let Some(only) = schema.get("const") {
        return format!("<code>{}</code>", escaped(&only.to_string()));
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("<code>{}</code>", escaped(&word.to_string())))
            .collect();
        return words.join(" ");
    }
    for several in ["anyOf", "oneOf", "allOf"] {
        if let Some(any) = schema[several].as_array() {
            let any: Vec<String> = any.iter().map(kind).collect();
            return any.join(" or ");
        }
    }
    let of = match &schema["type"] {
        Value::Array(types) => {
            let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
            types.join(" or ")
        }
        other => other.as_str().unwrap_or("any").to_owned(),
    };
    if schema["items"].is_object() {
        format!("{of} of {}", kind(&schema["items"]))
    } else {
        escaped(&of)
    }
}

/// The schema itself, where it is only named.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#')?),
        None => schema.is_object().then_some(schema),
    }
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

/// Escaped, with what stands between backticks as code.
fn words(plain: &str) -> String {
    let mut html = String::new();
    for (i, piece) in plain.split('`').enumerate() {
        let piece = escaped(piece);
        put(&mut html, if i % 2 == 1 { format!("<code>{piece}</code>") } else { piece });
    }
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn put(html: &mut String, more: impl AsRef<str>) {
    // Writing into a String cannot fail.
    let _ = html.write_str(more.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_tells_every_route_and_loads_nothing_from_elsewhere() {
        let document = document(&routes(), "0.0.0");
        let page = page(&document);
        for route in routes() {
            assert!(page.contains(&format!("<code>{}</code>", route.path)), "{}", route.path);
        }
        for code in Code::ALL {
            assert!(page.contains(&format!("<tr id=\"{}\"", code.as_str())), "{code:?}");
        }
        for foreign in ["<script", "http://", "https://", "style=", "onload", "src="] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(words("a `b<c` & \"d\""), "a <code>b&lt;c</code> &amp; &quot;d&quot;");
    }
}
