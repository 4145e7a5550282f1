//! The fields that a route puts on its responses: `header`, `expires`, `cache-control`. Part of the Filter phase.

use crate::cors::{self, OF_CORS};
use crate::exchange::Exchange;
use crate::template::{Scope, Template};
use std::borrow::Cow;
use std::rc::Rc;
use tidegate_config::settings::{self, Cors, FieldMode, Shared};
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
    /// Fields that take the place of no other, behind all of `fields`.
    more: Vec<(String, Template, FieldMode)>,
    /// Answers are for some origins, which a client names.
    cors: Option<Shared<Cors>>,
    has_placeholders: bool,
}

/// What depends on the request.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// The values of the fields with placeholders, in order; `None` for one that is not sent.
    values: Vec<Option<String>>,
    /// The origin that may have the answer.
    origin: Option<String>,
}

impl Decoration {
    /// From a route's settings.
    pub fn of(route: &settings::Route) -> Rc<Decoration> {
        let fields = route
            .fields
            .iter()
            .map(|(name, value)| (name.clone(), Template::of_field(name, value, Scope::of(route))));
        let mut fields: Vec<_> = fields.collect();
        let mut names: Vec<String> = Vec::new();
        if let Some(cors) = &route.cors {
            names = OF_CORS.map(str::to_owned).to_vec();
            let plain = |text: &str| Template::parse(text, Scope::default());
            if cors.is_for_all() {
                fields.push((OF_CORS[0].to_owned(), plain("*")));
            }
            if !cors.expose.is_empty() {
                fields.push((OF_CORS[2].to_owned(), plain(&cors.expose.join(", "))));
            }
        }
        let set = fields.iter().map(|(name, _)| name);
        let more = route.more_fields.iter().map(|field| {
            let value = Template::of_field(&field.name, &field.value, Scope::of(route));
            (field.name.clone(), value, field.mode)
        });
        let more: Vec<_> = more.collect();
        let cors = route.cors.clone().filter(|cors| !cors.is_for_all());
        let is_replaced = |name: &&String| !ADDED.iter().any(|added| added.eq_ignore_ascii_case(name));
        Rc::new(Decoration {
            replaced: route
                .removed_fields
                .iter()
                .chain(set.filter(is_replaced))
                .chain(&names)
                .cloned()
                .collect(),
            has_placeholders: fields.iter().any(|(_, value)| value.fixed().is_none())
                || more.iter().any(|(_, value, _)| value.fixed().is_none())
                || cors.is_some(),
            fields,
            more,
            cors,
            cache_control: route.cache_control.clone(),
        })
    }

    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
            && self.replaced.is_empty()
            && self.cache_control.is_none()
            && self.more.is_empty()
            && self.cors.is_none()
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
        let all =
            self.fields.iter().map(|(_, value)| value).chain(self.more.iter().map(|(_, value, _)| value));
        let open = all.filter(|value| value.fixed().is_none());
        let origin = self
            .cors
            .as_ref()
            .and_then(|cors| exchange.fields.single("origin").filter(|origin| cors.allows(origin)));
        Filled {
            values: open.map(|value| value.field_value(exchange).map(Cow::into_owned)).collect(),
            origin: origin.map(|origin| String::from_utf8_lossy(origin).into_owned()),
        }
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
        let origin = filled.origin.as_deref();
        let mut filled = filled.values.iter().map(Option::as_deref);
        for (name, value) in &self.fields {
            let Some(value) = value.fixed().or_else(|| filled.next().flatten()) else { continue };
            // A page that stands in for an error may have it from its own route.
            if !lines.all(name).any(|present| present == value.as_bytes()) {
                lines.push(name, value);
            }
        }
        for (name, value, mode) in &self.more {
            let Some(value) = value.fixed().or_else(|| filled.next().flatten()) else { continue };
            let is_there = match mode {
                FieldMode::Add => lines.all(name).any(|present| present == value.as_bytes()),
                FieldMode::Missing => lines.contains(name),
            };
            if !is_there {
                lines.push(name, value);
            }
        }
        if let Some(cors) = &self.cors {
            cors::allow(cors, origin, lines);
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
