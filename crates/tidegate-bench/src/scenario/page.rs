//! An answer as a user reads it: cookies, values that are taken, resources of the page, and whether it is what was expected.
//! Pure: bytes and the step in, findings out.

use super::data::DataSet;
use super::html::{self, Found};
use super::template::{Encoding, Template, is_of_target, percent_encode};
use super::user::User;
use super::{Expect, Pick, Step, Take, TakeFrom};
use crate::response::LIMITS;
use crate::target::Url;
use serde_json::Value;
use std::collections::HashSet;
use tidegate_wire::h1::{FieldSpace, parse_response};

/// Resources of one page that are loaded at most.
const ASSETS: usize = 500;

/// The head of an answer, as far as users look at it.
#[derive(Default)]
pub(super) struct Head {
    pub status: u16,
    /// Where a redirect leads to.
    pub location: Option<Vec<u8>>,
    /// The field line of a request that asks whether this answer has changed.
    pub validator: Option<Box<[u8]>>,
    /// Values of `Set-Cookie`.
    pub cookies: Vec<Vec<u8>>,
}

/// Reads a head that the parser has taken before.
pub(super) fn head(bytes: &[u8], method: &str) -> Head {
    let mut found = Head::default();
    let mut space = FieldSpace::new();
    let Ok(Some(head)) = parse_response(bytes, &LIMITS, &mut space, method) else { return found };
    found.status = head.status;
    let mut modified = None;
    for field in head.fields {
        if field.is("set-cookie") {
            found.cookies.push(field.value.to_vec());
        } else if field.is("location") {
            found.location = Some(field.value.to_vec());
        } else if field.is("etag") {
            found.validator = Some([b"If-None-Match: ", field.value, b"\r\n"].concat().into());
        } else if field.is("last-modified") {
            modified = Some([b"If-Modified-Since: ", field.value, b"\r\n"].concat().into());
        }
    }
    found.validator = found.validator.or(modified);
    found
}

/// The values of a field, in order.
fn field_values(bytes: &[u8], method: &str, name: &str) -> Vec<Vec<u8>> {
    let mut space = FieldSpace::new();
    let Ok(Some(head)) = parse_response(bytes, &LIMITS, &mut space, method) else { return Vec::new() };
    let values = head.fields.iter().filter(|field| field.is(name));
    values.map(|field| field.value.to_vec()).collect()
}

/// All fields, for a script, whose values are text: names in small letters, each with its value, those of a name with `, ` between them.
pub(super) fn fields(bytes: &[u8], method: &str) -> Vec<(String, String)> {
    let mut space = FieldSpace::new();
    let Ok(Some(head)) = parse_response(bytes, &LIMITS, &mut space, method) else { return Vec::new() };
    let mut all: Vec<(String, String)> = Vec::new();
    for field in head.fields {
        let name = field.name.to_ascii_lowercase();
        let value = String::from_utf8_lossy(field.value);
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => {
                values.push_str(", ");
                values.push_str(&value);
            }
            None => all.push((name, value.into_owned())),
        }
    }
    all
}

/// What is not as expected, in words.
pub(super) fn objection(
    expect: &Expect,
    status: u16,
    head: &[u8],
    body: &[u8],
    method: &str,
    user: &User,
    data: &[DataSet],
) -> Option<String> {
    if status == 304 && expect.statuses.is_empty() {
        return Some(
            "the status is 304, and the request did not ask whether anything had changed".to_owned(),
        );
    }
    if !expect.allows_status(status) {
        return Some(format!("the status is {status}"));
    }
    let filled = |template: &Template, encoding| {
        let mut out = Vec::new();
        let written = template.write(&mut out, encoding, |variable| user.value(data, variable));
        written.ok().map(|()| out)
    };
    for (name, due) in &expect.fields {
        let Some(due) = filled(due, Encoding::Field) else {
            return Some(format!("`{name}`: a variable in it holds nothing"));
        };
        let has = field_values(head, method, name).iter().any(|value| contains(value, &due));
        if !has {
            return Some(format!("no field `{name}` has `{}` in it", String::from_utf8_lossy(&due)));
        }
    }
    for due in &expect.contains {
        let Some(due) = filled(due, Encoding::Raw) else {
            return Some("`contains`: a variable in it holds nothing".to_owned());
        };
        if !contains(body, &due) {
            return Some(format!("the body does not contain `{}`", String::from_utf8_lossy(&due)));
        }
    }
    None
}

fn contains(text: &[u8], due: &[u8]) -> bool {
    memchr::memmem::find(text, due).is_some()
}

/// What a step finds in a page.
#[derive(Default)]
pub(super) struct Findings {
    /// Variables and what they hold from now on.
    pub values: Vec<(u16, Vec<u8>)>,
    /// Paths of resources, each once.
    pub assets: Vec<String>,
    /// How many elements there are, for each that the step counts.
    pub counts: Vec<u64>,
    /// The variable that nothing was found for.
    pub missing: Option<u16>,
}

/// Reads a page at `path`. `pick` chooses a number below the one that it is given.
pub(super) fn read(
    step: &Step,
    target: &Url,
    path: &str,
    head: &[u8],
    body: &[u8],
    pick: &mut dyn FnMut(usize) -> usize,
) -> Findings {
    let mut findings = Findings::default();
    let mut wishes = Vec::new();
    let mut wished: Vec<usize> = Vec::new();
    for (number, take) in step.takes.iter().enumerate() {
        if let TakeFrom::Css(selector, attribute) = &take.from {
            wishes.push((selector, attribute.as_str()));
            wished.push(number);
        }
    }
    let taken = wishes.len();
    wishes.extend(step.counts.iter().map(|counted| (&counted.selector, html::NOTHING)));
    let mut found: Vec<Vec<Vec<u8>>> = vec![Vec::new(); step.takes.len()];
    if !wishes.is_empty() || step.assets {
        let mut known = HashSet::new();
        let mut base = Base::Here(path.to_owned());
        let (all, counts) = html::search(body, &wishes, step.assets);
        findings.counts.extend(counts.into_iter().skip(taken));
        for one in all {
            match one {
                Found::Value(wish, value) => {
                    let is_link =
                        wishes.get(wish).is_some_and(|(_, name)| matches!(*name, "href" | "src" | "action"));
                    let link = || base.resolve(target, &value).map(String::into_bytes);
                    let value = if is_link { link() } else { Some(value) };
                    if let (Some(place), Some(value)) =
                        (wished.get(wish).and_then(|at| found.get_mut(*at)), value)
                    {
                        place.push(value);
                    }
                }
                Found::Base(link) => base = base.resolve(target, &link).map_or(Base::Elsewhere, Base::Here),
                Found::Asset(link) => {
                    let resolved = base.resolve(target, &link).filter(|_| findings.assets.len() < ASSETS);
                    findings.assets.extend(resolved.filter(|path| known.insert(path.clone())));
                }
            }
        }
    }
    for (take, values) in step.takes.iter().zip(&mut found) {
        others(take, head, body, &step.method, values);
        let number = match take.pick {
            Pick::First => 0,
            Pick::Last => values.len().saturating_sub(1),
            Pick::Random => pick(values.len().max(1)),
        };
        match values.get(number) {
            Some(value) => findings.values.push((take.variable, value.clone())),
            None if take.is_optional => {}
            None => findings.missing = findings.missing.or(Some(take.variable)),
        }
    }
    findings
}

/// What the links of a page are relative to.
enum Base {
    /// A path of the target.
    Here(String),
    /// Another site.
    Elsewhere,
}

impl Base {
    /// As [`resolve`].
    fn resolve(&self, target: &Url, link: &[u8]) -> Option<String> {
        match self {
            Base::Here(path) => resolve(target, path, link),
            // Nothing but what names its site leads back.
            Base::Elsewhere => {
                let names_its_site = [&b"//"[..], b"http:", b"https:"]
                    .iter()
                    .any(|start| link.trim_ascii().starts_with(start));
                resolve(target, "/", link).filter(|_| names_its_site)
            }
        }
    }
}

/// Values that are found otherwise than by a selector.
fn others(take: &Take, head: &[u8], body: &[u8], method: &str, values: &mut Vec<Vec<u8>>) {
    match &take.from {
        TakeFrom::Css(..) => {}
        TakeFrom::Regex(regex) => {
            values.extend(regex.captures_iter(body).take(1_000).filter_map(|captures| {
                let found = captures.get(1).or_else(|| captures.get(0))?;
                Some(found.as_bytes().to_vec())
            }))
        }
        TakeFrom::Json(pointer) => {
            let document: Option<Value> = serde_json::from_slice(body).ok();
            match document.as_ref().and_then(|document| document.pointer(pointer)) {
                None | Some(Value::Null) => {}
                // Of a list any, which `pick` chooses.
                Some(Value::Array(list)) => values.extend(list.iter().map(as_text)),
                Some(value) => values.push(as_text(value)),
            }
        }
        TakeFrom::Header(name) => values.extend(field_values(head, method, name)),
    }
}

fn as_text(value: &Value) -> Vec<u8> {
    if let Value::String(text) = value { text.clone() } else { value.to_string() }.into_bytes()
}

/// Path and query that a link on the page at `path` leads to (RFC 3986 section 5), as they can be sent; `None` where that is no
/// path of the target.
pub(super) fn resolve(target: &Url, path: &str, link: &[u8]) -> Option<String> {
    let link = sendable(link.trim_ascii().split(|byte| *byte == b'#').next().unwrap_or_default());
    let link = link.as_str();
    let scheme = if target.is_tls { "https:" } else { "http:" };
    let link = link.strip_prefix(scheme).filter(|rest| rest.starts_with("//")).unwrap_or(link);
    if let Some(rest) = link.strip_prefix("//") {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let is_ours = authority.eq_ignore_ascii_case(&target.authority);
        return is_ours.then(|| if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") });
    }
    let has_scheme = link.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
    if has_scheme {
        return None;
    }
    let (page, _) = path.split_once('?').unwrap_or((path, ""));
    if link.is_empty() {
        return Some(path.to_owned());
    }
    if link.starts_with('/') {
        return Some(link.to_owned());
    }
    if link.starts_with('?') {
        return Some(format!("{page}{link}"));
    }
    let (link_path, query) = link.split_at(link.find('?').unwrap_or(link.len()));
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut segments: Vec<&str> = folder.split('/').filter(|segment| !segment.is_empty()).collect();
    let mut parts = link_path.split('/').peekable();
    while let Some(part) = parts.next() {
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                if parts.peek().is_none() {
                    segments.push("");
                }
            }
            part => segments.push(part),
        }
    }
    Some(format!("/{}{query}", segments.join("/")))
}

/// A link as browsers send it: line ends and tabs are left out, what cannot stand in a request target is percent-encoded, and what
/// is encoded already stays so. Bytes that are no UTF-8 are encoded as they are, as browsers do with those of a `Location`.
fn sendable(link: &[u8]) -> String {
    let mut out = Vec::with_capacity(link.len());
    for part in link.split(|byte| b"\t\r\n".contains(byte)) {
        percent_encode(&mut out, part, |byte| is_of_target(byte) && !b"\\^`{|}".contains(&byte));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_as_browsers_do() {
        let target = Url::parse("http://shop.test:8080/").unwrap();
        let table = [
            ("/a/b?x", "/c", Some("/c")),
            ("/a/b?x", "c?y#z", Some("/a/c?y")),
            ("/a/b/", "../c", Some("/a/c")),
            ("/a/b/", "./", Some("/a/b/")),
            ("/a", "../../c", Some("/c")),
            ("/a?x", "?y", Some("/a?y")),
            ("/a?x", "#top", Some("/a?x")),
            ("/a", "http://shop.test:8080/c", Some("/c")),
            ("/a", "//shop.test:8080?c", Some("/?c")),
            ("/a", "https://shop.test:8080/c", None),
            ("/a", "http://other.test/c", None),
            ("/a", "mailto:a@b", None),
            ("/a", "data:image/png;base64,xx", None),
            ("/a", "\n/b c/%20\n?q=ä&r=\"{}#d e ", Some("/b%20c/%20?q=%C3%A4&r=%22%7B%7D")),
            ("/a/b", "ö\tü", Some("/a/%C3%B6%C3%BC")),
        ];
        for (path, link, expected) in table {
            assert_eq!(resolve(&target, path, link.as_bytes()).as_deref(), expected, "{path} {link}");
        }
        assert_eq!(resolve(&target, "/a/b", b"\xe9?\xff").as_deref(), Some("/a/%E9?%FF"));
    }

    #[test]
    fn links_are_relative_to_the_base_of_the_page() {
        let text = "target \"http://shop.test\"\nusers 1 { steady \"1s\" }\nthink fixed \"1s\"
            flow { get \"/a/b\" { assets; take link css=\"a\" attribute=\"href\" } }";
        let loaded = crate::scenario::load_text(
            "test",
            text,
            std::path::Path::new("."),
            &std::collections::BTreeMap::new(),
        );
        let scenario = loaded.scenario.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let table = [
            ("", "/a/i.png", Some("/a/next")),
            (
                "<base target=_top><base href=\"/static/\"><base href=\"/no/\">",
                "/static/i.png",
                Some("/static/next"),
            ),
            ("<base href=\"v2/\">", "/a/v2/i.png", Some("/a/v2/next")),
            ("<base href=\"http://shop.test/x/y\">", "/x/i.png", Some("/x/next")),
            ("<base href=\"//cdn.test/x/\">", "/own.png", None),
        ];
        for (base, asset, link) in table {
            let page = format!(
                "{base}<img src=i.png><img src=\"http://shop.test/own.png\"><img src=\"/\"><a href=next>"
            );
            let step = &scenario.operations[0].steps[0];
            let found = read(step, &scenario.target, "/a/b", b"", page.as_bytes(), &mut |_| 0);
            assert_eq!(found.assets.first().map(String::as_str), Some(asset), "{base}");
            let value = found.values.first().map(|(_, value)| str::from_utf8(value).unwrap());
            assert_eq!(value, link, "{base}");
        }
    }

    #[test]
    fn a_redirect_that_is_expected_is_not_followed() {
        let table = [
            ("200", true),
            ("2xx", true),
            ("302", false),
            ("308", false),
            ("200|307", false),
            ("3xx", false),
        ];
        for (statuses, follows) in table {
            let expect = Expect { statuses: Expect::statuses(statuses).unwrap(), ..Expect::default() };
            assert_eq!(expect.follows(), follows, "{statuses}");
        }
        assert!(Expect::default().follows());
    }

    #[test]
    fn heads_say_what_users_need() {
        let bytes = b"HTTP/1.1 302 Found\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nLocation: /x\r\nLast-Modified: yesterday\r\n\
            ETag: \"e\"\r\nContent-Length: 0\r\n\r\n";
        let head = head(bytes, "GET");
        assert_eq!((head.status, head.location.as_deref(), head.cookies.len()), (302, Some(&b"/x"[..]), 2));
        assert_eq!(head.validator.as_deref(), Some(&b"If-None-Match: \"e\"\r\n"[..]));
        assert_eq!(field_values(bytes, "GET", "set-cookie"), [b"a=1", b"b=2"]);
    }
}
