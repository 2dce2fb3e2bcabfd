//! The contract of process lanes as JSON Schema, made from the types that read and write it.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::answer::Wire;
use super::config::Config;
use super::request::Envelope;
use super::task::TaskDetails;

/// The parts of the contract, in the order in which they are shown.
pub const SCHEMAS: [&str; 3] = ["config", "request", "response"];

/// The schema of one part. `never_given` is a regular expression for the names of variables that
/// no lane is given. `None` for a part there is not.
#[must_use]
pub fn schema(part: &str, never_given: &str) -> Option<Value> {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator();
    let (title, about, mut body) = match part {
        "config" => ("A process lane's configuration", CONFIG, config(&mut generator, never_given)),
        "request" => ("A process lane's request", REQUEST, request(&mut generator)),
        "response" => ("A process lane's answer", RESPONSE, value::<Wire>(&mut generator)),
        _ => return None,
    };
    body["title"] = title.into();
    body["description"] = about.into();
    Some(body)
}

/// All of them in one document.
#[must_use]
pub fn schemas(never_given: &str) -> Value {
    let parts: serde_json::Map<String, Value> = SCHEMAS
        .iter()
        .filter_map(|part| Some(((*part).to_owned(), schema(part, never_given)?)))
        .collect();
    json!({
        "$schema": DIALECT,
        "title": "relay's process lanes",
        "description": "One JSON line in, one JSON line out. `relay lane schema PART` prints one \
                        part as a schema of its own.",
        "$defs": parts,
    })
}

/// The dialect of the schemas.
pub const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

const CONFIG: &str = "RELAY_HOME/lanes/NAME.json makes the lane process:NAME. The file has at \
                      most 65,536 bytes, and no field twice.";
const REQUEST: &str = "One line on standard input, then its end; at most 131,072 bytes with its \
                       line end.";
const RESPONSE: &str = "One line on standard output, at most 131,072 bytes with its line end, and \
                        exit code 0. jobKey is the request's.";

fn config(generator: &mut SchemaGenerator, never_given: &str) -> Value {
    let mut config = value::<Config>(generator);
    config["properties"]["env"]["items"]["not"] = json!({ "pattern": never_given });
    config
}

fn request(generator: &mut SchemaGenerator) -> Value {
    let mut request = value::<Envelope<'static>>(generator);
    request["properties"]["task"] = value::<TaskDetails<'static>>(generator);
    if let Some(required) = request["required"].as_array_mut() {
        required.push("task".into());
    }
    request["additionalProperties"] = false.into();
    request
}

fn value<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let mut schema = T::json_schema(generator).to_value();
    clean(&mut schema);
    schema
}

/// Takes out what is Rust's alone: the names of its numbers, line ends of its comments, and a
/// default of `null` where null is refused.
fn clean(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("format");
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            fields.values_mut().for_each(clean);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}
