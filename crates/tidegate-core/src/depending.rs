//! What the answers of a site depend on beside their URLs, by its settings: which fields of a request choose or make them, which
//! `Vary` has to say to the caches in front (RFC 9110 section 12.5.5), and whether all clients are let in.
//!
//! Read once; asked in the Filter phase, of sites that have such conditions or placeholders alone.

use crate::template::{Scope, Template, ValueTemplate};
use std::rc::Rc;
use tidegate_config::settings::{Action, Condition, Route};

/// Of all routes of a site.
#[derive(Debug, Default)]
pub(crate) struct Depending {
    routes: Vec<OfRoute>,
    /// The first route with any fields; all in front of it depend on nothing.
    first: usize,
    /// Those whose conditions look at fields, and those whose conditions look at who asks.
    choosing: Vec<usize>,
    choosing_clients: Vec<usize>,
}

#[derive(Debug, Default)]
struct OfRoute {
    /// Fields that its conditions look at: who is not for this route gets the next by them.
    choosing: Vec<Rc<str>>,
    /// Fields that its answers are made of, or that say where they come from.
    making: Vec<Rc<str>>,
    /// Its settings take `Vary` away.
    is_untold: bool,
    /// Not everybody is let in.
    is_guarded: bool,
    /// Its conditions, or where its answers come from, depend on who asks, which no field says.
    chooses_clients: bool,
}

impl Depending {
    /// Of the routes of a site, in their order.
    pub(crate) fn of(routes: &[Route]) -> Depending {
        let routes: Vec<_> = routes.iter().map(OfRoute::of).collect();
        let has_fields = |route: &OfRoute| !route.choosing.is_empty() || !route.making.is_empty();
        let those = |is: fn(&OfRoute) -> bool| (0..routes.len()).filter(|at| is(&routes[*at])).collect();
        Depending {
            first: routes.iter().position(has_fields).unwrap_or(usize::MAX),
            choosing: those(|route| !route.choosing.is_empty()),
            choosing_clients: those(|route| route.chooses_clients),
            routes,
        }
    }

    /// Whether an answer of a route may depend on a field.
    pub(crate) fn may_vary(&self, index: usize) -> bool {
        index >= self.first
    }

    /// The fields that an answer of a route depends on; `fits` says which of the routes in front of it the path fits.
    pub(crate) fn fields(&self, index: usize, fits: impl Fn(usize) -> bool) -> Option<Vec<Rc<str>>> {
        let own = self.routes.get(index).filter(|own| self.may_vary(index) && !own.is_untold)?;
        let passed = self.choosing.iter().copied().take_while(|at| *at < index).filter(|at| fits(*at));
        let mut fields = own.choosing.clone();
        let more = passed.flat_map(|at| &self.routes[at].choosing).chain(&own.making);
        more.for_each(|name| push(&mut fields, name));
        (!fields.is_empty()).then_some(fields)
    }

    /// Whether an answer of a route is not for everybody who asks for the path.
    pub(crate) fn is_for_some(&self, index: usize, fits: impl Fn(usize) -> bool) -> bool {
        let Some(own) = self.routes.get(index) else { return false };
        let mut passed = self.choosing_clients.iter().take_while(|at| **at < index);
        own.is_guarded || own.chooses_clients || passed.any(|at| fits(*at))
    }
}

impl OfRoute {
    fn of(route: &Route) -> OfRoute {
        let mut of = OfRoute {
            is_untold: route.removed_fields.iter().any(|name| name.eq_ignore_ascii_case("vary")),
            is_guarded: route.access.is_for_some() || route.identification.is_asked(),
            ..OfRoute::default()
        };
        for condition in route.conditions.iter().flat_map(|clause| clause.condition.parts()) {
            match condition {
                Condition::Header(named) => push(&mut of.choosing, &named.name),
                Condition::Cookie(_) => push(&mut of.choosing, "Cookie"),
                Condition::Value(named) => {
                    let Some(value) = route.values.get(&named.name).map(ValueTemplate::of) else { continue };
                    value.fields().into_iter().for_each(|name| push(&mut of.choosing, name));
                    of.chooses_clients |= value.is_about_client();
                }
                Condition::Client(_) | Condition::ClientList(_) | Condition::Country(_) => {
                    of.chooses_clients = true;
                }
                _ => {}
            }
        }
        let way = match &route.action {
            Action::Redirect { to, .. } | Action::HandTo { to } => Some(to),
            _ => None,
        };
        let sent = route.fields.iter().map(|(_, value)| value);
        let sent = sent.chain(route.more_fields.iter().map(|field| &field.value));
        for (text, is_way) in sent
            .map(|text| (text, false))
            .chain(way.into_iter().chain(&route.rewrite).map(|text| (text, true)))
        {
            let template = Template::parse(text, Scope::of(route));
            template.fields().into_iter().for_each(|name| push(&mut of.making, name));
            of.chooses_clients |= is_way && template.is_about_client();
            // Another route answers.
            if is_way && matches!(route.action, Action::HandTo { .. }) && template.has_language() {
                push(&mut of.making, "Accept-Language");
            }
        }
        of
    }
}

/// Adds the name of a field, once. The host is a part of every URL.
fn push(names: &mut Vec<Rc<str>>, name: &str) {
    let is_there = names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if !is_there && !name.eq_ignore_ascii_case("host") {
        names.push(name.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tidegate_config::ProcessEnvironment;

    fn routes_of(site: &str) -> Vec<Route> {
        let top = "value \"c\" from=\"{cookie.c}{header.X-C}\" { \"a\" \"b\" }\nvalue \"who\" from=\"{client}\" { \"a\" \"b\" }\n\
                   match \"m\" { header \"X-M\"; cookie \"m\" }\n";
        let text = format!("listen \"127.0.0.1:1\"\n{top}site {{ {site} }}\n");
        let loaded = tidegate_config::load_str("a", &text, Path::new("/"), &ProcessEnvironment);
        let settings = loaded.settings.unwrap_or_else(|| panic!("{text}"));
        settings.sites[0].routes.clone()
    }

    /// What the answer of a site to a path that all of its routes fit depends on.
    fn last_of(site: &str) -> (String, bool) {
        let routes = routes_of(site);
        let (depending, last) = (Depending::of(&routes), routes.len() - 1);
        let fields = depending.fields(last, |_| true).unwrap_or_default();
        (fields.join(" "), depending.is_for_some(last, |_| true))
    }

    #[test]
    fn what_answers_depend_on() {
        for (routes, fields, is_for_some) in [
            ("respond 200", "", false),
            ("route \"/a\" { when header \"X-A\"; respond 200 }; respond 404", "X-A", false),
            (
                "route \"/a\" { when header \"x-a\"; unless header \"X-A\"; respond 200 }; respond 404",
                "x-a",
                false,
            ),
            ("route \"/a\" { when header \"Host\"; when query \"q\"; respond 200 }; respond 404", "", false),
            ("route \"/a\" { when value \"c\"; respond 200 }; respond 404", "Cookie X-C", false),
            ("route \"/a\" { when cookie \"a\"; redirect \"/{header.X-R}\" }; respond 404", "Cookie", false),
            ("route \"/a\" { unless match \"m\"; respond 200 }; respond 404", "X-M Cookie", false),
            ("header \"X-Me\" \"{header.X-V}\"; respond 200", "X-V", false),
            ("redirect \"/{value.c}\"", "Cookie X-C", false),
            ("languages \"en\" \"de\"; redirect \"/{language}/a\"", "", false), // says so itself
            ("header \"Vary\" off; redirect \"/{value.c}\"", "", false),
            ("route \"/a\" { when client \"10.0.0.1\"; respond 200 }; respond 404", "", true),
            ("route \"/a\" { when value \"who\"; respond 200 }; respond 404", "", true),
            ("redirect \"/{value.who}\"", "", true),
            ("header \"X-Client\" \"{client}\"; respond 200", "", false),
            ("allow \"10.0.0.0/8\"; respond 200", "", true),
            ("route \"/a\" { allow \"10.0.0.0/8\"; respond 200 }; respond 404", "", false),
        ] {
            assert_eq!(last_of(routes), (fields.to_owned(), is_for_some), "{routes}");
        }
    }

    /// What answers there knows of no languages.
    #[test]
    fn who_hands_on_by_language_says_so() {
        let routes = routes_of(
            "route \"/f/*\" { languages \"en\" \"de\"; hand-to \"/g/{language}\" }; route \"/g/*\" { respond 200 }; respond 404",
        );
        let depending = Depending::of(&routes);
        assert_eq!(depending.fields(0, |_| true), Some(vec!["Accept-Language".into()]));
    }
}
