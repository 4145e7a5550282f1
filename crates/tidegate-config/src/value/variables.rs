//! The names that other servers have for what is a placeholder here: those of variables, `host` of `$host`, and of placeholders.
//!
//! `foreign_text.rs` finds them in values.

use super::foreign_text::foreign;
use crate::directive::Kind;

/// Variables of nginx and what fields, redirects and logs have in their place: a space between several, empty where they have nothing.
const KNOWN: &[(&str, &str, &str)] = &[
    ("args", "query", "query"),
    ("binary_remote_addr", "client", "client"),
    ("body_bytes_sent", "", "bytes"),
    ("bytes_sent", "", "bytes-out"),
    ("content_length", "", ""),
    ("content_type", "", ""),
    ("document_root", "", ""),
    ("document_uri", "path", "path"),
    ("fastcgi_path_info", "", ""),
    ("fastcgi_script_name", "", ""),
    ("host", "host", "host"),
    ("hostname", "host", "host"),
    ("http_host", "host", "host"),
    ("https", "scheme", "scheme"),
    ("is_args", "", ""),
    ("msec", "", "time-unix"),
    ("query_string", "query", "query"),
    ("realpath_root", "", ""),
    ("remote_addr", "client", "client"),
    ("remote_port", "", "client-port"),
    ("remote_user", "user", "user"),
    ("request", "", "method target protocol"),
    ("request_filename", "", ""),
    ("request_id", "request-id", "request-id"),
    ("request_length", "", "bytes-in"),
    ("request_method", "method", "method"),
    ("request_time", "", "duration"),
    ("request_uri", "uri", "target"),
    ("scheme", "scheme", "scheme"),
    ("server_addr", "", ""),
    ("server_name", "host", "site"),
    ("server_port", "", ""),
    ("server_protocol", "", "protocol"),
    ("ssl_cipher", "", "tls-cipher"),
    ("ssl_protocol", "", "tls-version"),
    ("status", "", "status"),
    ("time_iso8601", "", "time-iso"),
    ("time_local", "", "time"),
    ("upstream_addr", "", "upstream"),
    ("upstream_connect_time", "", "upstream-connect"),
    ("upstream_header_time", "", "upstream-first-byte"),
    ("upstream_response_time", "", "upstream-duration"),
    ("upstream_status", "", "upstream-status"),
    ("uri", "path", "path"),
];

/// What the names of further ones begin with.
const FAMILIES: [&str; 8] =
    ["arg_", "cookie_", "http_", "proxy_", "sent_http_", "ssl_", "upstream_", "realip_"];

/// What is meant by a text without a placeholder where one is due to tell requests apart: the name of a placeholder without
/// its brackets, or what other servers write. `None` where it may be meant as it is, or that has been said.
pub(crate) fn meant_by_constant(text: &str) -> Option<String> {
    if text.contains('{') || foreign(Kind::FieldTemplate, "", text).is_some() {
        return None;
    }
    let name = text.trim_start_matches(['$', '%', '&', '<', '[', '(']).trim_end_matches(['>', ']', ')']);
    let known = Kind::FieldTemplate.placeholders();
    let lower = name.to_ascii_lowercase();
    let dashed = lower.replace('_', "-");
    let of_others = || match (text.starts_with('%'), name) {
        (true, "h" | "a") => Some("client"),
        (true, "u") => Some("user"),
        (true, "v" | "V") => Some("host"),
        (true, "U") => Some("path"),
        (true, "m") => Some("method"),
        _ => None,
    };
    let same = known.iter().find(|known| **known == dashed).map(|known| (*known).to_owned());
    let found = same
        .or_else(|| of_others().map(str::to_owned))
        .or_else(|| of_another_name(&dashed).map(str::to_owned))
        .or_else(|| placeholder(&lower, false, known).flatten())
        .or_else(|| of_family(name));
    found.or_else(|| text.contains('$').then(|| "client".to_owned()))
}

/// What other servers and people call what is `{client}`, `{user}` and `{uri}` here; with `-` in place of `_`.
fn of_another_name(dashed: &str) -> Option<&'static str> {
    Some(match dashed {
        "ip" | "src" | "addr" | "address" | "remote" | "client-ip" | "remote-ip" | "remote-host"
        | "client-addr" | "client-address" | "remote-addr" | "remote-address" | "real-ip" => "client",
        "username" | "user-name" | "remote-user" => "user",
        "url" | "request-uri" | "target" => "uri",
        _ => return None,
    })
}

/// The part of a request that a name with its family in front stands for, `http_x_key` for instance.
fn of_family(name: &str) -> Option<String> {
    let (family, rest) = name.split_once(['.', ':', '_'])?;
    let family = match family.to_ascii_lowercase().as_str() {
        "header" | "http" => "header",
        "request" if name.contains('.') => "header",
        "cookie" => "cookie",
        "query" | "arg" => "query",
        _ => return None,
    };
    (!rest.is_empty()).then(|| format!("{family}.{}", rest.replace('_', "-")))
}

/// Whose name that of a placeholder is which is not known, and the placeholder that is meant, one of `known` or of a family.
pub(super) fn meant_by_name(name: &str, known: &[&str]) -> Option<(String, String)> {
    let said = |whose: &str, meant: String| Some((format!("`{{{name}}}` {whose}"), meant));
    let lower = name.to_ascii_lowercase();
    if known.contains(&lower.as_str()) {
        return said("in small letters", lower);
    }
    if let Some(placeholder) = placeholder(&lower, false, known) {
        return said("of nginx", placeholder?);
    }
    if let Some(field) = name.strip_prefix("request.").filter(|field| !field.is_empty()) {
        return said("of a log", format!("header.{field}"));
    }
    let group = ["http.regexp.", "re."].iter().find_map(|family| name.strip_prefix(family));
    if let Some(number) = group.and_then(|group| group.rsplit('.').next())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return said("of Caddy", number.to_owned());
    }
    if let Some(of_caddy) = name.strip_prefix("http.request.") {
        let meant = match of_caddy.split_once('.') {
            Some((family @ ("header" | "cookie"), rest)) => format!("{family}.{rest}"),
            Some(("uri", "query")) => "query".to_owned(),
            Some((family, "path" | "host")) => of_caddy.get(family.len() + 1..)?.replace("host", "client"),
            None => of_caddy.replace("hostport", "host"),
            _ => return None,
        };
        let is_known = meant.contains('.') || known.contains(&meant.as_str());
        return is_known.then(|| said("of Caddy", meant)).flatten();
    }
    let whose = if lower == "target" { "of a log" } else { "of other servers" };
    let meant = of_another_name(&lower.replace('_', "-")).filter(|meant| known.contains(meant))?;
    said(whose, meant.to_owned())
}

/// Whether a name is one of the path of a request, with its query or without, here or with another server.
pub(super) fn is_path(name: &str) -> bool {
    let meant = meant_by_name(name, Kind::Target.placeholders());
    matches!(meant.as_ref().map_or(name, |(_, meant)| meant.as_str()), "uri" | "path")
}

/// The first placeholder of a text in which none is filled in: one that is known elsewhere, so that JSON is left alone.
pub(super) fn placeholder_in(text: &str) -> Option<&str> {
    let mut inside = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    inside.find_map(|(inside, _)| {
        let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
        let is_number = !name.is_empty() && name.len() < 3 && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_known = Kind::FieldTemplate.placeholders().contains(&name)
            || ["header.", "cookie.", "query.", "value.", "request."]
                .iter()
                .any(|family| name.starts_with(family))
            || name.contains('_') && placeholder(name, false, &[]).is_some();
        (is_number || is_known).then_some(inside)
    })
}

/// What a log has for a name that logs do not know: whose name it is, and the placeholders as they are written.
pub(super) fn meant_in_log(name: &str, known: &[&str]) -> Option<(String, String)> {
    let said = |whose: &str, meant: String| Some((format!("`{{{name}}}` {whose}"), in_braces(&meant)));
    let lower = name.to_ascii_lowercase();
    if known.contains(&lower.as_str()) {
        return said("in small letters", lower);
    }
    if let Some(field) = name.strip_prefix("header.").filter(|field| !field.is_empty()) {
        return said("of fields, redirects and limits", format!("request.{field}"));
    }
    if name == "uri" {
        return said("of fields, redirects and limits", "target".to_owned());
    }
    if let Some(placeholder) = placeholder(&lower, true, &[]) {
        return said("of nginx", placeholder?);
    }
    let meant = of_another_name(&lower.replace('_', "-"))?;
    said("of other servers", if meant == "uri" { "target" } else { meant }.to_owned())
}

/// The placeholder of fields for a variable of nginx.
pub(crate) fn meant_by_variable(name: &str) -> Option<String> {
    placeholder(name, false, Kind::FieldTemplate.placeholders()).flatten()
}

/// Names of placeholders as they are written.
pub(super) fn in_braces(names: &str) -> String {
    let written: Vec<String> = names.split(' ').map(|name| format!("{{{name}}}")).collect();
    written.join(" ")
}

/// The placeholder for a variable, where there is one, or those of a log with a space between them; `None` where the name is none
/// of nginx's.
pub(super) fn placeholder(name: &str, is_log: bool, known: &[&str]) -> Option<Option<String>> {
    if let Some((_, other, log)) = KNOWN.iter().find(|(variable, ..)| *variable == name) {
        let meant = if is_log { *log } else { *other };
        let is_there = !meant.is_empty() && (is_log || known.contains(&meant));
        return Some(is_there.then(|| meant.to_owned()));
    }
    let family = FAMILIES.iter().find(|family| name.len() > family.len() && name.starts_with(**family))?;
    let rest = &name[family.len()..];
    Some(match (*family, is_log) {
        ("http_", true) => Some(format!("request.{}", rest.replace('_', "-"))),
        ("sent_http_", true) => Some(format!("response.{}", rest.replace('_', "-"))),
        ("http_", false) => Some(format!("header.{}", rest.replace('_', "-"))),
        ("cookie_", false) => Some(format!("cookie.{rest}")),
        ("arg_", false) => Some(format!("query.{rest}")),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_that_are_no_keys() {
        for (text, meant) in [
            ("client", Some("client")),
            ("remote_addr", Some("client")),
            ("%h", Some("client")),
            ("$remote", Some("client")),
            ("$5", None), // the same
            ("ip", Some("client")),
            ("user", Some("user")),
            ("request_uri", Some("uri")),
            ("header:X-Api-Key", Some("header.X-Api-Key")),
            ("cookie.sid", Some("cookie.sid")),
            ("$binary_remote_addr", None), // said elsewhere
            ("{client}", None),
            ("all", None),
            ("everybody", None),
            ("", None),
        ] {
            assert_eq!(meant_by_constant(text).as_deref(), meant, "{text}");
        }
    }
}
