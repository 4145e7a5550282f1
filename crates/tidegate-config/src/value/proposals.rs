//! What is proposed for an address of `redirect` and an entry of `try` that begin as none may: with a placeholder, most often one
//! of another server.
//!
//! A proposal has to load: each is read as the value would be, and where none can be read, what is known is named.

use super::{paths, placeholders, variables};
use crate::directive::Kind;

/// What to write in place of an entry of `try` that begins with neither `/` nor `{path}`.
pub(super) fn for_try(text: &str) -> String {
    if let Some((name, behind)) = first_name(text).filter(|(name, _)| variables::is_path(name)) {
        let is = format!("`{{{name}}}`: the path of the request is `{{path}}` here");
        let meant = format!("{{path}}{behind}");
        return match loads(Kind::Try, &meant) {
            true => format!("{is}, write `\"{meant}\"`"),
            false => is,
        };
    }
    let rooted = format!("/{text}");
    match loads(Kind::Try, &rooted) {
        true => format!("begin with `/` or `{{path}}`: `\"{rooted}\"`"),
        false => "begin with `/`, or with `{path}`, which is the path of the request".into(),
    }
}

/// What to write in place of an address of `redirect` that is neither a path nor a URL.
pub(super) fn for_target(text: &str) -> String {
    if !text.starts_with('{') {
        let (path, url) = (format!("/{text}"), format!("https://{text}"));
        return match (loads(Kind::Target, &path), loads(Kind::Target, &url)) {
            (true, true) => format!("write a path, `\"{path}\"`, or a URL, `\"{url}\"`"),
            (true, false) => format!("write a path, `\"{path}\"`"),
            (false, true) => format!("write a URL, `\"{url}\"`"),
            (false, false) => {
                "write a path, which begins with `/`, or a URL, which begins with `https://`".into()
            }
        };
    }
    let ours = in_our_names(text);
    let meant = match () {
        () if ["{uri}", "{scheme}://"].iter().any(|start| ours.starts_with(start)) => ours.clone(),
        () if ours.starts_with("{host}") => format!("https://{ours}"),
        () => format!("/{ours}"),
    };
    if !loads(Kind::Target, &meant) {
        let unknown = placeholders::names(Kind::Target, &ours).into_iter().next();
        return unknown.map_or_else(
            || "write a path, which begins with `/`, or a URL, which begins with `https://`".into(),
            |name| {
                let known = placeholders::unknown(Kind::Target, &name, &[]).help;
                format!(
                    "write a path, which begins with `/`, or a URL, which begins with `https://`; {known}"
                )
            },
        );
    }
    let whose = first_name(text).filter(|_| ours != text).and_then(|(name, _)| {
        let (whose, ours) = variables::meant_by_name(name, Kind::Target.placeholders())?;
        (name != ours).then(|| format!("{whose} is `{{{ours}}}` here: "))
    });
    let url = format!("https://example.com/{ours}");
    let of_url = match whose.is_none() && meant.starts_with("/{") && !meant.starts_with("/{path}") {
        true => format!("; the host of a URL is written as it is, `\"{url}\"`"),
        false => String::new(),
    };
    format!("{}write `\"{meant}\"`{of_url}", whose.unwrap_or_default())
}

/// A text with the placeholders of other servers under the names that they have here.
fn in_our_names(text: &str) -> String {
    let (mut ours, mut rest) = (String::new(), text);
    while let Some((before, name, behind)) = next_name(rest) {
        let is_known = Kind::Target.placeholders().contains(&name);
        let meant = variables::meant_by_name(name, Kind::Target.placeholders()).filter(|_| !is_known);
        let meant = meant.map_or_else(|| name.to_owned(), |(_, meant)| meant);
        ours.push_str(&format!("{before}{{{meant}}}"));
        rest = behind;
    }
    ours + rest
}

/// The name that a text begins with, and what stands behind it.
fn first_name(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('{')?.split_once('}')
}

/// What stands in front of the first name, that name, and what stands behind it.
fn next_name(text: &str) -> Option<(&str, &str, &str)> {
    let (before, inside) = text.split_once('{')?;
    let (name, behind) = inside.split_once('}')?;
    Some((before, name, behind))
}

/// Whether a text can be read, but for what its route decides: the groups of an expression and results of `value`.
fn loads(kind: Kind, text: &str) -> bool {
    let is_read = match kind {
        Kind::Try => paths::try_entry(text).is_ok(),
        _ => paths::target(text).is_ok(),
    };
    let of_route =
        |name: &String| name.starts_with("value.") || name.bytes().all(|byte| byte.is_ascii_digit());
    is_read && placeholders::names(kind, text).iter().all(of_route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_loads() {
        let known = "known are";
        for (text, expected) in [
            ("{uri}", "`{uri}`: the path of the request is `{path}` here, write `\"{path}\"`"),
            ("{http.request.uri.path}.html", "write `\"{path}.html\"`"),
            ("{request_uri}?{query}", "`{request_uri}`: the path of the request is `{path}` here"),
            ("{1}.html", "begin with `/` or `{path}`: `\"/{1}.html\"`"),
            ("index.html", "begin with `/` or `{path}`: `\"/index.html\"`"),
            ("{foo}", "begin with `/`, or with `{path}`, which is the path of the request"),
        ] {
            let help = paths::try_entry(text).unwrap_err().help;
            assert!(help.ends_with(expected), "{text}: {help}");
            proposed_loads(Kind::Try, &help);
        }
        for (text, expected) in [
            ("{http.request.uri}", "`{http.request.uri}` of Caddy is `{uri}` here: write `\"{uri}\"`"),
            ("{request_uri}", "`{request_uri}` of nginx is `{uri}` here: write `\"{uri}\"`"),
            ("{http.request.uri.path}/", "of Caddy is `{path}` here: write `\"/{path}/\"`"),
            (
                "{http.request.scheme}://{http.request.host}{http.request.uri}",
                "write `\"{scheme}://{host}{uri}\"`",
            ),
            ("{host}{uri}", "write `\"https://{host}{uri}\"`"),
            ("{path}/x", "write `\"/{path}/x\"`"),
            ("{1}", "write `\"/{1}\"`; the host of a URL is written as it is, `\"https://example.com/{1}\"`"),
            ("{foo}", known),
            ("new", "write a path, `\"/new\"`, or a URL, `\"https://new\"`"),
        ] {
            let help = paths::target(text).unwrap_err().help;
            assert!(help.contains(expected), "{text}: {help}");
            proposed_loads(Kind::Target, &help);
        }
    }

    fn proposed_loads(kind: Kind, help: &str) {
        for proposed in help.split("`\"").skip(1).filter_map(|rest| rest.split_once("\"`")) {
            assert!(loads(kind, proposed.0), "{help}");
        }
    }
}
