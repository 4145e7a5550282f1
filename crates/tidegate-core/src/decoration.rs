//! The fields that a route puts on its responses: `header`, `expires`, `cache-control`. Part of the Filter phase.

use crate::exchange::Exchange;
use crate::template::{Scope, Template};
use std::rc::Rc;
use tidegate_config::settings;
use tidegate_http::{CacheControl, FieldLines, Status};

/// Fields of which several stand beside each other: what the settings say is added to what is there.
const ADDED: [&str; 2] = ["Set-Cookie", "Vary"];

/// The fields that a route puts on its responses.
#[derive(Debug, Default)]
pub struct Decoration {
    /// In order: name and value. One with placeholders is the same for no two requests.
    fields: Vec<(String, Template)>,
    /// The names of what is taken away first: by `off`, or since a field takes its place.
    replaced: Vec<String>,
    cache_control: Option<String>,
    has_placeholders: bool,
}

/// The values of a request for the fields with placeholders, in order.
#[derive(Debug, Default)]
pub(crate) struct Filled(Vec<String>);

impl Decoration {
    /// From a route's settings.
    pub fn of(route: &settings::Route) -> Rc<Decoration> {
        let fields =
            route.fields.iter().map(|(name, value)| (name.clone(), Template::parse(value, Scope::of(route))));
        let fields: Vec<_> = fields.collect();
        let set = fields.iter().map(|(name, _)| name);
        let is_replaced = |name: &&String| !ADDED.iter().any(|added| added.eq_ignore_ascii_case(name));
        Rc::new(Decoration {
            replaced: route.removed_fields.iter().chain(set.filter(is_replaced)).cloned().collect(),
            has_placeholders: fields.iter().any(|(_, value)| value.fixed().is_none()),
            fields,
            cache_control: route.cache_control.clone(),
        })
    }

    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.replaced.is_empty() && self.cache_control.is_none()
    }

    /// Whether its fields depend on the request, so that no finished head can hold them.
    pub fn has_placeholders(&self) -> bool {
        self.has_placeholders
    }

    /// Whether the route forbids changing what it sends (`no-transform`, RFC 9111 section 5.2.2.6).
    pub fn forbids_transforming(&self) -> bool {
        let own = self.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cache-control"));
        let values = own.filter_map(|(_, value)| value.fixed()).chain(self.cache_control.as_deref());
        CacheControl::parse(values.map(str::as_bytes)).no_transform
    }

    /// What placeholders stand for in a request.
    pub(crate) fn fill(&self, exchange: &Exchange<'_>) -> Filled {
        if !self.has_placeholders {
            return Filled::default();
        }
        let open = self.fields.iter().filter(|(_, value)| value.fixed().is_none());
        Filled(open.map(|(_, value)| value.fill(exchange)).collect())
    }

    /// Puts the fields on a head that is made once for many requests. Only where there are no placeholders.
    pub fn apply_fixed(&self, status: Status, lines: &mut FieldLines) {
        self.apply(status, &Filled::default(), lines);
    }

    /// Puts the fields on a response of `status`. `Cache-Control` from `expires` goes on what succeeded
    /// only: an error must not be kept for a month.
    pub(crate) fn apply(&self, status: Status, filled: &Filled, lines: &mut FieldLines) {
        if let Some(value) = &self.cache_control
            && (status.is_success() || status == Status::NOT_MODIFIED)
            && !lines.contains("Cache-Control")
        {
            lines.push("Cache-Control", value);
        }
        for name in &self.replaced {
            lines.remove(name);
        }
        let mut filled = filled.0.iter().map(String::as_str);
        for (name, value) in &self.fields {
            let Some(value) = value.fixed().or_else(|| filled.next()) else { continue };
            // A page that stands in for an error may have it from its own route.
            if !lines.all(name).any(|present| present == value.as_bytes()) {
                lines.push(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(fields: &[(&str, &str)], removed: &[&str], before: &[(&str, &str)]) -> String {
        let decoration = Decoration {
            fields: fields
                .iter()
                .map(|(name, value)| ((*name).into(), Template::parse(value, Scope::default())))
                .collect(),
            replaced: removed
                .iter()
                .copied()
                .chain(fields.iter().map(|(name, _)| *name).filter(|name| !ADDED.contains(name)))
                .map(String::from)
                .collect(),
            ..Decoration::default()
        };
        let mut lines = FieldLines::new();
        for (name, value) in before {
            lines.push(name, value);
        }
        decoration.apply_fixed(Status::OK, &mut lines);
        String::from_utf8(lines.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn what_is_set_takes_the_place_of_what_is_there() {
        for (fields, removed, before, after) in [
            (&[("X-A", "1")][..], &[][..], &[("x-a", "0"), ("X-B", "2")][..], "X-B: 2\r\nX-A: 1\r\n"),
            (&[("X-A", "1"), ("X-A", "2")], &[], &[("X-A", "0")], "X-A: 1\r\nX-A: 2\r\n"),
            (&[], &["X-Powered-By"], &[("x-powered-by", "php"), ("X-B", "2")], "X-B: 2\r\n"),
            (
                &[("Set-Cookie", "a=1")],
                &[],
                &[("Set-Cookie", "b=2")],
                "Set-Cookie: b=2\r\nSet-Cookie: a=1\r\n",
            ),
            (&[("Vary", "Cookie")], &[], &[("Vary", "Cookie")], "Vary: Cookie\r\n"),
        ] {
            assert_eq!(applied(fields, removed, before), after);
        }
    }
}
