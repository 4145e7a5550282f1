//! The settings in force as a report: for each directive its value, and where it was written.

use super::ask::Format;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Where values and places begin.
const VALUE_COLUMN: usize = 32;
const PLACE_COLUMN: usize = 72;

/// The report on what `tidegate_config::WrittenSettings` has in force.
pub fn settings_report(in_force: &Value, format: Format) -> String {
    if format == Format::Json {
        return format!("{in_force}\n");
    }
    let mut text = "Settings:\n-----\n".to_owned();
    list(in_force, 0, &mut text);
    text
}

/// Adds what an operator has asked for in place of the level of the error log.
pub fn add_log_level(in_force: &mut Value, level: &str) {
    let Some(directives) = in_force.as_array_mut() else { return };
    let asked = json!({ "level": level });
    match directives.iter_mut().find(|one| one["directive"] == "error-log") {
        Some(log) => log["until_reload"] = asked,
        None => directives.push(json!({ "directive": "error-log", "until_reload": asked })),
    }
}

fn list(directives: &Value, depth: usize, text: &mut String) {
    directives.as_array().into_iter().flatten().for_each(|one| directive(one, depth, text));
}

fn directive(told: &Value, depth: usize, text: &mut String) {
    let word = |member: &str| told[member].as_str().unwrap_or_default();
    let at = word("at");
    let nothing = Map::new();
    let properties = told["properties"].as_object().unwrap_or(&nothing);
    let is_default =
        |name: &str| told["defaults"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
    let mut values: Vec<String> = told["arguments"].as_array().into_iter().flatten().map(shown).collect();
    let (defaults, written): (Vec<_>, Vec<_>) = properties.iter().partition(|(name, _)| is_default(name));
    values.extend(written.into_iter().map(|(name, value)| format!("{name}={}", shown(value))));
    line(text, depth, word("directive"), &values.join(" "), at);
    for (name, value) in defaults {
        line(text, depth + 1, name, &shown(value), "default");
    }
    for (name, value) in told["until_reload"].as_object().unwrap_or(&nothing) {
        line(text, depth + 1, name, &shown(value), "`tidegate log-level`, until the next reload");
    }
    match &told["children"] {
        Value::Object(pairs) => {
            pairs.iter().for_each(|(name, value)| line(text, depth + 1, name, &shown(value), at))
        }
        children => list(children, depth + 1, text),
    }
}

fn line(text: &mut String, depth: usize, name: &str, value: &str, at: &str) {
    let label = format!("{:indent$}{name}", "", indent = depth * 2);
    // What is longer than its column has a space behind it all the same. Writing to a `String` cannot fail.
    let start = format!("{label:<width$} {value}", width = VALUE_COLUMN - 1);
    let _ = writeln!(text, "{start:<width$} {at}", width = PLACE_COLUMN - 1);
}

/// A value on one line.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text)
            if text.is_empty()
                || text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) =>
        {
            value.to_string()
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn every_value_is_told_with_its_place_and_no_secret() {
        let text = "workers 3\nlisten \"127.0.0.1:8080\"\naccess-log \"stderr\"\n\
            pool \"app\" { command \"/bin/true\"; socket \"app\"; environment { KEY \"geheim\"; OTHER \"${PASSWORD}\" } }\n\
            site \"a.test\" {\n  root \"/srv\"\n  route \"/x\" { proxy \"http://127.0.0.1:9\" { request-header \"X-Key\" \"geheim\" } }\n  server-field \"${PASSWORD}\"\n}\n";
        let environment = BTreeMap::from([("PASSWORD".to_owned(), "geheim".to_owned())]);
        let loaded = tidegate_config::load_str("a.kdl", text, Path::new("/"), &environment);
        let in_force = loaded.written.in_force(&environment);
        let json = settings_report(&in_force, Format::Json);
        let text = settings_report(&in_force, Format::Text);
        assert!(!json.contains("geheim") && !text.contains("geheim"), "{text}");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for expected in [
            "workers 3 a.kdl:1",
            "processes 1 default",
            "listen 127.0.0.1:8080 a.kdl:2",
            "backlog 4096 default",
            "access-log stderr a.kdl:3",
            "format combined default",
            "connections 20000 default",
            "site a.test a.kdl:5",
            "root /srv a.kdl:6",
            "request-header X-Key \"(not shown)\" a.kdl:7",
            "history on default",
        ] {
            assert!(lines.iter().any(|line| line.join(" ").starts_with(expected)), "{expected}\n{text}");
        }
        assert!(json.contains("\"at\":\"a.kdl:6\""), "{json}");
    }
}
