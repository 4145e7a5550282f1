//! Placeholders as they are written: `{path}`, `{header.User-Agent}`, `{cookie.ab:-a}`, `{1}`.
//!
//! A word in curly brackets is a placeholder, known or a mistake; anything else in them is text, so that JSON may stand in a
//! field. A word that is meant as it is stands in two of them, `{{word}}`.
//!
//! What each of them stands for is filled in by `core/template.rs`. Here are the names that are known everywhere; those of
//! stars, groups and `value` are known to `lower/placeholders.rs`.

use super::ValueError;
use crate::directive::Kind;

/// Those of redirects.
const IN_REDIRECTS: &[&str] = &["path", "query", "host", "uri", "scheme"];
/// Those of paths within a site.
const IN_REWRITES: &[&str] = &["path", "query"];
/// Those of fields.
const IN_FIELDS: &[&str] = &[
    "client",
    "client.name",
    "country",
    "groups",
    "host",
    "method",
    "path",
    "query",
    "request-id",
    "scheme",
    "trace-id",
    "uri",
    "user",
];
/// What the names begin with that say more of a request.
const FAMILIES: [&str; 3] = ["header.", "cookie.", "query."];

impl Kind {
    /// The placeholders that have a meaning in every value of this type.
    pub fn placeholders(self) -> &'static [&'static str] {
        match self {
            Kind::Target => IN_REDIRECTS,
            Kind::Rewrite => IN_REWRITES,
            Kind::FieldTemplate => IN_FIELDS,
            Kind::Try => &["path"],
            _ => &[],
        }
    }
}

/// The placeholders that are known in a value of this type, as one writes them; `more` are those of the place.
pub(crate) fn known(kind: Kind, more: &[String]) -> String {
    let families: &[&str] =
        if matches!(kind, Kind::Try) { &[] } else { &["header.NAME", "cookie.NAME", "query.NAME"] };
    let all = kind.placeholders().iter().copied().chain(more.iter().map(String::as_str));
    let all: Vec<String> = all.chain(families.iter().copied()).map(|name| format!("`{{{name}}}`")).collect();
    all.join(", ")
}

/// The word in double brackets that a text begins with, `word` of `{{word}}`: it is the text `{word}`, and no placeholder.
pub fn literal_word(text: &str) -> Option<&str> {
    let (inside, _) = text.strip_prefix("{{")?.split_once("}}")?;
    is_word(inside.split_once(":-").map_or(inside, |(name, _)| name)).then_some(inside)
}

/// Whether a text in curly brackets is the name of a placeholder or a slip of one.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// What stands in curly brackets, but for the text behind a `:-`.
fn inside(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = rest.get(rest.find('{')?..)?;
            if let Some(word) = literal_word(rest) {
                rest = rest.get(word.len() + 4..)?;
                continue;
            }
            rest = rest.get(1..)?;
            let (inside, _) = rest.split_once('}')?;
            return Some(inside.split_once(":-").map_or(inside, |(name, _)| name));
        }
    })
}

/// Whether a text with placeholders asks who has logged in.
pub(crate) fn asks_for_user(text: &str) -> bool {
    inside(text).any(|name| matches!(name, "user" | "groups"))
}

/// The first `value` that a text asks for.
pub(crate) fn asks_for_value(text: &str) -> Option<&str> {
    inside(text).find(|name| name.starts_with("value."))
}

/// The first placeholder of a text that is one of those that are looked for.
pub(crate) fn asks_for(text: &str, is_one: impl Fn(&str) -> bool) -> Option<&str> {
    inside(text).find(|name| is_one(name))
}

/// Whether it is the same text for every request.
pub(crate) fn is_constant(text: &str) -> bool {
    !inside(text).any(|name| is_word(name) || name.starts_with("value."))
}

/// The placeholders of a text whose meaning depends on where it stands: those of routes and of `value`, and slips.
pub(crate) fn names(kind: Kind, text: &str) -> Vec<String> {
    if kind.placeholders().is_empty() {
        return Vec::new();
    }
    let is_strict = !matches!(kind, Kind::FieldTemplate);
    let is_known = |name: &str| {
        kind.placeholders().contains(&name)
            || kind != Kind::Try
                && FAMILIES.iter().any(|family| name.len() > family.len() && name.starts_with(family))
    };
    // JSON in a field is what it is.
    let is_meant = |name: &str| is_strict || is_word(name) || name.starts_with("value.");
    inside(text).filter(|name| !is_known(name) && is_meant(name)).map(str::to_owned).collect()
}

/// Checks that every curly bracket of a text belongs to a placeholder.
pub(super) fn are_closed(kind: Kind, text: &str) -> Result<(), ValueError> {
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let behind = &rest[at..];
        let Some((inside, _)) = behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) else {
            return Err(ValueError::new(
                format!("a curly bracket of `{text}` has no partner"),
                format!("known are {}", known(kind, &[])),
            ));
        };
        rest = &behind[inside.len() + 2..];
    }
    Ok(())
}

/// What is said of a placeholder that is not known; `more` are those of the place.
pub(crate) fn unknown(kind: Kind, name: &str, more: &[String]) -> ValueError {
    let message = format!("`{{{name}}}` is not known here");
    let may_be_text = kind == Kind::FieldTemplate
        && !name.starts_with("value.")
        && !name.bytes().all(|byte| byte.is_ascii_digit())
        && is_word(name);
    let literal = if may_be_text { format!("; as a text it is `{{{{{name}}}}}`") } else { String::new() };
    let known = format!("known are {}{literal}", known(kind, more));
    if let Some((whose, meant)) =
        super::variables::meant_by_name(name, kind.placeholders()).filter(|_| kind != Kind::Try)
    {
        return ValueError::new(message, format!("{whose} is `{{{meant}}}`; {known}"));
    }
    let of_path = (kind == Kind::Try && super::variables::is_path(name))
        .then(|| "the path of the request is `{path}` here; ".to_owned());
    let near = || nearest(kind, name, more).map(|near| format!("did you mean `{{{near}}}`? "));
    let near = of_path.or_else(near);
    ValueError::new(message, near.unwrap_or_default() + &known)
}

/// The placeholder that a name is a slip of.
pub(super) fn nearest<'a>(kind: Kind, name: &str, more: &'a [String]) -> Option<&'a str> {
    crate::suggest::nearest(name, kind.placeholders().iter().copied().chain(more.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_brackets_are_placeholders_and_all_else_is_text() {
        for (text, unknown) in [
            ("{client} {header.X-Key} {cookie.a_b:-none} {query.Q}", vec![]),
            ("{remote_addr}", vec!["remote_addr"]),
            ("{client}-{foo_bar:-x}", vec!["foo_bar"]),
            ("{request.X-Key}", vec!["request.X-Key"]),
            ("{Client}", vec!["Client"]),
            ("{clientip} {a.b}", vec!["clientip", "a.b"]),
            ("{header.}", vec!["header."]),
            ("{{remote_addr}} {{x}}{y}", vec!["y"]),
            ("{{client}}", vec![]),
            (r#"{"group":"a","max_age":{"b":1},"c":{}}"#, vec![]),
            (r#"{"ip":"{remote_ip}"}"#, vec!["remote_ip"]),
            ("{ a: b } {a b} {} { {", vec![]),
        ] {
            let names = names(Kind::FieldTemplate, text);
            // What is known in the bracket around is no name, and neither is JSON.
            assert_eq!(names, unknown, "{text}");
        }
        assert!(asks_for_user("x{user:-nobody}") && !asks_for_user("{{user}}"));
        assert!(is_constant("all") && is_constant("{{client}}") && is_constant("{}"));
        assert!(!is_constant("{client}") && !is_constant("{value.a}"));
    }

    #[test]
    fn names_of_other_servers_are_told_ours() {
        for (name, help) in [
            ("remote_addr", "`{remote_addr}` of nginx is `{client}`"),
            ("binary_remote_addr", "`{binary_remote_addr}` of nginx is `{client}`"),
            ("http_x_forwarded_for", "`{http_x_forwarded_for}` of nginx is `{header.x-forwarded-for}`"),
            ("cookie_sid", "`{cookie_sid}` of nginx is `{cookie.sid}`"),
            ("arg_page", "`{arg_page}` of nginx is `{query.page}`"),
            ("request.X-Key", "`{request.X-Key}` of a log is `{header.X-Key}`"),
            ("http.request.header.X-Key", "`{http.request.header.X-Key}` of Caddy is `{header.X-Key}`"),
            ("remote_host", "`{remote_host}` of other servers is `{client}`"),
            ("client_ip", "`{client_ip}` of other servers is `{client}`"),
            ("Client", "`{Client}` in small letters is `{client}`"),
            ("target", "`{target}` of a log is `{uri}`"),
            ("clinet", "did you mean `{client}`?"),
            ("foo_bar", "known are `{client}`"),
            ("document_root", "known are `{client}`"),
        ] {
            let error = unknown(Kind::FieldTemplate, name, &[]);
            assert!(error.help.starts_with(help), "{name}: {}", error.help);
            assert!(error.help.ends_with(&format!("as a text it is `{{{{{name}}}}}`")), "{}", error.help);
        }
    }
}
