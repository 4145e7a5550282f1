//! `Via`: what this server calls itself to the next one, and whether a request has been here before (RFC 9110 section 7.6.3).
//!
//! The name is that of a route of this server, the same in all its processes and another in every server: a chain of several
//! servers is none that leads back, nor is one of several sites of the same. `proxy` passes requests on to who may send them
//! here again, and `login forward` asks who may. A route that is cached says the same in `CDN-Loop` (RFC 8586), which those who
//! operate caches never take away, as some do with `Via`.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;
use tidegate_config::settings::{Origin, Site};
use tidegate_core::Exchange;
use tidegate_http::Version;
use tidegate_http::cache::cdn_loop;
use tidegate_http::field::list_elements;

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
pub(crate) struct Via {
    /// By the version of the message that was received.
    lines: [Box<[u8]>; 3],
    name: Box<str>,
}

impl Via {
    /// Of a route that was written there.
    pub(crate) fn of(site: &Site, route: &Origin) -> Via {
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
        let lines = lines_by_version(|version| format!("Via: {version} {name}\r\n"));
        Via { lines, name: name.into() }
    }

    /// Of a route whose answers are kept: it is to be found out as well where `Via` is taken away.
    pub(super) fn with_cdn_loop(self) -> Via {
        let Via { name, .. } = self;
        let lines = lines_by_version(|version| format!("Via: {version} {name}\r\nCDN-Loop: {name}\r\n"));
        Via { lines, name }
    }

    /// The fields of a request that was received in this version, with their line ends. They stand behind those of the servers
    /// before.
    pub(super) fn lines(&self, received: Version) -> &[u8] {
        let [http10, http11, http2] = &self.lines;
        match received {
            Version::Http10 => http10,
            Version::Http11 => http11,
            Version::Http2 => http2,
        }
    }

    /// Whether the route has passed the request on already.
    pub(crate) fn has_passed(&self, exchange: &Exchange<'_>) -> bool {
        let is_own_hop = |hop: &[u8]| {
            let mut words = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
            words.nth(1) == Some(self.name.as_bytes())
        };
        let mut has_cdn_loop = false;
        let has_own_via = exchange.fields.iter().any(|field| match field.name.len() {
            3 => field.is("via") && list_elements(field.value).any(is_own_hop),
            8 => {
                has_cdn_loop |= field.is("cdn-loop");
                false
            }
            _ => false,
        });
        has_own_via || has_cdn_loop && cdn_loop::passes(exchange.fields, &self.name) > 0
    }
}

fn lines_by_version(lines: impl Fn(&str) -> String) -> [Box<[u8]>; 3] {
    ["1.0", "1.1", "2"].map(|version| lines(version).into_bytes().into())
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
        assert_eq!(one.lines, Via::of(site, &site.routes[0].origin).lines);
        let name = &one.name;
        for (value, has_passed) in [
            (format!("1.1 {name}"), true),
            (format!("1.0 a.test, 2 {name} (comment), 1.1 b"), true),
            (format!("1.1 a.test,HTTP/1.1\t{name}"), true),
            ("1.1 tidegate".into(), false),
            (format!("1.1 a.test ({name})"), false),
            (name.to_string(), false),
            (String::new(), false),
        ] {
            let fields = [Field { name: "Via", value: value.as_bytes() }];
            let exchange = Exchange { fields: Fields::new(&fields), ..Exchange::empty() };
            assert_eq!(one.has_passed(&exchange), has_passed, "{value}");
            assert!(!other.has_passed(&exchange), "{value}");
        }
        for (value, has_passed) in [
            (name.to_string(), true),
            (format!("cdn.example, {name}; a=\"b, c\" , other"), true),
            (format!("1.1 {name}"), false),
            (format!("cdn.example; by=\"{name}\""), false),
        ] {
            let fields = [Field { name: "CDN-Loop", value: value.as_bytes() }];
            let exchange = Exchange { fields: Fields::new(&fields), ..Exchange::empty() };
            assert_eq!(one.has_passed(&exchange), has_passed, "{value}");
            assert!(!other.has_passed(&exchange), "{value}");
        }
    }
}
