//! The OpenAPI document (3.1), made from the table of operations.

use super::operations::{OPERATIONS, Operation};
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
        parameters
            .push(json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    for (name, meaning) in operation.query {
        let is_needed = *name == "url";
        parameters.push(json!({
            "name": name, "in": "query", "required": is_needed, "description": meaning, "schema": { "type": "string" }
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

fn content(name: &str) -> Value {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn schemas() -> Value {
    let (text, number, truth) =
        (json!({ "type": "string" }), json!({ "type": "integer" }), json!({ "type": "boolean" }));
    let list = |of: &Value| json!({ "type": "array", "items": of });
    let named = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let or_null = |kind: &str| json!({ "type": [kind, "null"] });
    let file = object(&["path", "text"], json!({ "path": text, "text": text }));
    let kept = object(&["path", "text", "is_main"], json!({ "path": text, "text": text, "is_main": truth }));
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
        "Texts": object(&["files"], json!({ "files": list(&file) })),
        "Write": object(&["files"], json!({ "files": list(&file), "confirm_within": or_null("integer") })),
        "Restore": object(&[], json!({ "confirm_within": or_null("integer") })),
        "Confirm": object(&["revision"], json!({ "revision": number })),
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
            object(&["way"], json!({ "way": { "enum": ["serve", "drain", "pause"] } })),
            object(&["weight"], json!({ "weight": or_null("integer") })),
        ] },
        "LogLevel": object(&["level"], json!({ "level": { "enum": ["error", "warn", "info", "debug"] } })),
        "Cancel": { "oneOf": [
            object(&["id"], json!({ "id": text })),
            object(&["selection"], json!({ "selection": text, "dry_run": truth })),
        ] },
        "Purge": object(&["what"], json!({
            "what": { "oneOf": [
                { "const": "all" },
                object(&["url"], json!({ "url": text })),
                object(&["prefix"], json!({ "prefix": text })),
                object(&["host"], json!({ "host": text })),
                object(&["tag"], json!({ "tag": object(&["name"], json!({ "name": text, "host": text })) })),
                object(&["group"], json!({ "group": object(&["name"], json!({ "name": text, "host": text })) })),
            ] },
            "is_soft": truth,
            "store": text,
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
