//! What an access line looks like: a known format by its name, or a pattern with placeholders.
//!
//! Called for the property `format` of `access-log`. The placeholders are listed once, here; the reference
//! and the help of errors come from the list.

use super::{ValueError, names};
use crate::settings::{AccessFormat, LogPart, TimeUnit, UpstreamStage};

/// The formats that have a name.
const KNOWN: &[(&str, AccessFormat)] =
    &[("combined", AccessFormat::Combined), ("common", AccessFormat::Common), ("json", AccessFormat::Json)];

/// The placeholders without an argument.
const PLACEHOLDERS: &[(&str, LogPart)] = &[
    ("client", LogPart::Client),
    ("client.name", LogPart::ClientName),
    ("client-port", LogPart::ClientPort),
    ("user", LogPart::User),
    ("scheme", LogPart::Scheme),
    ("tls-version", LogPart::TlsVersion),
    ("tls-cipher", LogPart::TlsCipher),
    ("host", LogPart::Host),
    ("method", LogPart::Method),
    ("target", LogPart::Target),
    ("path", LogPart::Path),
    ("query", LogPart::Query),
    ("protocol", LogPart::Protocol),
    ("status", LogPart::Status),
    ("bytes", LogPart::Bytes),
    ("bytes-in", LogPart::BytesIn),
    ("bytes-out", LogPart::BytesOut),
    ("duration-us", LogPart::DurationMicroseconds),
    ("duration-ms", LogPart::DurationMilliseconds),
    ("duration", LogPart::DurationSeconds),
    ("time", LogPart::Time),
    ("time-iso", LogPart::TimeIso),
    ("time-unix", LogPart::TimeUnix),
    ("request-id", LogPart::RequestId),
    ("trace-id", LogPart::TraceId),
    ("site", LogPart::Site),
    ("route", LogPart::Route),
    ("upstream", LogPart::Upstream),
    ("upstream-status", LogPart::UpstreamStatus),
    ("upstream-connect", LogPart::UpstreamTime(UpstreamStage::Connected, TimeUnit::Seconds)),
    ("upstream-connect-ms", LogPart::UpstreamTime(UpstreamStage::Connected, TimeUnit::Milliseconds)),
    ("upstream-first-byte", LogPart::UpstreamTime(UpstreamStage::FirstByte, TimeUnit::Seconds)),
    ("upstream-first-byte-ms", LogPart::UpstreamTime(UpstreamStage::FirstByte, TimeUnit::Milliseconds)),
    ("upstream-duration", LogPart::UpstreamTime(UpstreamStage::Complete, TimeUnit::Seconds)),
    ("upstream-duration-ms", LogPart::UpstreamTime(UpstreamStage::Complete, TimeUnit::Milliseconds)),
];

/// Most bytes of a pattern.
const MOST: usize = 4096;
/// Most fields of request and response in a pattern.
const MOST_FIELDS: usize = 32;

/// Reads a format.
pub(super) fn format(text: &str) -> Result<AccessFormat, ValueError> {
    if let Some((_, format)) = KNOWN.iter().find(|(name, _)| *name == text) {
        return Ok(format.clone());
    }
    if !text.contains(['{', '}']) {
        let near = crate::suggest::nearest(text, KNOWN.iter().map(|(name, _)| *name));
        let near = near.map(|word| format!("did you mean `{word}`? ")).unwrap_or_default();
        return Err(ValueError::new(
            format!("`{text}` is no format of a log"),
            format!(
                "{near}expected is `combined`, `common`, `json` or a pattern, such as \
                 `\"{{client}} {{method}} {{target}} {{status}}\"`"
            ),
        ));
    }
    if text.len() > MOST {
        return Err(ValueError::new(
            format!("the pattern is longer than {MOST} bytes"),
            "leave something out",
        ));
    }
    if let Some(character) = text.chars().find(|character| character.is_control()) {
        let shown = character.escape_default();
        return Err(ValueError::new(
            format!("the pattern holds the control character `{shown}`"),
            "a line has to stay one line: take it out",
        ));
    }
    let parts = parts(text)?;
    let fields = parts.iter().filter(|part| matches!(part, LogPart::Request(_) | LogPart::Response(_)));
    if fields.count() > MOST_FIELDS {
        let message = format!("the pattern names more than {MOST_FIELDS} fields");
        return Err(ValueError::new(message, "leave some of them out"));
    }
    Ok(AccessFormat::Pattern(parts.into()))
}

fn parts(text: &str) -> Result<Vec<LogPart>, ValueError> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        literal.push_str(before);
        if let Some(behind) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            literal.push_str(&from[..1]);
            rest = behind;
            continue;
        }
        let name = from.strip_prefix('{').and_then(|from| from.split_once('}'));
        let Some((name, behind)) = name else {
            return Err(ValueError::new(
                format!("`{text}` holds a brace without its other half"),
                "write `{{` or `}}` for the brace itself",
            ));
        };
        if !literal.is_empty() {
            parts.push(LogPart::Text(std::mem::take(&mut literal)));
        }
        parts.push(placeholder(name)?);
        rest = behind;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(LogPart::Text(literal));
    }
    Ok(parts)
}

fn placeholder(name: &str) -> Result<LogPart, ValueError> {
    if let Some((_, part)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name) {
        return Ok(part.clone());
    }
    for (prefix, part) in
        [("request.", LogPart::Request as fn(String) -> LogPart), ("response.", LogPart::Response)]
    {
        if let Some(field) = name.strip_prefix(prefix) {
            return names::token(field).map(part).map_err(|_| {
                ValueError::new(
                    format!("`{field}` in `{{{name}}}` is no field name"),
                    format!(
                        "write the name of a field behind `{prefix}`, such as `{{{prefix}Content-Type}}`"
                    ),
                )
            });
        }
    }
    let known = PLACEHOLDERS.iter().map(|(known, _)| *known);
    let names: Vec<&str> = known.clone().collect();
    let meant = super::variables::meant_in_log(name, &names);
    let meant = meant.map(|(whose, meant)| format!("{whose} is `{meant}`; "));
    let near = crate::suggest::nearest(name, known.clone());
    let near = meant.or_else(|| near.map(|word| format!("did you mean `{{{word}}}`? "))).unwrap_or_default();
    let known: Vec<String> = known.map(|known| format!("`{{{known}}}`")).collect();
    Err(ValueError::new(
        format!("`{{{name}}}` is not known in a log"),
        format!("{near}there are {}, `{{request.NAME}}` and `{{response.NAME}}`", known.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let pattern = |parts: &[LogPart]| Ok(AccessFormat::Pattern(parts.into()));
        let text = |text: &str| LogPart::Text(text.into());
        let cases = [
            ("json", Ok(AccessFormat::Json)),
            ("{client}", pattern(&[LogPart::Client])),
            (
                "{status} {{x}} {request.User-Agent}!",
                pattern(&[LogPart::Status, text(" {x} "), LogPart::Request("User-Agent".into()), text("!")]),
            ),
        ];
        for (written, expected) in cases {
            assert_eq!(format(written), expected, "{written}");
        }
    }

    #[test]
    fn mistakes_and_what_was_meant() {
        let cases = [
            ("combimed", "did you mean `combined`?"),
            ("{statsu}", "did you mean `{status}`?"),
            ("{header.X-Key}", "`{header.X-Key}` of fields, redirects and limits is `{request.X-Key}`"),
            ("{request}", "`{request}` of nginx is `{method} {target} {protocol}`"),
            ("{uri}", "`{uri}` of fields, redirects and limits is `{target}`"),
            ("{remote_addr}", "`{remote_addr}` of nginx is `{client}`"),
            ("{http_referer}", "`{http_referer}` of nginx is `{request.referer}`"),
            ("{duration_ms}", "did you mean `{duration-ms}`?"),
            ("{client", "write `{{` or `}}`"),
            ("client}", "write `{{` or `}}`"),
            ("{request.}", "such as `{request.Content-Type}`"),
            ("{response.a b}", "such as `{response.Content-Type}`"),
            ("{status}\n", "one line"),
            ("{}", "there are `{client}`"),
        ];
        for (written, help) in cases {
            let error = format(written).unwrap_err();
            assert!(error.help.contains(help), "{written}: {error:?}");
        }
    }
}
