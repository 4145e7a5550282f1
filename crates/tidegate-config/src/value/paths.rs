//! Paths of the file system, paths of a site, and patterns over the path of a request.

use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use super::{ValueError, placeholders, proposals};
use crate::directive::Kind;
use crate::settings::{Collector, CollectorAddress, LogTarget, PathPattern, Regex, Try};

/// Reads a path of the file system; a relative one counts from `folder`. `.` and empty parts are dropped.
pub(crate) fn file(text: &str, folder: &Path) -> Result<PathBuf, ValueError> {
    if text.is_empty() {
        return Err(ValueError::new(
            "the path is empty",
            "write a path, such as `\"/srv/www\"`; `\".\"` is the folder of this file",
        ));
    }
    if text.contains('\0') {
        return Err(ValueError::new("the path holds a zero byte", "delete it"));
    }
    if text.len() > 4096 {
        return Err(ValueError::new("the path is longer than 4096 bytes", "the system takes no longer path"));
    }
    if text.starts_with("~/") || text == "~" {
        return Err(ValueError::new("`~` is not filled in", "write `\"${HOME}/…\"` or the whole path"));
    }
    Ok(normalise(&folder.join(text)))
}

/// The same path without `.` and `..`: applications are told of it, and compare (`SCRIPT_FILENAME`). A link is followed
/// only where `..` stands behind it, since that leads to the folder of what it leads to.
fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if std::fs::symlink_metadata(&out).is_ok_and(|there| there.is_symlink())
                    && let Ok(real) = out.canonicalize()
                {
                    out = real;
                }
                if !out.pop() && !out.has_root() {
                    out.push(component);
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// Reads where a log goes.
pub(super) fn log_target(text: &str, folder: &Path) -> Result<LogTarget, ValueError> {
    match text {
        "stderr" => Ok(LogTarget::Stderr),
        "stdout" => Ok(LogTarget::Stdout),
        "off" => Err(ValueError::new(
            "this log cannot be switched off",
            "`\"/dev/null\"` takes its lines and keeps none; a file of that name is `\"./off\"`",
        )),
        _ if text.split(':').next().is_some_and(|word| matches!(word, "syslog" | "journald")) => {
            collector(text, folder).map(LogTarget::Collector)
        }
        path => file(path, folder).map(LogTarget::File),
    }
}

/// Where syslog daemons listen, and the journal.
const DEV_LOG: &str = "/dev/log";
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Reads the address of a daemon that collects logs; what it is told of us is said beside the address.
fn collector(text: &str, folder: &Path) -> Result<Collector, ValueError> {
    let (word, at) = text.split_once(':').unwrap_or((text, ""));
    let named = |place: &str, usual: &str| file(if place.is_empty() { usual } else { place }, folder);
    let at = if word == "journald" {
        CollectorAddress::Journal(named(at, JOURNAL)?)
    } else if let Some(address) = at.strip_prefix("udp://") {
        CollectorAddress::Udp(remote(text, address, 514)?)
    } else if let Some(address) = at.strip_prefix("tcp://") {
        CollectorAddress::Tcp(remote(text, address, 601)?)
    } else if let Some(server) = at.split(',').find_map(|part| part.strip_prefix("server=")) {
        let there = match server.strip_prefix("unix:") {
            Some(path) => format!("syslog:{path}"),
            None => format!("syslog:udp://{server}"),
        };
        return Err(ValueError::new(
            format!("`{text}` is written as nginx has it"),
            format!("write `\"{there}\"`, with `facility=` and `tag=` as properties behind it"),
        ));
    } else {
        CollectorAddress::Unix { path: named(at, DEV_LOG)?, is_rfc5424: false }
    };
    Ok(Collector { at, facility: FACILITY_DAEMON, tag: "tidegate".to_owned() })
}

/// `daemon` of syslog.
const FACILITY_DAEMON: u8 = 3;

fn remote(text: &str, address: &str, port: u16) -> Result<SocketAddr, ValueError> {
    let with_port = address.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
    let alone = address.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    with_port.or_else(|| Some((alone.ok()?, port).into())).ok_or_else(|| {
        ValueError::new(
            format!("`{text}` names no address of a syslog server"),
            format!("write an IP address and a port, such as `\"syslog:udp://192.0.2.1:{port}\"`; names are not looked up"),
        )
    })
}

/// What a pattern says in the words of nginx: a regular expression, or a path behind `=` or `^~`.
pub(crate) fn location_of_nginx(text: &str) -> Option<ValueError> {
    let error = |why: &str, help: String| {
        Some(ValueError::new(format!("the pattern `{text}` {why}"), help)) //
    };
    if let Some(expression) = text.strip_prefix("~*").or_else(|| text.strip_prefix('~')) {
        let suffix = expression.trim_start().trim_start_matches('\\').strip_prefix('.');
        let suffix = suffix.and_then(|suffix| suffix.strip_suffix('$'));
        let suffix = suffix.filter(|suffix| suffix.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let help = match suffix {
            Some(suffix) => format!("write `\"*.{suffix}\"` for any path that ends so"),
            None => format!("write `regex=#\"{}\"#` in its place", expression.trim_start()),
        };
        return error(IS_EXPRESSION, help);
    }
    for (modifier, star) in [("=", ""), ("^~", "*")] {
        let path = text.strip_prefix(modifier).map(str::trim_start).filter(|path| path.starts_with('/'));
        if let Some(path) = path {
            return error(
                &format!("begins with `{modifier}` of nginx"),
                format!(
                    "write `\"{path}{star}\"`: the first route that fits is taken, in the order of the file"
                ),
            );
        }
    }
    None
}

/// What is said of a regular expression. Whatever seems wrong with its backslashes besides is of no interest.
pub(crate) const IS_EXPRESSION: &str = "is a regular expression, and patterns are none";

/// Reads a pattern. It is compared with decoded, normalised paths, so what cannot stand in one is refused.
pub(crate) fn pattern(text: &str) -> Result<PathPattern, ValueError> {
    let bad = |why: &str, help: &str| Err(ValueError::new(format!("the pattern `{text}` {why}"), help));
    if text.starts_with('@') {
        return route_name(text).map(PathPattern::Exact);
    }
    if let Some(error) = location_of_nginx(text) {
        return Err(error);
    }
    if text.starts_with('^') {
        return bad("is an expression", &format!("write `regex=#\"{text}\"#` in its place"));
    }
    if !text.starts_with(['/', '*']) {
        return bad(
            "begins with neither `/` nor `*`",
            &match text.contains('*') {
                true => format!("write `\"/{text}\"`, or `\"*/{text}\"` for it below any folder"),
                false => format!("write `\"/{text}\"`, or `\"*{text}\"` for any path that ends so"),
            },
        );
    }
    if text.len() > 4096 {
        return bad("is longer than 4096 bytes", "shorten it");
    }
    if text.contains('?') {
        return bad(
            "holds a `?`",
            "the query is no part of the path; one character is not matched alone, `*` stands for any",
        );
    }
    if has_escape(text) {
        return bad("holds a percent escape", "paths are compared decoded: write the character itself");
    }
    if text.contains("//") || text.split('/').any(|part| part == "." || part == "..") {
        return bad("can never match", "paths are compared with `.`, `..` and doubled `/` taken out");
    }
    let parts: Vec<&str> = text.split('*').collect();
    let last = parts.len() - 1;
    // Two stars next to each other mean what one means.
    let pieces: Vec<String> = parts
        .iter()
        .enumerate()
        .filter(|(at, part)| *at == 0 || *at == last || !part.is_empty())
        .map(|(_, part)| (*part).to_owned())
        .collect();
    Ok(match pieces.as_slice() {
        [only] => PathPattern::Exact(only.clone()),
        [first, last] if last.is_empty() => PathPattern::Prefix(first.clone()),
        [first, last] if first.is_empty() => PathPattern::Suffix(last.clone()),
        _ => PathPattern::Pieces(pieces),
    })
}

/// Reads a regular expression.
pub(super) fn regex(text: &str) -> Result<Regex, ValueError> {
    Regex::new(text).map_err(|why| {
        ValueError::new(
            format!("the expression `{}` cannot be used: {why}", shown(text)),
            "the syntax is that of RE2: no references back, no looking around; classes are of ASCII. A raw string, \
             `#\"…\"#`, needs no doubled backslashes",
        )
    })
}

/// As much of a text as a message needs.
fn shown(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Reads the name of a route that no path leads to, as in `route "@app"`.
fn route_name(text: &str) -> Result<String, ValueError> {
    let name = text.strip_prefix('@').unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        return Err(ValueError::new(
            format!("`{text}` is no name of a route"),
            "write `@` and up to 64 letters, digits, `-`, `_` or `.`: `\"@app\"`",
        ));
    }
    Ok(text.to_owned())
}

/// Whether a pattern is the name of a route, which no path matches.
pub(crate) fn is_name(pattern: &PathPattern) -> bool {
    matches!(pattern, PathPattern::Exact(text) if text.starts_with('@'))
}

/// The pattern as one writes it.
pub(crate) fn pattern_text(pattern: &PathPattern) -> String {
    pattern.to_string()
}

/// The literal pieces between the stars.
fn pieces(pattern: &PathPattern) -> Vec<&str> {
    match pattern {
        PathPattern::Exact(text) => vec![text],
        PathPattern::Prefix(text) => vec![text, ""],
        PathPattern::Suffix(text) => vec!["", text],
        PathPattern::Pieces(pieces) => pieces.iter().map(String::as_str).collect(),
        PathPattern::Regex(_) => Vec::new(),
    }
}

/// Whether `earlier` matches all that `later` matches. Every path begins with `/`, so `*` covers `/*`, and
/// `/*` covers what begins with a star.
pub(crate) fn covers(earlier: &PathPattern, later: &PathPattern) -> bool {
    let is_regex = |pattern: &PathPattern| matches!(pattern, PathPattern::Regex(_));
    if is_name(earlier) || is_name(later) || is_regex(earlier) || is_regex(later) {
        return earlier == later || *earlier == PathPattern::Prefix("/".into()) && is_regex(later);
    }
    let mut earlier = pieces(earlier);
    if earlier.len() > 1 && earlier[0] == "/" && later_begins_free(later) {
        earlier[0] = "";
    }
    // A star of the later pattern can become anything, so only a star of the earlier one can take it: the
    // later pattern is matched as a text in which its stars are a letter no piece holds.
    const STAR: &str = "\0";
    let text = pieces(later).join(STAR);
    let (Some(first), Some(last)) = (earlier.first(), earlier.last()) else { return false };
    if earlier.len() == 1 {
        return text == *first;
    }
    let Some(rest) = text.strip_prefix(first) else { return false };
    let Some(mut rest) = rest.strip_suffix(last) else { return false };
    for piece in earlier.iter().take(earlier.len() - 1).skip(1) {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

fn later_begins_free(later: &PathPattern) -> bool {
    pieces(later).first().is_some_and(|first| first.is_empty())
}

/// Reads a path within a site.
pub(super) fn site_path(text: &str) -> Result<String, ValueError> {
    if !text.starts_with('/') {
        let help = match text.split_once("://") {
            Some((_, behind)) => {
                let path = behind.find('/').and_then(|at| behind.get(at..)).unwrap_or("/");
                format!("write the path alone, `\"{path}\"`; `redirect` in a route leads to other hosts")
            }
            None if text.starts_with('@') => {
                return Err(ValueError::new(
                    format!("`{text}` is the name of a route, and no path of the site"),
                    format!("a name is for `try` alone: {NOT_FOR_CLIENTS}"),
                ));
            }
            None => format!("paths of a site begin with `/`: `\"/{text}\"`"),
        };
        return Err(ValueError::new(format!("`{text}` is no path of the site"), help));
    }
    if text.split('/').any(|part| part == "..") || text.contains(['\0', '\r', '\n']) {
        return Err(ValueError::new(
            format!("`{text}` leads out of the site"),
            "write the path without `..` and control characters",
        ));
    }
    Ok(text.to_owned())
}

/// Reads the name of a file in a folder.
pub(super) fn file_name(text: &str) -> Result<String, ValueError> {
    if text.is_empty() || text.contains(['/', '\0']) || text == "." || text == ".." || text.len() > 255 {
        return Err(ValueError::new(
            format!("`{text}` is no file name"),
            "write the name alone, without a folder: `\"index.html\"`",
        ));
    }
    Ok(text.to_owned())
}

/// Reads an entry of `try`.
pub(super) fn try_entry(text: &str) -> Result<Try, ValueError> {
    if let Some(status) = text.strip_prefix('=') {
        return match status.parse::<u16>() {
            Ok(status) if (400..=599).contains(&status) && text.len() == 4 => Ok(Try::Status(status)),
            _ => Err(ValueError::new(
                format!("`{text}` is no error status"),
                "write `\"=404\"`; the statuses go from 400 to 599",
            )),
        };
    }
    if text.starts_with('@') {
        return route_name(text).map(Try::Route);
    }
    if text.contains('$') {
        return Err(ValueError::new(
            format!("`{text}` holds a `$`"),
            "the path of the request is `{path}` here",
        ));
    }
    if !text.starts_with('/') && !text.starts_with("{path}") {
        return Err(ValueError::new(format!("`{text}` is no path"), proposals::for_try(text)));
    }
    placeholders::are_closed(Kind::Try, text)?;
    if text.split('/').any(|part| part == "..") || text.contains('\0') {
        return Err(ValueError::new(
            format!("`{text}` leads out of the root"),
            "write the path without `..`",
        ));
    }
    Ok(Try::Path(text.to_owned()))
}

/// Reads the address of a redirect.
pub(super) fn target(text: &str) -> Result<String, ValueError> {
    let is_absolute = ["http://", "https://", "{scheme}://"].iter().any(|start| text.starts_with(start));
    if !is_absolute && !text.starts_with('/') && !text.starts_with("{uri}") {
        // What a client sends can be no host.
        let help = proposals::for_target(text);
        return Err(ValueError::new(format!("`{text}` is no address to redirect to"), help));
    }
    if text.starts_with("//") {
        return Err(ValueError::new(
            format!("`{text}` names a host without its scheme"),
            format!("write `\"https:{text}\"`"),
        ));
    }
    if let Some(character) = text
        .chars()
        .find(|character| !matches!(character, '!'..='~') || matches!(character, '"' | '<' | '>' | '\\'))
    {
        let shown = character.escape_default();
        return Err(ValueError::new(
            format!("the address holds `{shown}`"),
            "write it as a percent escape: a space is `%20`",
        ));
    }
    placeholders::are_closed(Kind::Target, text)?;
    only_names_its_host(text)?;
    Ok(text.to_owned())
}

/// What a client sends may be any part of an address but its host: `https://example.com{1}` would be
/// `https://example.com.evil.test` for whoever asks so.
fn only_names_its_host(text: &str) -> Result<(), ValueError> {
    let Some((_, behind)) = text.split_once("://") else { return Ok(()) };
    let ends = ["/", "?", "#", "{path}", "{uri}", "{query}"];
    let end = ends.iter().filter_map(|end| behind.find(end)).min().unwrap_or(behind.len());
    let host = behind[..end].replace("{host}", "");
    let Some((name, _)) = host.split_once('{').and_then(|(_, inside)| inside.split_once('}')) else {
        return Ok(());
    };
    let is_slip = !name.contains('.')
        && placeholders::nearest(Kind::Target, name, &[]).is_some_and(|near| near != name);
    if is_slip || super::variables::meant_by_name(name, Kind::Target.placeholders()).is_some() {
        return Err(placeholders::unknown(Kind::Target, name, &[]));
    }
    Err(ValueError::new(
        format!("`{{{name}}}` would be a part of the host name, which the client would choose"),
        "put a `/` in front of it, or write the host name as it is",
    ))
}

/// How a route is had that only the server comes to.
const NOT_FOR_CLIENTS: &str = "give the route a path, and write `internal` in it where no client is to ask for that: `route \"/app\" { internal; … }`";

/// Reads the path that a request is for in place of its own, with a query perhaps.
pub(super) fn rewrite(text: &str) -> Result<String, ValueError> {
    if text.starts_with('@') {
        return Err(ValueError::new(
            format!("`{text}` is the name of a route, and no path of the site"),
            format!(
                "what leads to a name is `try`: write `try \"{text}\"`, or `try \"{{path}}\" \"{text}\"` where files come first; for any \
                 other way {NOT_FOR_CLIENTS}"
            ),
        ));
    }
    if text.starts_with('^') {
        return Err(ValueError::new(
            format!("`{text}` is a regular expression, and here stands the path that is asked for"),
            "the route says which paths are meant: `route \"/a/*\" { hand-to \"/b/{1}\" }` is `rewrite ^/a/(.*)$ /b/$1 last` of \
             nginx (`tidegate docs from-nginx`)",
        ));
    }
    if !text.starts_with('/') && !text.starts_with("{path}") {
        return Err(ValueError::new(
            format!("`{text}` is no path of the site"),
            format!(
                "write a path, `\"/{}\"`; another host is for `redirect` or `proxy`",
                text.trim_start_matches('/')
            ),
        ));
    }
    let path = text.split('?').next().unwrap_or_default();
    if path.contains("//") || path.split('/').any(|part| part == "." || part == "..") {
        return Err(ValueError::new(
            format!("the path `{path}` is none that a request can have"),
            "write it without `.`, `..` and doubled `/`",
        ));
    }
    if path.contains('*') {
        return Err(ValueError::new(
            format!("`{path}` is a pattern, and this is the one path that is asked for"),
            format!(
                "write `\"{}\"`, where `{{1}}` is what the first star of the route stands for; a star itself is `%2A`",
                path.replacen('*', "{1}", 1)
            ),
        ));
    }
    let is_refused = |character: &char| {
        !matches!(character, '!'..='~') || matches!(character, '"' | '<' | '>' | '\\' | '#')
    };
    if let Some(character) = text.chars().find(is_refused) {
        return Err(ValueError::new(
            format!("the path holds `{}`", character.escape_default()),
            "write it as a percent escape: a space is `%20`",
        ));
    }
    placeholders::are_closed(Kind::Rewrite, text)?;
    Ok(text.to_owned())
}

fn has_escape(text: &str) -> bool {
    text.as_bytes()
        .windows(3)
        .any(|bytes| bytes[0] == b'%' && bytes[1].is_ascii_hexdigit() && bytes[2].is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let pieces =
            |parts: &[&str]| Some(PathPattern::Pieces(parts.iter().map(|part| (*part).to_owned()).collect()));
        for (text, expected) in [
            ("/.perf", Some(PathPattern::Exact("/.perf".to_owned()))),
            ("/static/*", Some(PathPattern::Prefix("/static/".to_owned()))),
            ("*.php", Some(PathPattern::Suffix(".php".to_owned()))),
            ("*", Some(PathPattern::Prefix(String::new()))),
            ("**", Some(PathPattern::Prefix(String::new()))),
            ("/a/**", Some(PathPattern::Prefix("/a/".to_owned()))),
            ("/a/*/b", pieces(&["/a/", "/b"])),
            ("*x*", pieces(&["", "x", ""])),
            ("/a**b**c", pieces(&["/a", "b", "c"])),
            ("static/*", None),
            ("~ \\.php$", None),
            ("/a%20b", None),
            ("/a/../b", None),
            ("/a//b", None),
            ("/a?b", None),
            ("", None),
        ] {
            assert_eq!(pattern(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn an_earlier_pattern_covers_a_later_one() {
        for (earlier, later, expected) in [
            ("/*", "/a/*", true),
            ("/*", "*.php", true),
            ("*", "/*", true),
            ("/*", "*", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/*", true),
            ("/a/*", "/a", false),
            ("*.php", "/admin/*.php", true),
            ("*.php", "/admin/*", false),
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/*", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/c", false),
            ("/a/*/c", "/a/*/b/c", true),
            ("*x*", "/a*x*", true),
            ("/a/*b", "/a/*", false),
            ("/ab*ba", "/aba", false),
        ] {
            let (earlier_pattern, later_pattern) = (pattern(earlier).unwrap(), pattern(later).unwrap());
            assert_eq!(covers(&earlier_pattern, &later_pattern), expected, "{earlier} {later}");
        }
    }

    #[test]
    fn paths_and_targets() {
        assert_eq!(file("./a/./b", Path::new("/base")), Ok("/base/a/b".into()));
        assert_eq!(file("/x", Path::new("/base")), Ok("/x".into()));
        assert!(file("~/x", Path::new("/")).is_err());
        for text in ["{path}", "{path}.html", "/index.html", "=404"] {
            assert!(try_entry(text).is_ok(), "{text}");
        }
        for text in ["$uri", "index.html", "=200", "=4040", "/../x", "{path"] {
            assert!(try_entry(text).is_err(), "{text}");
        }
        for text in ["/new/{path}", "https://{host}{uri}", "http://a/?{query}", "{scheme}://www.{host}{uri}"]
        {
            assert!(target(text).is_ok(), "{text}");
        }
        for text in [
            "new",
            "//evil",
            "/a b",
            "/a\r\nb",
            "/{",
            "javascript:x",
            "https://a{1}",
            "https://a{1}.b/",
            "https://{header.x}/",
            "https://a{cookie.b}{path}",
        ] {
            assert!(target(text).is_err(), "{text}");
        }
        for text in ["https://a/{1}", "https://{host}/x{1}", "https://{host}{uri}", "https://a{path}?{1}"] {
            assert!(target(text).is_ok(), "{text}");
        }
        for text in ["/users/{id}", "/index.php?p={1}{query}", "/a%20b", "{path}.html"] {
            assert!(rewrite(text).is_ok(), "{text}");
        }
        for text in ["users", "//x", "/a/../b", "/a b", "https://x/", "/{", "/a#b"] {
            assert!(rewrite(text).is_err(), "{text}");
        }
    }
}
