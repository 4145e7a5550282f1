//! `Via`: what this server calls itself to the next one, and whether a request has been here before (RFC 9110 section 7.6.3).
//!
//! The name is that of a route of this server, the same in all its processes and another in every server: a chain of several
//! servers is none that leads back, nor is one of several sites of the same. `proxy` passes requests on to who may send them
//! here again, and `login forward` asks who may.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;
use tidegate_config::settings::{Origin, Site};
use tidegate_core::Exchange;

/// What tells this server from all others. Of the process, whatever its settings.
static SERVER: OnceLock<u64> = OnceLock::new();

/// A number that no other server has.
pub fn new_server() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Says which server this process is one of; without it the process is a server of its own.
pub fn begin(server: u64) {
    let _ = SERVER.set(server); // said once, before anything is served
}

/// What a route calls itself, or a site where it asks.
pub(super) struct Via {
    line: Box<[u8]>,
    name: Box<[u8]>,
}

impl Via {
    /// Of a route that was written there.
    pub(super) fn of(site: &Site, route: &Origin) -> Via {
        Via::named(site, (&route.file, route.line, route.column))
    }

    /// Of a site where it asks whether somebody may come in: `whom` it asks.
    pub(super) fn of_question(site: &Site, whom: (&str, &str)) -> Via {
        Via::named(site, whom)
    }

    fn named(site: &Site, what: impl Hash) -> Via {
        let mut hasher = DefaultHasher::new();
        SERVER.get_or_init(new_server).hash(&mut hasher);
        (site.label(), &site.origin.file, what).hash(&mut hasher);
        let name = format!("tidegate-{:016x}", hasher.finish());
        let line = format!("Via: 1.1 {name}\r\n");
        Via { line: line.into_bytes().into(), name: name.into_bytes().into() }
    }

    /// The field, with its line end.
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Whether the route has passed the request on already.
    pub(super) fn has_passed(&self, exchange: &Exchange<'_>) -> bool {
        exchange.fields.contains("via")
            && exchange.fields.elements("via").any(|hop| {
                let mut words =
                    hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
                words.nth(1) == Some(&*self.name)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::{Field, Fields};

    #[test]
    fn only_the_route_itself_is_known_again() {
        let text = "listen \"127.0.0.1:1\"\nsite { respond 200\nroute \"/a\" { respond 201 } }\n";
        let loaded = tidegate_config::load_str(
            "s",
            text,
            std::path::Path::new("/"),
            &tidegate_config::ProcessEnvironment,
        );
        let settings = loaded.settings.expect("sound settings");
        let site = &settings.sites[0];
        let (one, other) = (Via::of(site, &site.routes[0].origin), Via::of(site, &site.origin));
        assert_eq!(one.line, Via::of(site, &site.routes[0].origin).line);
        let name = std::str::from_utf8(&one.name).unwrap();
        for (value, has_passed) in [
            (format!("1.1 {name}"), true),
            (format!("1.0 a.test, 2 {name} (comment), 1.1 b"), true),
            (format!("1.1 a.test,HTTP/1.1\t{name}"), true),
            ("1.1 tidegate".into(), false),
            (format!("1.1 a.test ({name})"), false),
            (name.to_owned(), false),
            (String::new(), false),
        ] {
            let fields = [Field { name: "Via", value: value.as_bytes() }];
            let exchange = Exchange { fields: Fields::new(&fields), ..Exchange::empty() };
            assert_eq!(one.has_passed(&exchange), has_passed, "{value}");
            assert!(!other.has_passed(&exchange), "{value}");
        }
    }
}
