//! What other servers would fill in within a value, and is taken as it stands here: `$host` and `$1` of nginx, `%1` and
//! `%{HTTP_HOST}` of Apache, `%[src]` of HAProxy, `{$NAME}` of Caddy.
//!
//! Called by `check` for every value of the settings. It words warnings and help; nothing is ever filled in because of it.

use super::variables::{in_braces, placeholder, placeholder_in};
use super::{is_token, placeholders};
use crate::directive::Kind;

/// What is said of a value in the words of another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub message: String,
    pub help: String,
    /// It cannot be meant as it stands.
    pub is_error: bool,
    /// The value as it was meant, where all of it can be said here.
    pub meant: Option<String>,
    /// The help shows more of the value than what others fill in.
    pub shows_value: bool,
}

/// Whether variables have a meaning in a value of this type, and what is said where they have none.
enum Filled {
    Placeholders(&'static [&'static str]),
    Log,
    /// What holds no variables, and what to do.
    Nothing(String, &'static str),
    /// In paths of the file system they cannot be meant as they stand.
    Path,
}

const IN_PATHS: &str = "a path holds no variables of a request: write the folder as it is, in a `site` for each host; variables of the \
                        environment are `${NAME}`";

fn filled(kind: Kind, directive: &str) -> Option<Filled> {
    let nothing = |help| Some(Filled::Nothing(format!("`{directive}`"), help));
    if directive == "value" && !matches!(kind, Kind::FieldTemplate) {
        return nothing(
            "every result of a `value` is fixed; what a star stands for is `{1}` in the `redirect`, `rewrite` and \
             fields of a `route`",
        );
    }
    match kind {
        Kind::Target | Kind::Rewrite | Kind::FieldTemplate => Some(Filled::Placeholders(kind.placeholders())),
        Kind::LogFormat => Some(Filled::Log),
        Kind::File | Kind::Glob | Kind::LogTarget => Some(Filled::Path),
        Kind::Service => nothing("the address is the same for every request: write it as it is"),
        Kind::Url | Kind::Destination => nothing(
            "the address is the same for every request: what the client asks for is passed on behind it, `rewrite` \
             changes that; other addresses are for routes and sites of their own",
        ),
        Kind::SitePath => nothing("the path is the same for every request: write it as it is"),
        Kind::FieldValue => nothing("it is the same for every request; `header` has placeholders"),
        Kind::ToldHost => None, // says so by itself
        _ => match directive {
            "param" => nothing(
                "the server sets the variables of CGI by itself (`SCRIPT_FILENAME`, `DOCUMENT_ROOT`, `REQUEST_URI` and the \
                 like): take the line out, or write the text that is to be sent",
            ),
            "respond" => {
                nothing("the text is the same for every request: leave it out, or have an application answer")
            }
            "host" | "check" => nothing("write the name of the host as it is, or leave it out"),
            _ => None,
        },
    }
}

/// What is said of a value of a type that holds what another server would fill in.
pub(crate) fn foreign(kind: Kind, directive: &str, text: &str) -> Option<Foreign> {
    let filled = filled(kind, directive);
    match filled {
        Some(Filled::Placeholders(known)) => in_template(kind, known, text),
        Some(Filled::Log) => in_template(kind, &[], text),
        _ if matches!(kind, Kind::Regex | Kind::Pattern) => None,
        _ => in_fixed(kind, filled, text),
    }
}

fn in_template(kind: Kind, known: &[&str], text: &str) -> Option<Foreign> {
    let is_log = matches!(kind, Kind::LogFormat);
    let (mut first, mut meant, mut is_whole) = (None::<(Variable<'_>, bool)>, String::new(), true);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let Some(variable) = variable(rest, kind, known) else {
            meant.push(character);
            rest = &rest[character.len_utf8()..];
            continue;
        };
        rest = &rest[variable.written.len()..];
        match &variable.meant {
            // What `$is_args` stands for comes with the query.
            _ if variable.written == "$is_args"
                && ["$args", "$query_string"].iter().any(|query| rest.starts_with(query))
                && !is_log => {}
            Some(placeholder) => {
                if placeholder == "{query}" && !is_log && meant.ends_with(['?', '&']) {
                    meant.pop();
                }
                meant.push_str(placeholder);
            }
            None => is_whole = false,
        }
        // The brackets of these would be read as a placeholder.
        let is_error = variable.written.starts_with("%{")
            || variable.written.starts_with("{$") && !matches!(kind, Kind::FieldTemplate);
        if first.as_ref().is_none_or(|(_, known)| is_error && !known) {
            first = Some((variable, is_error));
        }
    }
    let (first, is_error) = first?;
    if known.contains(&"uri") && !meant.contains("/{path}{query}") {
        meant = meant.replace("{path}{query}", "{uri}");
    }
    let help = match is_whole {
        true => format!("write `\"{}\"`", meant.replace('"', "\\\"")),
        false if is_log => {
            "not all of them have a placeholder; the reference of `access-log` names those there are".into()
        }
        false => {
            format!("not all of them have a placeholder; known are {}", placeholders::known(kind, &[]))
        }
    };
    let written = first.written;
    let message = match (is_error, first.is_environment, written.starts_with('{')) {
        (true, ..) => format!("`{written}` is not known here"),
        (false, true, _) => {
            format!("`{written}` stays as it is written: variables of the environment are `${{NAME}}`")
        }
        (false, false, true) => {
            format!("`{written}` stays as it is written: the names of placeholders have no `$`")
        }
        (false, false, false) => {
            format!("`{written}` stays as it is written: placeholders are written in curly brackets")
        }
    };
    Some(Foreign { message, help, is_error, meant: is_whole.then_some(meant), shows_value: is_whole })
}

fn in_fixed(kind: Kind, filled: Option<Filled>, text: &str) -> Option<Foreign> {
    let known = Kind::FieldTemplate.placeholders();
    let mut variables =
        text.char_indices().filter_map(|(at, _)| variable(text.get(at..)?, kind, known)).peekable();
    let is_path = matches!(filled, Some(Filled::Path));
    // Variables of the environment have a meaning in every value.
    if let Some(variable) = variables.peek().filter(|variable| variable.is_environment) {
        let (written, meant) = (variable.written, variable.meant.clone().unwrap_or_default());
        let meant = text.replacen(written, &meant, 1);
        return Some(Foreign {
            message: format!(
                "`{written}` stays as it is written: variables of the environment are `${{NAME}}`"
            ),
            help: format!("write `\"{}\"`", meant.replace('"', "\\\"")),
            is_error: is_path,
            meant: None,
            shows_value: true,
        });
    }
    let placeholder = placeholder_in(text).map(|name| format!("{{{name}}}"));
    let is_placeholder = placeholder.is_some();
    let written = placeholder.or_else(|| variables.next().map(|variable| variable.written.to_owned()))?;
    let (message, help) = match filled? {
        Filled::Path => {
            (format!("`{written}` is filled in by nobody: paths are the same for every request"), IN_PATHS)
        }
        Filled::Nothing(directive, help) => {
            let what = if is_placeholder { "placeholders" } else { "variables" };
            (format!("`{written}` stays as it is written: {directive} fills in no {what}"), help)
        }
        Filled::Placeholders(_) | Filled::Log => return None,
    };
    Some(Foreign { message, help: help.to_owned(), is_error: is_path, meant: None, shows_value: false })
}

/// What another server would fill in, at the beginning of a text.
struct Variable<'t> {
    written: &'t str,
    /// What is written for it here; `None` where there is no such thing.
    meant: Option<String>,
    is_environment: bool,
}

fn variable<'t>(text: &'t str, kind: Kind, known: &[&str]) -> Option<Variable<'t>> {
    let is_log = matches!(kind, Kind::LogFormat);
    let of_request = |length: usize, meant: Option<String>| {
        let meant = meant.map(|meant| in_braces(&meant));
        Some(Variable { written: text.get(..length)?, meant, is_environment: false })
    };
    if let Some(behind) = text.strip_prefix("{$") {
        let (inside, _) = behind.split_once('}')?;
        let length = inside.len() + 3;
        let (name, default) = inside.split_once(':').map_or((inside, None), |(name, it)| (name, Some(it)));
        if let Some(meant) = placeholder(name, is_log, known).filter(|_| default.is_none()) {
            return of_request(length, meant);
        }
        return (name_of_variable(name) == name).then(|| environment(&text[..length], name, default));
    }
    if let Some(behind) = text.strip_prefix('$') {
        let name = name_of_variable(behind);
        if name.len() == 1 && name.bytes().all(|byte| matches!(byte, b'1'..=b'9')) {
            // `$5.00` is a price.
            let mut next = behind[1..].bytes();
            let is_price = matches!((next.next(), next.next()), (Some(b'.' | b','), Some(byte)) if byte.is_ascii_digit());
            let is_of_address = !matches!(kind, Kind::Text { .. } | Kind::FieldValue | Kind::LogFormat);
            return of_request(2, Some(name.to_owned())).filter(|_| !is_price && is_of_address);
        }
        let name = &behind[..behind.bytes().position(|byte| !is_of_nginx(byte)).unwrap_or(behind.len())];
        return of_request(name.len() + 1, placeholder(name, is_log, known)?);
    }
    if is_log {
        return None;
    }
    if let Some((inside, _)) = text.strip_prefix("%[").and_then(|behind| behind.split_once(']')) {
        if let Some(name) = inside.strip_prefix("env(").and_then(|name| name.strip_suffix(')')) {
            return Some(environment(&text[..inside.len() + 3], name, None));
        }
        return of_request(inside.len() + 3, of_haproxy(inside, known));
    }
    if let Some((inside, _)) = text.strip_prefix("%{").and_then(|behind| behind.split_once('}')) {
        let written = &text[..inside.len() + 3];
        if let Some(name) = inside.strip_prefix("ENV:") {
            return Some(environment(written, name, None));
        }
        if let Some(field) = inside.strip_prefix("HTTP:").filter(|field| is_token(field)) {
            return of_request(written.len(), Some(format!("header.{field}")));
        }
        let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        if inside.is_empty() || !inside.bytes().all(is_name) {
            return None;
        }
        let name = inside.to_ascii_lowercase();
        let name = name.strip_prefix("request_").filter(|name| *name == "scheme").unwrap_or(&name);
        return of_request(written.len(), placeholder(name, false, known).flatten());
    }
    let number = text.strip_prefix('%')?.bytes().next().filter(|byte| matches!(byte, b'1'..=b'9'))?;
    // Two digits are a percent escape.
    let is_escape = text.as_bytes().get(2).is_some_and(u8::is_ascii_hexdigit);
    let is_address = matches!(kind, Kind::Target | Kind::Rewrite | Kind::Url);
    of_request(2, Some(char::from(number).to_string())).filter(|_| is_address && !is_escape)
}

fn is_of_nginx(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

/// The name that a text begins with.
fn name_of_variable(text: &str) -> &str {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    &text[..text.bytes().position(|byte| !is_of_name(byte)).unwrap_or(text.len())]
}

fn environment<'t>(written: &'t str, name: &str, default: Option<&str>) -> Variable<'t> {
    let default = default.map(|default| format!(":-{default}")).unwrap_or_default();
    Variable { written, meant: Some(format!("${{{name}{default}}}")), is_environment: true }
}

/// The placeholder for a sample of HAProxy, such as `src` or `req.hdr(host),lower`.
fn of_haproxy(sample: &str, known: &[&str]) -> Option<String> {
    let fetch = sample.split(',').next()?;
    let (fetch, argument) = match fetch.split_once('(') {
        Some((fetch, argument)) => (fetch, argument.strip_suffix(')')?),
        None => (fetch, ""),
    };
    let meant = match fetch.trim_start_matches("req.") {
        "src" => "client",
        "path" => "path",
        "url" | "pathq" => "uri",
        "query" => "query",
        "method" => "method",
        "unique-id" | "uuid" => "request-id",
        "hdr" | "fhdr" if argument.eq_ignore_ascii_case("host") => "host",
        "hdr" | "fhdr" if is_token(argument) => return Some(format!("header.{argument}")),
        "cook" if is_token(argument) => return Some(format!("cookie.{argument}")),
        "url_param" | "urlp" if is_token(argument) => return Some(format!("query.{argument}")),
        _ => return None,
    };
    known.contains(&meant).then(|| meant.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_where_nothing_is_filled_in() {
        let text = Kind::Text { most: 9 };
        for (kind, directive, text, named) in [
            (text, "param", "$document_root$fastcgi_script_name", Some("$document_root")),
            (text, "param", "x-$server_name", Some("$server_name")),
            (text, "respond", "you asked for $uri", Some("$uri")),
            (text, "respond", "$dollars", None),
            (text, "command", "$uri", None),
            (text, "command", "{$HOME}/x", Some("{$HOME}")),
            (text, "respond", "hello {client}", Some("{client}")),
            (text, "respond", "{header.Accept}", Some("{header.Accept}")),
            (text, "respond", "{\"client\": 1, \"a\": {}}", None),
            (text, "param", "{path}", Some("{path}")),
            (text, "check", "$host", Some("$host")),
            (Kind::Url, "proxy", "http://127.0.0.1:3001/$1", Some("$1")),
            (Kind::Url, "proxy", "http://127.0.0.1:3001/%1", Some("%1")),
            (Kind::Url, "proxy", "http://127.0.0.1:3001/%20", None),
            (Kind::Url, "proxy", "http://127.0.0.1:3001{uri}", Some("{uri}")),
            (Kind::SitePath, "error-page", "/e/$status", Some("$status")),
            (Kind::FieldValue, "cache-control", "max-age=$args", Some("$args")),
            (Kind::FieldValue, "server-field", "$5", None),
            (Kind::FieldValue, "value", "/b/{1}", Some("{1}")),
            (text, "respond", "$5 and more", None),
            (Kind::File, "root", "/srv/$host", Some("$host")),
            (Kind::File, "root", "/srv/{host}", Some("{host}")),
            (Kind::File, "alias", "/srv/$1", Some("$1")),
            (Kind::File, "root", "{$SITE_ROOT}", Some("{$SITE_ROOT}")),
            (Kind::File, "root", "/srv/a$b{c}", None),
            (Kind::LogTarget, "access-log", "/log/$host.log", Some("$host")),
            (Kind::Regex, "route", "a{$b}", None),
        ] {
            let said = foreign(kind, directive, text);
            assert_eq!(said.is_some(), named.is_some(), "{text}: {said:?}");
            let Some((said, named)) = said.zip(named) else { continue };
            assert!(said.message.starts_with(&format!("`{named}`")), "{text}: {said:?}");
            assert_eq!(said.is_error, matches!(kind, Kind::File | Kind::LogTarget), "{text}: {said:?}");
        }
        let root = foreign(Kind::File, "root", "{$ROOT:/srv}/a").unwrap();
        assert_eq!(root.help, "write `\"${ROOT:-/srv}/a\"`");
    }

    #[test]
    fn variables_and_what_is_meant() {
        let (target, field, rewrite) = (Kind::Target, Kind::FieldTemplate, Kind::Rewrite);
        for (kind, text, meant) in [
            (target, "https://$host$request_uri", "https://{host}{uri}"),
            (target, "https://{host}$request_uri", "https://{host}{uri}"),
            (target, "$scheme://$host$request_uri", "{scheme}://{host}{uri}"),
            (target, "/b?$args", "/b{query}"),
            (target, "/b?a=1&$args", "/b?a=1{query}"),
            (target, "/b$is_args$args", "/b{query}"),
            (target, "/b$uri?$args", "/b{uri}"),
            (target, "/b$is_args$query_string", "/b{query}"),
            (target, "/$uri?$args", "/{path}{query}"),
            (target, "https://example.com$uri$is_args$args", "https://example.com{uri}"),
            (target, "/b/$1", "/b/{1}"),
            (target, "/b/%1", "/b/{1}"),
            (target, "https://%{HTTP_HOST}%{REQUEST_URI}", "https://{host}{uri}"),
            (target, "https://{$host}/", "https://{host}/"),
            (target, "https://{$NAME}/", "https://${NAME}/"),
            (target, "https://%[hdr(host),lower]%[url]", "https://{host}{uri}"),
            (rewrite, "/b$uri$is_args$args", "/b{path}{query}"),
            (rewrite, "/b/$1/%2", "/b/{1}/{2}"),
            (field, "$remote_addr", "{client}"),
            (field, "$binary_remote_addr", "{client}"),
            (field, "$request_id", "{request-id}"),
            (field, "$http_x_a", "{header.x-a}"),
            (field, "$1", "{1}"),
            (field, "%[src]", "{client}"),
            (field, "%[req.hdr(X-A)] %[req.cook(sid)]", "{header.X-A} {cookie.sid}"),
            (field, "%[env(FOO)]", "${FOO}"),
            (field, "%{REMOTE_ADDR}", "{client}"),
            (field, "%{ENV:FOO}", "${FOO}"),
            (field, "{$FOO}", "${FOO}"),
            (field, "{$FOO:a}", "${FOO:-a}"),
            (field, "{$host}", "{host}"),
            (Kind::LogFormat, "$upstream_response_time $ssl_cipher", "{upstream-duration} {tls-cipher}"),
            (Kind::LogFormat, "{client} $status", "{client} {status}"),
            (
                Kind::LogFormat,
                "$remote_addr [$time_local] \"$request\" $status",
                "{client} [{time}] \"{method} {target} {protocol}\" {status}",
            ),
            (Kind::LogFormat, "{client} $http_user_agent", "{client} {request.user-agent}"),
            (Kind::LogFormat, "{client} $remote_user", "{client} {user}"),
        ] {
            let said = foreign(kind, "", text).unwrap();
            assert_eq!(said.meant.as_deref(), Some(meant), "{text}: {said:?}");
            assert_eq!(said.help, format!("write `\"{}\"`", meant.replace('"', "\\\"")), "{text}");
        }
        let mixed = foreign(target, "", "/$uri%{QUERY_STRING}").unwrap();
        assert!(mixed.is_error && mixed.message.starts_with("`%{QUERY_STRING}`"), "{mixed:?}");
        for (kind, text) in [
            (target, "/$remote_addr"),
            (field, "$ssl_client_s_dn"),
            (field, "$document_root"),
            (field, "%[var(txn.a)]"),
            (Kind::LogFormat, "{client} $document_root"),
        ] {
            let said = foreign(kind, "", text).unwrap();
            assert!(said.meant.is_none() && said.help.starts_with("not all of them have"), "{said:?}");
        }
        for (kind, text) in [
            (field, "Basic $ab $hosts cost: 5$"),
            (field, "$5.00, $1,000 and $10"),
            (field, "100%1 {\"$ref\": {}}"),
            (field, "{query}%{query}"),
            (target, "/a%20b%1f"),
            (Kind::LogFormat, "{client} %1 $1"),
            (Kind::Text { most: 9 }, "$host"),
        ] {
            assert_eq!(foreign(kind, "", text), None, "{text}");
        }
    }
}
