//! What a user asks, as bytes.

use super::super::template::{Encoding, Template};
use super::super::user::User;
use super::super::{Body, Part, Scenario, Step};
use tidegate_wire::h1::{ConnectionField, RequestFraming, append_field, begin_request, end_request};

/// Between the parts of a form with files. Made-up content does not hold it but by a chance of 2^-150.
const BOUNDARY: &str = "tidegate-bench-8d2f0c41b7e94c6fa35e";

const AGENT: &str = concat!("User-Agent: tidegate-bench/", env!("CARGO_PKG_VERSION"), "\r\n");

/// The path of a step for a user. `Err` is a sentence.
pub(super) fn path(scenario: &Scenario, step: &Step, user: &User) -> Result<String, String> {
    let mut out = Vec::new();
    write(scenario, &step.path, user, Encoding::Path, &mut out)?;
    let path = String::from_utf8_lossy(&out).into_owned();
    let resolved = super::super::page::resolve(&scenario.target, "/", &path);
    resolved.ok_or_else(|| format!("{path} is not of the target"))
}

/// Writes the request of a step for a path. `Err` is a sentence.
pub(super) fn step(
    scenario: &Scenario,
    step: &Step,
    user: &User,
    validator: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut content = Vec::new();
    let media_type = body(scenario, &step.body, user, &mut content)?;
    begin(scenario, (&step.method, &user.path), user, &step.fields, validator, out)?;
    for (name, value) in &step.fields {
        let mut text = Vec::new();
        write(scenario, value, user, Encoding::Plain, &mut text)?;
        append_field(out, name, &text).map_err(|fault| format!("the field `{name}`: {fault}"))?;
    }
    if let Some(media_type) = media_type.filter(|_| !names(&step.fields, "content-type")) {
        out.extend_from_slice(format!("Content-Type: {media_type}\r\n").as_bytes());
    }
    let has_body = !content.is_empty() || matches!(step.method.as_str(), "POST" | "PUT" | "PATCH");
    let framing = if has_body { RequestFraming::Length(content.len() as u64) } else { RequestFraming::None };
    end_request(out, framing, ConnectionField::None);
    out.extend_from_slice(&content);
    Ok(())
}

/// Writes a GET without anything special: of a resource, or where a redirect leads to.
pub(super) fn get(
    scenario: &Scenario,
    path: &str,
    user: &User,
    validator: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    begin(scenario, ("GET", path), user, &[], validator, out)?;
    end_request(out, RequestFraming::None, ConnectionField::None);
    Ok(())
}

fn begin(
    scenario: &Scenario,
    (method, path): (&str, &str),
    user: &User,
    fields: &[(String, Template)],
    validator: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    begin_request(out, method, path, &scenario.target.authority)
        .map_err(|fault| format!("{path}: {fault}"))?;
    for (name, line) in [("user-agent", AGENT), ("accept", "Accept: */*\r\n")] {
        if !names(fields, name) {
            out.extend_from_slice(line.as_bytes());
        }
    }
    user.cookies.write(out, path);
    out.extend_from_slice(validator.unwrap_or_default());
    Ok(())
}

/// Whether a step has a field itself.
fn names(fields: &[(String, Template)], wanted: &str) -> bool {
    fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
}

/// Writes the content, and says of what type it is, where the step's fields do not.
fn body(scenario: &Scenario, body: &Body, user: &User, out: &mut Vec<u8>) -> Result<Option<String>, String> {
    match body {
        Body::None => Ok(None),
        Body::Text(text) => write(scenario, text, user, Encoding::Raw, out).map(|()| None),
        Body::Form(text) => {
            write(scenario, text, user, Encoding::Form, out)?;
            Ok(Some("application/x-www-form-urlencoded".to_owned()))
        }
        Body::Parts(parts) => {
            for part in parts {
                out.extend_from_slice(format!("--{BOUNDARY}\r\nContent-Disposition: form-data; ").as_bytes());
                match part {
                    Part::Field(name, value) => {
                        out.extend_from_slice(format!("name=\"{name}\"\r\n\r\n").as_bytes());
                        write(scenario, value, user, Encoding::Raw, out)?;
                    }
                    Part::File(file) => {
                        let (name, file_name, kind) = (&file.name, &file.file_name, &file.media_type);
                        let head = format!(
                            "name=\"{name}\"; filename=\"{file_name}\"\r\nContent-Type: {kind}\r\n\r\n"
                        );
                        out.extend_from_slice(head.as_bytes());
                        out.extend_from_slice(&file.content);
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
            Ok(Some(format!("multipart/form-data; boundary={BOUNDARY}")))
        }
    }
}

fn write(
    scenario: &Scenario,
    template: &Template,
    user: &User,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    template.write(out, encoding, |variable| user.value(&scenario.data, variable)).map_err(|variable| {
        let name = scenario.variables.get(usize::from(variable)).map_or("", String::as_str);
        format!("`{{{name}}}` holds nothing yet: no answer of this user has had it")
    })
}
