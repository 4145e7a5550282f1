//! What a user asks, as bytes: written once, for HTTP/1.1 as it is, for HTTP/2 taken apart again.

use super::super::cookies::Asked;
use super::super::page;
use super::super::template::{Encoding, Template};
use super::super::user::User;
use super::super::{Body, Part, Scenario, Step};
use crate::clock::monotonic_ns;
use tidegate_http::FieldLines;
use tidegate_wire::h1::{ConnectionField, RequestFraming, append_field, begin_request, end_request};

/// Between the parts of a form with files. Made-up content does not hold it but by a chance of 2^-150.
const BOUNDARY: &str = "tidegate-bench-8d2f0c41b7e94c6fa35e";

const AGENT: &str = concat!("User-Agent: tidegate-bench/", env!("CARGO_PKG_VERSION"), "\r\n");

/// A request.
#[derive(Default)]
pub(super) struct Request {
    /// The lines of its head as HTTP/1.1 has them, from the request line to the last field but for its framing.
    head: Vec<u8>,
    /// What follows the head; `None` where there cannot be anything.
    content: Option<Vec<u8>>,
}

impl Request {
    /// As HTTP/1.1 sends it.
    pub fn into_http1(self) -> Vec<u8> {
        let mut out = self.head;
        let content = self.content.as_deref();
        let length = content.map(|content| RequestFraming::Length(content.len() as u64));
        end_request(&mut out, length.unwrap_or(RequestFraming::None), ConnectionField::None);
        out.extend_from_slice(content.unwrap_or_default());
        out
    }

    /// Method, target and fields of a head of HTTP/2; the authority is that of the scenario.
    pub fn parts(&self) -> (&str, &str, FieldLines) {
        // `begin_request` has written the first two lines: request line and `Host`.
        let line = self.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = std::str::from_utf8(line).unwrap_or_default().split(' ');
        let mut lines = FieldLines::with_capacity(self.head.len());
        for field in self.head.split(|byte| *byte == b'\n').skip(2) {
            let at = field.iter().position(|byte| *byte == b':');
            let Some((name, value)) = at.and_then(|at| field.split_at_checked(at)) else { continue };
            let value = value.trim_ascii_end().get(1..).unwrap_or_default();
            lines.push(std::str::from_utf8(name).unwrap_or_default(), value);
        }
        (words.next().unwrap_or_default(), words.next().unwrap_or_default(), lines)
    }

    /// What follows the head, where anything can. It is not there any more then.
    pub fn take_content(&mut self) -> Option<Vec<u8>> {
        self.content.take()
    }
}

/// The path of a step for a user. `Err` is a sentence.
pub(super) fn path(scenario: &Scenario, step: &Step, user: &User) -> Result<String, String> {
    let mut out = Vec::new();
    write(scenario, &step.path, user, Encoding::Target, &mut out)?;
    let beginning = step.path.beginning();
    if beginning.starts_with('/') && !beginning.starts_with("//") {
        // A path already; a variable that brings a second `/` makes no host of what follows.
        return String::from_utf8(out)
            .map_err(|fault| format!("{}: {fault}", fault.as_bytes().escape_ascii()));
    }
    let resolved = page::resolve(&scenario.target, "/", &out);
    resolved
        .ok_or_else(|| format!("{} is not of the target {}", String::from_utf8_lossy(&out), scenario.target))
}

/// Writes the request of a step for a path. `Err` is a sentence.
pub(super) fn step(
    scenario: &Scenario,
    step: &Step,
    user: &User,
    validator: Option<&[u8]>,
) -> Result<Request, String> {
    let mut content = Vec::new();
    let media_type = body(scenario, &step.body, user, &mut content)?;
    let mut out = begin(scenario, (&step.method, &user.path), user, &step.fields, validator)?;
    for (name, value) in &step.fields {
        let mut text = Vec::new();
        write(scenario, value, user, Encoding::Field, &mut text)?;
        append_field(&mut out, name, &text).map_err(|fault| format!("the field `{name}`: {fault}"))?;
    }
    if let Some(media_type) = media_type.filter(|_| !names(&step.fields, "content-type")) {
        out.extend_from_slice(format!("Content-Type: {media_type}\r\n").as_bytes());
    }
    let has_content = !content.is_empty() || matches!(step.method.as_str(), "POST" | "PUT" | "PATCH");
    Ok(Request { head: out, content: has_content.then_some(content) })
}

/// Writes a GET without anything special: of a resource, or where a redirect leads to.
pub(super) fn get(
    scenario: &Scenario,
    path: &str,
    user: &User,
    validator: Option<&[u8]>,
) -> Result<Request, String> {
    Ok(Request { head: begin(scenario, ("GET", path), user, &[], validator)?, content: None })
}

fn begin(
    scenario: &Scenario,
    (method, path): (&str, &str),
    user: &User,
    fields: &[(String, Template)],
    validator: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(512);
    begin_request(&mut out, method, path, &scenario.target.authority)
        .map_err(|fault| format!("{path}: {fault}"))?;
    for (name, line) in [("user-agent", AGENT), ("accept", "Accept: */*\r\n")] {
        if !names(fields, name) {
            out.extend_from_slice(line.as_bytes());
        }
    }
    user.cookies.write(&mut out, Asked { site: &scenario.target, path, now: monotonic_ns() });
    out.extend_from_slice(validator.unwrap_or_default());
    Ok(out)
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
        Body::Json(text) => write(scenario, text, user, Encoding::Json, out).map(|()| None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load_text;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Whatever a variable holds, it is one value at its place, in both versions.
    #[test]
    fn values_change_nothing_around_them() {
        let text = "target \"http://a.test\"; users 1 { steady \"1s\" }; think fixed \"1s\"
            data w \"a/b c&d=e+f?g%20#\\r\\nX-Evil: 1\\\"\\\\\"
            data link \"/next?page=2&sort=a%20b c#top\"
            data slash \"/b\"
            flow {
                post \"/p/{w}?q={w}&r=1\" body=\"{{\\\"t\\\": \\\"{w}\\\", \\\"n\\\": {user}}\" type=\"application/json\" { header \"X-A\" \"v {w}\" }
                get \"{link}&q={w}\"
                get \"/{slash}\"
                post \"/\" body=\"{w}\"
            }";
        let loaded = load_text("test", text, Path::new("."), &BTreeMap::new());
        let scenario = loaded.scenario.clone().unwrap_or_else(|| panic!("{}", loaded.render(false)));
        let mut user = User::new(&scenario, 7, 1, (0, 1));
        let query = "a%2Fb%20c%26d%3De%2Bf%3Fg%2520%23%0D%0AX-Evil%3A%201%22%5C";
        let value = "a/b c&d=e+f?g%20#\r\nX-Evil: 1\"\\";
        let targets = [
            format!("/p/{}?q={query}&r=1", query.replacen("%2F", "/", 1)),
            format!("/next?page=2&sort=a%20b%20c&q={query}"),
            "//b".to_owned(),
            "/".to_owned(),
        ];
        for (operation, expected) in scenario.operations.iter().zip(&targets) {
            let asked = &operation.steps[0];
            user.path = path(&scenario, asked, &user).unwrap();
            let mut written = step(&scenario, asked, &user, None).unwrap();
            let (method, target, lines) = written.parts();
            assert_eq!((method, target), (asked.method.as_str(), expected.as_str()));
            let lines = String::from_utf8_lossy(lines.as_bytes()).into_owned();
            let begins = format!("{method} {expected} HTTP/1.1\r\nHost: a.test\r\n{lines}");
            assert!(written.head.starts_with(begins.as_bytes()), "{}", written.head.escape_ascii());
            assert!(lines.split("\r\n").all(|line| !line.starts_with("X-Evil")), "{lines}");
            let content = written.take_content().unwrap_or_default();
            match expected.as_str() {
                "/" => assert_eq!(content, value.as_bytes()),
                first if first.starts_with("/p/") => {
                    assert!(lines.contains("\r\nX-A: v a/b c&d=e+f?g%20#  X-Evil: 1\"\\\r\n"), "{lines}");
                    let json: serde_json::Value = serde_json::from_slice(&content).unwrap();
                    assert_eq!(json, serde_json::json!({ "t": value, "n": 7 }));
                }
                _ => assert!(content.is_empty()),
            }
        }
    }

    #[test]
    fn both_versions_say_the_same() {
        let text = "target \"http://a.test:81\"; users 1 { steady \"1s\" }; think fixed \"1s\"
            flow { post \"/a?b={user}\" form=\"c={user}\" { header \"X-A\" \"1: 2\" } }";
        let scenario =
            load_text("test", text, Path::new("."), &BTreeMap::new()).scenario.expect("it is sound");
        let mut user = User::new(&scenario, 7, 1, (0, 1));
        user.path = path(&scenario, &scenario.operations[0].steps[0], &user).unwrap();
        user.cookies.set(b"s=\xe9; Path=/", Asked { site: &scenario.target, path: "/", now: 0 });
        let validator = b"If-None-Match: \"\xff\"\r\n";
        let written = step(&scenario, &scenario.operations[0].steps[0], &user, Some(validator)).unwrap();
        let (method, target, lines) = written.parts();
        assert_eq!((method, target, written.content.as_deref()), ("POST", "/a?b=7", Some(&b"c=7"[..])));
        let lines = lines.as_bytes().to_vec();
        let bytes = written.into_http1();
        let end = b"Content-Length: 3\r\n\r\nc=7";
        let expected = [b"POST /a?b=7 HTTP/1.1\r\nHost: a.test:81\r\n", &lines[..], end].concat();
        assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
        for part in [
            &b"X-A: 1: 2\r\n"[..],
            b"Cookie: s=\xe9\r\n",
            b"Content-Type: application/x-www-form-urlencoded\r\n",
        ] {
            assert!(memchr::memmem::find(&lines, part).is_some(), "{}", part.escape_ascii());
        }
        assert!(memchr::memmem::find(&lines, b"If-None-Match: \"\xff\"\r\n").is_some());
    }
}
