//! The JSON schema (draft 2020-12) of the settings in their JSON form, written from the table of directives.
//!
//! The JSON form of a document is a list of directives in order, each an object: `directive` (its name),
//! `arguments` (a list), `properties` (an object), `children` (a list of the same). For editors and the
//! console; it says what the table can say, and `check` says the rest.

use serde_json::{Map, Value, json};

use crate::directive::{Argument, Children, Context, Count, Directive, Kind};
use crate::directives;

/// The schema as text.
pub fn json_schema() -> String {
    let mut definitions = Map::new();
    for context in Context::ALL {
        let names = directives::in_context(context);
        let one_of: Vec<Value> =
            names.map(|directive| json!({ "$ref": format!("#/$defs/{}", key(directive)) })).collect();
        definitions.insert(
            format!("in-{}", context.key()),
            json!({ "type": "array", "items": { "oneOf": one_of } }),
        );
    }
    for directive in directives::all() {
        definitions.insert(key(directive), definition(directive));
    }
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate settings",
        "description": "The JSON form of a settings document: its directives, in order.",
        "$ref": "#/$defs/in-top",
        "$defs": definitions,
    });
    let mut text = serde_json::to_string_pretty(&schema).expect("invariant: a JSON value has a text");
    text.push('\n');
    text
}

fn key(directive: &Directive) -> String {
    format!("{}.{}", directive.contexts[0].key(), directive.name)
}

fn definition(directive: &Directive) -> Value {
    let mut fields = Map::new();
    fields.insert("directive".to_owned(), json!({ "const": directive.name }));
    let mut required = vec!["directive"];
    if !directive.arguments.is_empty() {
        let (arguments, least) = arguments(directive.arguments);
        fields.insert("arguments".to_owned(), arguments);
        if least > 0 {
            required.push("arguments");
        }
    }
    if !directive.properties.is_empty() {
        let properties: Map<String, Value> = directive
            .properties
            .iter()
            .map(|property| {
                let mut schema = value(property.kind, &[]);
                schema["description"] = json!(property.doc);
                if let Some(default) = property.default {
                    schema["default"] = default_value(property.kind, default);
                }
                (property.name.to_owned(), schema)
            })
            .collect();
        let schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        fields.insert("properties".to_owned(), schema);
    }
    match directive.children {
        Children::None => {}
        Children::Block(context) => {
            fields.insert("children".to_owned(), json!({ "$ref": format!("#/$defs/in-{}", context.key()) }));
        }
        Children::Pairs { value: kind, .. } => {
            let pairs = json!({ "type": "object", "additionalProperties": value(kind, &[]) });
            fields.insert("children".to_owned(), pairs);
        }
    }
    json!({
        "type": "object",
        "description": directive.doc,
        "properties": fields,
        "required": required,
        "additionalProperties": false,
        "$comment": format!("in KDL: {}", directive.example),
    })
}

/// The schema of a list of arguments, and how many there must be.
fn arguments(arguments: &[Argument]) -> (Value, usize) {
    let least =
        arguments.iter().filter(|argument| matches!(argument.count, Count::One | Count::Some)).count();
    let schemas: Vec<Value> = arguments
        .iter()
        .map(|argument| {
            let mut schema = value(argument.kind, argument.words);
            schema["title"] = json!(argument.name);
            schema
        })
        .collect();
    let mut schema = json!({ "type": "array", "minItems": least });
    match arguments.last() {
        Some(last) if matches!(last.count, Count::Some | Count::Any) => {
            schema["items"] = schemas.last().cloned().unwrap_or(Value::Bool(true));
            if schemas.len() > 1 {
                schema["prefixItems"] = Value::Array(schemas);
            }
        }
        _ => {
            schema["prefixItems"] = Value::Array(schemas);
            schema["items"] = Value::Bool(false);
        }
    }
    (schema, least)
}

fn value(kind: Kind, words: &[&str]) -> Value {
    let mut schema = match kind {
        Kind::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Status { only: &[] } => json!({ "type": "integer", "minimum": 200, "maximum": 599 }),
        Kind::Status { only } => json!({ "enum": only }),
        Kind::Size { .. } => json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|TiB)$" }),
        Kind::Duration { .. } => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" }),
        Kind::Choice(choice) => json!({ "enum": choice.iter().chain(words).collect::<Vec<_>>() }),
        Kind::Text { most } => json!({ "type": "string", "maxLength": most }),
        Kind::SitePath => json!({ "type": "string", "pattern": "^/" }),
        Kind::Pattern => json!({ "type": "string", "pattern": "^[/*@]" }),
        Kind::FileName => json!({ "type": "string", "pattern": "^[^/]+$" }),
        Kind::FieldName | Kind::Token => {
            json!({ "type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" })
        }
        Kind::Try => json!({ "type": "string", "pattern": "^(/|\\{path\\}|@|=[45][0-9][0-9]$)" }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    if !words.is_empty() && !matches!(kind, Kind::Choice(_)) {
        schema = json!({ "anyOf": [schema, { "enum": words }] });
    }
    schema["description"] = json!(kind.expectation_with(words));
    schema
}

fn default_value(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Number { .. } | Kind::Status { .. } => {
            text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
        }
        _ => json!(text),
    }
}
