//! Paths of the file system, paths of a site, and patterns over the path of a request.

use std::path::{Component, Path, PathBuf};

use super::ValueError;
use crate::settings::{LogTarget, PathPattern, Try};

/// Reads a path of the file system; a relative one counts from `folder`. `.` and empty parts are dropped.
pub(super) fn file(text: &str, folder: &Path) -> Result<PathBuf, ValueError> {
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
        path => file(path, folder).map(LogTarget::File),
    }
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
            None => {
                "write a path in which `*` stands for any characters: `\"/shop/*\"`, `\"*.php\"`".to_owned()
            }
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
pub(super) fn pattern(text: &str) -> Result<PathPattern, ValueError> {
    let bad = |why: &str, help: &str| Err(ValueError::new(format!("the pattern `{text}` {why}"), help));
    if text.starts_with('@') {
        return route_name(text).map(PathPattern::Exact);
    }
    if let Some(error) = location_of_nginx(text) {
        return Err(error);
    }
    if !text.starts_with(['/', '*']) {
        return bad(
            "begins with neither `/` nor `*`",
            &format!("write `\"/{text}\"`, or `\"*{text}\"` for any path that ends so"),
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
    pieces(pattern).join("*")
}

/// The literal pieces between the stars.
fn pieces(pattern: &PathPattern) -> Vec<&str> {
    match pattern {
        PathPattern::Exact(text) => vec![text],
        PathPattern::Prefix(text) => vec![text, ""],
        PathPattern::Suffix(text) => vec!["", text],
        PathPattern::Pieces(pieces) => pieces.iter().map(String::as_str).collect(),
    }
}

/// Whether `earlier` matches all that `later` matches. Every path begins with `/`, so `*` covers `/*`, and
/// `/*` covers what begins with a star.
pub(crate) fn covers(earlier: &PathPattern, later: &PathPattern) -> bool {
    if is_name(earlier) || is_name(later) {
        return earlier == later;
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
        return Err(ValueError::new(
            format!("`{text}` is no path of the site"),
            format!("paths of a site begin with `/`: `\"/{text}\"`"),
        ));
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
        return Err(ValueError::new(
            format!("`{text}` is no path"),
            format!("begin with `/` or `{{path}}`: `\"/{text}\"`"),
        ));
    }
    placeholders(text, &["path"])?;
    if text.split('/').any(|part| part == "..") || text.contains('\0') {
        return Err(ValueError::new(
            format!("`{text}` leads out of the root"),
            "write the path without `..`",
        ));
    }
    Ok(Try::Path(text.to_owned()))
}

/// The placeholders of redirects.
pub(super) const IN_REDIRECTS: &[&str] = &["path", "query", "host", "uri", "scheme"];

/// Reads the address of a redirect.
pub(super) fn target(text: &str) -> Result<String, ValueError> {
    let is_absolute = ["http://", "https://", "{scheme}://"].iter().any(|start| text.starts_with(start));
    if !is_absolute && !text.starts_with('/') && !text.starts_with("{uri}") {
        return Err(ValueError::new(
            format!("`{text}` is no address to redirect to"),
            format!("write a path, `\"/{text}\"`, or a URL, `\"https://{text}\"`"),
        ));
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
    placeholders(text, IN_REDIRECTS)?;
    Ok(text.to_owned())
}

/// Checks that every `{name}` is one of those known.
fn placeholders(text: &str, known: &[&str]) -> Result<(), ValueError> {
    let all = known.iter().map(|name| format!("`{{{name}}}`")).collect::<Vec<_>>().join(", ");
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let behind = &rest[at..];
        let name = behind.strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
        let Some(name) = name else {
            return Err(ValueError::new(
                format!("a curly bracket of `{text}` has no partner"),
                format!("known are {all}"),
            ));
        };
        if !known.contains(&name) {
            return Err(unknown_placeholder(name, known));
        }
        rest = &behind[name.len() + 2..];
    }
    Ok(())
}

/// What is said of a placeholder that is not known.
pub(super) fn unknown_placeholder(name: &str, known: &[&str]) -> ValueError {
    let all = known.iter().map(|name| format!("`{{{name}}}`")).collect::<Vec<_>>().join(", ");
    let near = crate::suggest::nearest(name, known.iter().copied());
    let near = near.map(|near| format!("did you mean `{{{near}}}`? ")).unwrap_or_default();
    ValueError::new(format!("`{{{name}}}` is not known here"), format!("{near}known are {all}"))
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
        for text in ["$uri", "index.html", "=200", "=4040", "/../x", "{pth}", "{path"] {
            assert!(try_entry(text).is_err(), "{text}");
        }
        for text in ["/new/{path}", "https://{host}{uri}", "http://a/?{query}", "{scheme}://www.{host}{uri}"]
        {
            assert!(target(text).is_ok(), "{text}");
        }
        for text in ["new", "//evil", "/a b", "/a\r\nb", "/{nope}", "/{", "javascript:x"] {
            assert!(target(text).is_err(), "{text}");
        }
    }
}
