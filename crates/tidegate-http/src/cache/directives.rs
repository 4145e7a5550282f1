//! The directives of a response that count for this cache: those of a targeted field (RFC 9213), else those of
//! `Cache-Control`.
//!
//! Called when a response comes. Targeted fields are structured fields; what is wrong with one has it passed
//! over as a whole.

use std::borrow::Cow;

use sfv::{BareItem, Dictionary, FieldType, List, ListEntry, Parser};

use super::Rules;
use crate::cache_control::{CacheControl, listed_fields};
use crate::decimal::push_decimal;
use crate::field::FieldLines;

/// What a response says of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Directives {
    pub(super) control: CacheControl,
    /// Whether a targeted field says so: `Cache-Control` and `Expires` are then passed over (section 2.2).
    pub(super) is_targeted: bool,
    /// A targeted field is not valid: it is passed over (section 2.1), but nothing is kept by a default that it may have forbidden.
    pub(super) has_invalid_target: bool,
    /// The fields that `no-cache` and `private` list.
    pub(super) listed: Vec<String>,
}

impl Directives {
    /// Reads the first of the targeted fields that is valid and not empty, else `Cache-Control`.
    pub(super) fn of(fields: &FieldLines, rules: &Rules) -> Directives {
        let mut has_invalid_target = false;
        for name in &rules.targets {
            match structured::<Dictionary>(fields, name) {
                Some(members) if members.is_empty() => {}
                Some(members) => return Directives { has_invalid_target, ..Directives::targeted(&members) },
                None => has_invalid_target |= fields.contains(name),
            }
        }
        let control = CacheControl::parse(fields.all("Cache-Control"));
        let mut listed = Vec::new();
        if control.no_cache_fields || control.private_fields {
            listed_fields(fields.all("Cache-Control"), |name| listed.push(name.to_owned()));
        }
        Directives { control, is_targeted: false, has_invalid_target, listed }
    }

    fn targeted(members: &Dictionary) -> Directives {
        let mut directives = Directives { is_targeted: true, ..Directives::default() };
        for (key, value) in members {
            let name = key.as_str();
            let argument = if matches!(name, "no-cache" | "private") { listing(value) } else { age(value) };
            match argument {
                Argument::Absent => {}
                Argument::None => directives.control.add(name.as_bytes(), None),
                Argument::Text(text) => {
                    directives.control.add(name.as_bytes(), Some(&text));
                    let line = [name.as_bytes(), b"=\"", &text, b"\""].concat();
                    listed_fields([&line[..]], |name| directives.listed.push(name.to_owned()));
                }
            }
        }
        directives
    }

    /// Whether the response says that it is for shared caches, for requests with `Authorization` too
    /// (section 3.5).
    pub(super) fn is_shared(&self) -> bool {
        let control = &self.control;
        control.public || control.s_maxage.is_some() || control.must_revalidate
    }

    /// Whether it says so with every user of a site in mind, and not only of freshness: `max-age` of a targeted field says no more
    /// than that.
    pub(super) fn is_for_everybody(&self) -> bool {
        self.control.public || self.control.s_maxage.is_some()
    }
}

/// The value of a directive, as `Cache-Control` would have it.
enum Argument {
    /// `?0`: the directive is not there.
    Absent,
    None,
    Text(Vec<u8>),
}

/// True, or the names of fields in a string. What is of another type restricts as true does.
fn listing(value: &ListEntry) -> Argument {
    match bare(value) {
        Some(BareItem::Boolean(false)) => Argument::Absent,
        Some(BareItem::String(names)) => Argument::Text(names.as_str().as_bytes().to_vec()),
        _ => Argument::None,
    }
}

/// True, or a number. What is of another type is a number that is malformed.
fn age(value: &ListEntry) -> Argument {
    let mut text = Vec::new();
    match bare(value) {
        Some(BareItem::Boolean(false)) => return Argument::Absent,
        Some(BareItem::Boolean(true)) => return Argument::None,
        Some(BareItem::Integer(number)) => {
            if let Ok(number) = u64::try_from(i64::from(*number)) {
                push_decimal(&mut text, number);
            }
        }
        _ => {}
    }
    Argument::Text(text)
}

fn bare(value: &ListEntry) -> Option<&BareItem> {
    match value {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    }
}

/// The lines of a structured field, put together and read. `None` where there are none, or what they hold is
/// not valid.
pub(super) fn structured<T: FieldType>(fields: &FieldLines, name: &str) -> Option<T> {
    let mut lines = fields.all(name);
    let mut value = Cow::Borrowed(lines.next()?);
    for line in lines {
        value.to_mut().extend_from_slice(b", ");
        value.to_mut().extend_from_slice(line);
    }
    Parser::new(&*value).parse::<T>().ok()
}

/// The strings of a structured list. Its other members do not count.
pub(super) fn strings(fields: &FieldLines, name: &str) -> impl Iterator<Item = String> {
    let list: List = structured(fields, name).unwrap_or_default();
    list.into_iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(text) => Some(text.into()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    })
}
