//! Placeholders as they are written: `{path}`, `{header.User-Agent}`, `{cookie.ab:-a}`, `{1}`.
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

/// Whether a text with placeholders asks who has logged in.
pub(crate) fn asks_for_user(text: &str) -> bool {
    let mut inside = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    inside.any(|(inside, _)| {
        matches!(inside.split_once(":-").map_or(inside, |(name, _)| name), "user" | "groups")
    })
}

/// The first `value` that a text asks for.
pub(crate) fn asks_for_value(text: &str) -> Option<&str> {
    let mut inside = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    inside.find_map(|(name, _)| name.starts_with("value.").then_some(name))
}

/// The placeholders of a text whose meaning depends on where it stands: those of routes and of `value`, and slips.
pub(crate) fn names(kind: Kind, text: &str) -> Vec<String> {
    if kind.placeholders().is_empty() {
        return Vec::new();
    }
    let is_strict = !matches!(kind, Kind::FieldTemplate);
    let mut names = Vec::new();
    for (at, _) in text.match_indices('{') {
        let Some((inside, _)) = text[at + 1..].split_once('}') else { break };
        let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
        let is_known = kind.placeholders().contains(&name)
            || kind != Kind::Try
                && FAMILIES.iter().any(|family| name.len() > family.len() && name.starts_with(family));
        // JSON in a field is what it is.
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
            || name.starts_with("value.");
        if !is_known && (is_strict || is_name) {
            names.push(name.to_owned());
        }
    }
    names
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
    let near = nearest(kind, name, more);
    let near = near.map(|near| format!("did you mean `{{{near}}}`? ")).unwrap_or_default();
    let help = format!("{near}known are {}", known(kind, more));
    ValueError::new(format!("`{{{name}}}` is not known here"), help)
}

/// The placeholder that a name is a slip of.
pub(super) fn nearest<'a>(kind: Kind, name: &str, more: &'a [String]) -> Option<&'a str> {
    crate::suggest::nearest(name, kind.placeholders().iter().copied().chain(more.iter().map(String::as_str)))
}
