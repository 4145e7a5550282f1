//! The OpenAPI document (3.1), made from the table of operations.

use super::operations::{OPERATIONS, Operation};
use crate::master::admin::CONFIRM_MAX;
use crate::version::VERSION;
use axum::Json;
use serde_json::{Map, Value, json};

/// `GET openapi.json`
pub async fn document() -> Json<Value> {
    Json(openapi())
}

/// The document.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = operation.path.replace("{*", "{");
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[operation.method] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate admin API",
            "version": VERSION,
            "description": "Reads and changes a server. Below a route with `console { change }` the paths begin behind the path of that route; a change \
                            there shows the token of `session` in `X-Tidegate-CSRF`."
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }
        }
    })
}

fn described(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for name in operation.path.split(['{', '}']).skip(1).step_by(2) {
        let name = name.trim_start_matches('*');
        parameters.push(
            json!({ "name": name, "in": "path", "required": true, "schema": schema_of_parameter(name) }),
        );
    }
    for (name, meaning) in operation.query {
        let is_needed = *name == "url";
        parameters.push(json!({
            "name": name, "in": "query", "required": is_needed, "description": meaning, "schema": schema_of_parameter(name)
        }));
    }
    if operation.is_conditional {
        parameters.push(json!({
            "name": "If-Match", "in": "header", "required": true, "description": "The tag of `settings`", "schema": { "type": "string" }
        }));
    }
    let mut answer = json!({ "description": operation.summary });
    match operation.answer {
        Some("text/event-stream") => {
            answer["content"] = json!({ "text/event-stream": { "schema": { "type": "string" } } });
        }
        Some(name) => answer["content"] = content(name),
        None => {}
    }
    let problem = json!({
        "description": "What is wrong",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } }
    });
    let mut described = json!({
        "summary": operation.summary,
        "operationId": format!("{} {}", operation.method, operation.path),
        "parameters": parameters,
        "responses": { operation.status.to_string(): answer, "default": problem },
    });
    if let Some(name) = operation.content {
        described["requestBody"] = json!({ "required": name != "Restore", "content": content(name) });
    }
    described
}

/// What a part of a path or of a query may be.
fn schema_of_parameter(name: &str) -> Value {
    match name {
        "address" => json!({ "anyOf": [
            { "type": "string", "format": "ipv4" }, { "type": "string", "format": "ipv6" }
        ] }),
        "range" => json!({ "enum": ["10m", "6h", "14d", "days"] }),
        "revision" => json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }),
        "url" => json!({ "type": "string", "minLength": 1 }),
        _ => json!({ "type": "string" }),
    }
}

fn content(name: &str) -> Value {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

/// The same that nothing else may stand in: what is not known is refused, and not passed over.
fn closed(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

fn schemas() -> Value {
    let (text, number, truth) =
        (json!({ "type": "string" }), json!({ "type": "integer" }), json!({ "type": "boolean" }));
    let list = |of: &Value| json!({ "type": "array", "items": of });
    let named = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let seconds = json!({ "type": ["integer", "null"], "minimum": 0, "maximum": CONFIRM_MAX });
    let or_null = |kind: &str| json!({ "type": [kind, "null"] });
    let file = closed(&["path", "text"], json!({ "path": text, "text": text }));
    let kept = object(&["path", "text", "is_main"], json!({ "path": text, "text": text, "is_main": truth }));
    let of_host = object(&["name"], json!({ "name": text, "host": or_null("string") }));
    json!({
        "Problem": object(&["title", "status", "detail"], json!({
            "title": text, "status": number, "detail": text, "diagnostics": list(&named("Diagnostic"))
        })),
        "Diagnostic": object(&["severity", "message"], json!({
            "severity": { "enum": ["error", "warning"] }, "message": text, "help": or_null("string"), "file": or_null("string"),
            "line": or_null("integer"), "column": or_null("integer"), "end_line": or_null("integer"), "end_column": or_null("integer")
        })),
        "Session": object(&["user", "may", "csrf"], json!({ "user": text, "may": list(&text), "csrf": text })),
        "Settings": object(&["etag", "revision", "files"], json!({ "etag": text, "revision": number, "files": list(&kept) })),
        "Texts": closed(&["files"], json!({ "files": list(&file) })),
        "Write": closed(&["files"], json!({ "files": list(&file), "confirm_within": seconds })),
        "Restore": closed(&[], json!({ "confirm_within": seconds })),
        "Confirm": closed(&["revision"], json!({ "revision": schema_of_parameter("revision") })),
        "Written": object(&["revision", "etag", "notes", "confirm_by"], json!({
            "revision": number, "etag": text, "notes": list(&text), "confirm_by": or_null("string")
        })),
        "Checked": object(&["diagnostics", "diff", "changes"], json!({
            "diagnostics": list(&named("Diagnostic")),
            "diff": text,
            "changes": object(&["sites", "server", "needs_new_processes"], json!({
                "sites": list(&object(&["name", "what"], json!({ "name": text, "what": { "enum": ["added", "removed", "changed"] } }))),
                "server": truth,
                "needs_new_processes": truth
            }))
        })),
        "Revisions": list(&object(&["revision", "at", "who", "what", "is_in_force"], json!({
            "revision": number, "at": text, "who": text, "what": text, "is_in_force": truth
        }))),
        "Steer": { "oneOf": [
            closed(&["way"], json!({ "way": { "enum": ["serve", "drain", "pause"] } })),
            closed(&["weight"], json!({ "weight": { "type": ["integer", "null"], "minimum": 0, "maximum": 1000 } })),
        ] },
        "LogLevel": closed(&["level"], json!({ "level": { "enum": ["error", "warn", "info", "debug"] } })),
        "Cancel": { "oneOf": [
            closed(&["id"], json!({ "id": text, "dry_run": truth })),
            closed(&["selection"], json!({ "selection": { "type": "string", "minLength": 1 }, "dry_run": truth })),
        ] },
        "Purge": object(&["what"], json!({
            "what": { "oneOf": [
                { "const": "all" },
                closed(&["url"], json!({ "url": text })),
                closed(&["prefix"], json!({ "prefix": text })),
                closed(&["host"], json!({ "host": text })),
                closed(&["tag"], json!({ "tag": of_host })),
                closed(&["group"], json!({ "group": of_host })),
            ] },
            "is_soft": truth,
            "store": or_null("string"),
        })),
        "Sites": object(&["sites"], json!({ "sites": list(&object(
            &["name", "names", "listeners", "routes", "requests", "client_errors", "server_errors", "sent_bytes", "findings"],
            json!({
                "name": text, "names": list(&text), "listeners": list(&text),
                "routes": list(&object(&["route", "requests", "client_errors", "server_errors", "sent_bytes"], json!({
                    "route": text, "requests": number, "client_errors": number, "server_errors": number, "sent_bytes": number
                }))),
                "requests": number, "client_errors": number, "server_errors": number, "sent_bytes": number,
                "certificate_ends": or_null("string"), "left_out": or_null("string"),
                "findings": list(&object(&["name", "subject"], json!({ "name": text, "subject": text })))
            })
        )) })),
        "Text": object(&["text"], json!({ "text": text })),
        "Report": { "description": "As the report of the same name on the command line, with --json" }
    })
}
