//! A JSON Schema put to a value: as much of it as relay's own schemas use. A keyword that is not
//! known here fails the test that meets it, so that nothing passes unread.

use serde_json::{Map, Value};

/// What is wrong with `value`, each with its place; nothing where it is valid.
pub fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(schema, value, "$", &mut errors);
    errors
}

fn check(schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
    let keywords = schema.as_object().unwrap_or_else(|| panic!("{at}: no schema: {schema}"));
    for (keyword, rule) in keywords {
        if !holds(keyword, rule, keywords, value, at, errors) {
            errors.push(format!("{at}: {keyword} {rule}"));
        }
    }
}

/// Whether one keyword is content; what is wrong further inside is told by itself.
fn holds(
    keyword: &str,
    rule: &Value,
    beside: &Map<String, Value>,
    value: &Value,
    at: &str,
    errors: &mut Vec<String>,
) -> bool {
    let text = value.as_str();
    let limit = || rule.as_u64().unwrap() as usize;
    match keyword {
        "$schema" | "title" | "description" | "default" => true,
        "type" => is_a(rule.as_str().unwrap(), value),
        "const" => rule == value,
        "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
        "maxLength" => text.is_none_or(|t| t.chars().count() <= limit()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() <= limit()),
        "pattern" => {
            let pattern = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
            text.is_none_or(|text| pattern.is_match(text))
        }
        "not" => !self::errors(rule, value).is_empty(),
        "anyOf" => rule.as_array().unwrap().iter().any(|one| self::errors(one, value).is_empty()),
        "required" => value.as_object().is_none_or(|fields| {
            rule.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "items" => {
            for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                check(rule, item, &format!("{at}[{n}]"), errors);
            }
            true
        }
        "properties" => {
            for (name, schema) in rule.as_object().unwrap() {
                if let Some(field) = value.get(name) {
                    check(schema, field, &format!("{at}.{name}"), errors);
                }
            }
            true
        }
        "additionalProperties" => {
            assert_eq!(rule, false, "{at}");
            let known = beside["properties"].as_object().unwrap();
            value
                .as_object()
                .is_none_or(|fields| fields.keys().all(|name| known.contains_key(name)))
        }
        other => panic!("{at}: the keyword {other} is not known here"),
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("the type {other} is not known here"),
    }
}

#[test]
fn what_does_not_fit_is_found() {
    let schema = serde_json::json!({
        "type": "object", "additionalProperties": false, "required": ["a"],
        "properties": { "a": { "type": "string", "maxLength": 1, "not": { "pattern": "^x" } } },
    });
    let found = |text: &str| errors(&schema, &serde_json::from_str(text).unwrap());
    assert_eq!(found(r#"{"a":"é"}"#), [""; 0]);
    for bad in ["[]", "{}", r#"{"a":1}"#, r#"{"a":"ab"}"#, r#"{"a":"x"}"#, r#"{"a":"b","c":1}"#] {
        assert_ne!(found(bad), [""; 0], "{bad}");
    }
}
