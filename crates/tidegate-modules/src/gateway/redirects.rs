//! `Location` and `Content-Location` in answers of an HTTP backend, as the client has to see them.
//!
//! A backend names itself as it is called here: by its address or the `host` it was told, below the path of the
//! address, and without the prefix that was cut off. `proxy` is the only caller.

use super::upstream::Upstream;
use std::rc::Rc;
use tidegate_config::settings::gateway::{Destination, Proxy};
use tidegate_config::settings::upstream::MemberAddress;
use tidegate_core::Exchange;
use tidegate_http::FieldLines;
use tidegate_http::path::names_host;

/// How the addresses of a backend lead back to this server.
pub(super) struct Redirects {
    /// In front of every path at the backend.
    base: String,
    /// Cut off every path before it.
    prefix: String,
    /// What it calls itself.
    authorities: Vec<String>,
}

/// The same for one request.
pub(super) struct Back {
    redirects: Rc<Redirects>,
    /// What the client has asked for; empty where paths stay as they are.
    authority: String,
}

impl Redirects {
    /// Of a proxy; `None` where it leaves redirects alone.
    pub(super) fn of(settings: &Proxy, upstream: &Upstream) -> Option<Rc<Redirects>> {
        if !settings.rewrites_redirects {
            return None;
        }
        let mut authorities = Vec::new();
        match (upstream, &settings.gateway.to) {
            (Upstream::Group(group), _) => {
                for member in &group.settings().members {
                    authorities_of(&member.address, settings.host.as_deref(), &mut authorities);
                }
            }
            (_, Destination::Tcp(address)) => {
                let address = MemberAddress::Tcp(*address);
                authorities_of(&address, settings.host.as_deref(), &mut authorities);
            }
            (_, Destination::Named(_) | Destination::Unix(_)) => {}
        }
        authorities.extend(settings.host.clone());
        let prefix = settings.strip_prefix.clone().unwrap_or_default();
        Some(Rc::new(Redirects { base: settings.base.clone(), prefix, authorities }))
    }

    /// For a request.
    pub(super) fn back(self: &Rc<Self>, exchange: &Exchange<'_>) -> Back {
        let keeps_paths = self.base.is_empty() && self.prefix.is_empty();
        let authority = if keeps_paths { String::new() } else { exchange.authority.to_owned() };
        Back { redirects: self.clone(), authority }
    }

    /// A path of the backend as one of this server; `None` where it is the same, or nothing of this route.
    fn path(&self, path: &str) -> Option<String> {
        let rest = below(path, &self.base)?;
        let is_changed = !self.base.is_empty() || !self.prefix.is_empty();
        // An application may know where it is mounted.
        let knows = self.base.is_empty() && !self.prefix.is_empty() && below(path, &self.prefix).is_some();
        (is_changed && !knows).then(|| match format!("{}{rest}", self.prefix) {
            path if path.starts_with('/') => path,
            path => format!("/{path}"),
        })
    }
}

/// What a server at this address may call itself, where it is told to be `host`.
fn authorities_of(address: &MemberAddress, host: Option<&str>, authorities: &mut Vec<String>) {
    let mut names = Vec::from_iter(host.map(str::to_owned));
    let port = match address {
        MemberAddress::Tcp(address) => {
            let ip = address.ip();
            names.push(if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() });
            names.extend(ip.is_loopback().then(|| "localhost".to_owned()));
            address.port()
        }
        MemberAddress::Name { host, port } => {
            names.push(host.clone());
            *port
        }
        MemberAddress::Unix(_) => return,
    };
    authorities.extend(names.iter().map(|name| format!("{name}:{port}")));
    // Without a port a name stands for the usual one.
    if port == 80 || port == 443 {
        authorities.append(&mut names);
    }
}

impl Back {
    /// Rewrites the fields of an answer.
    pub(super) fn apply(&self, lines: &mut FieldLines) {
        for name in ["Location", "Content-Location"] {
            let value = lines.first(name).and_then(|value| std::str::from_utf8(value).ok());
            if let Some(value) = value.and_then(|value| self.rewrite(value)) {
                lines.set(name, value);
            }
        }
    }

    /// What the client has to see; `None` where that is the same. No path of a backend becomes the name of a host.
    fn rewrite(&self, value: &str) -> Option<String> {
        let Some((scheme, rest)) = behind_scheme(value) else {
            let path = Some(value).filter(|value| value.starts_with('/') && !names_host(value))?;
            return self.redirects.path(path).filter(|path| !names_host(path));
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if self.redirects.authorities.iter().any(|own| own.eq_ignore_ascii_case(authority)) {
            // Without scheme and authority it holds for whatever the client calls this server.
            let slash = if path.starts_with('/') { "" } else { "/" };
            let path = self.redirects.path(path).unwrap_or_else(|| format!("{slash}{path}"));
            return Some(path).filter(|path| !names_host(path));
        }
        let is_ours = !self.authority.is_empty() && authority.eq_ignore_ascii_case(&self.authority);
        let path = self.redirects.path(path).filter(|_| is_ours)?;
        Some(format!("{scheme}{authority}{path}"))
    }
}

/// The scheme of HTTP with its `://`, or the `//` alone of a network-path reference (RFC 3986 section 4.2), and what follows:
/// authority and path. `None` for every other reference.
fn behind_scheme(value: &str) -> Option<(&str, &str)> {
    let (scheme, _) = value.split_once("//")?;
    let is_http = ["", "http:", "https:"].iter().any(|own| own.eq_ignore_ascii_case(scheme));
    is_http.then(|| value.split_at(scheme.len() + 2))
}

/// What follows a prefix that ends at the end of a segment.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_becomes_a_host() {
        let redirects =
            Rc::new(Redirects { base: "/v2".into(), prefix: String::new(), authorities: vec!["app".into()] });
        let back = Back { redirects, authority: "example.com".into() };
        for value in [
            "http://app//elsewhere.test/",
            "//app//elsewhere.test/",
            "//app/v2//elsewhere.test/",
            "//app/\\elsewhere.test/",
            "http://app/v2//elsewhere.test/",
            "/v2//elsewhere.test/",
            "http://app/\\elsewhere.test/",
            "http://app/v2/\\elsewhere.test/",
            "/v2/\\elsewhere.test/",
            "http://app/v2/\t/elsewhere.test/",
        ] {
            let mut lines = FieldLines::with_capacity(64);
            lines.push("Location", value);
            back.apply(&mut lines);
            assert_eq!(lines.first("Location"), Some(value.as_bytes()));
        }
    }

    fn rewritten(base: &str, prefix: &str, value: &str) -> String {
        let authorities = vec!["app.internal".to_owned(), "127.0.0.1:3000".to_owned()];
        let redirects = Redirects { base: base.to_owned(), prefix: prefix.to_owned(), authorities };
        let back = Back { redirects: Rc::new(redirects), authority: "example.com".to_owned() };
        back.rewrite(value).unwrap_or_else(|| value.to_owned())
    }

    #[test]
    fn addresses_of_the_backend_are_not_shown() {
        for (value, expected) in [
            ("http://127.0.0.1:3000/a?b#c", "/a?b#c"),
            ("https://APP.internal/a", "/a"),
            ("http://127.0.0.1:3000", "/"),
            ("http://127.0.0.1:3000?x", "/?x"),
            ("http://127.0.0.1:3001/a", "http://127.0.0.1:3001/a"),
            ("http://example.com/a", "http://example.com/a"),
            ("http://elsewhere.test/a", "http://elsewhere.test/a"),
            ("//app.internal/a", "/a"),
            ("//127.0.0.1:3000", "/"),
            ("//127.0.0.1:3000?x", "/?x"),
            ("//127.0.0.1:3001/a", "//127.0.0.1:3001/a"),
            ("//example.com/a", "//example.com/a"),
            ("//elsewhere.test/a", "//elsewhere.test/a"),
            ("//elsewhere.test//app.internal/a", "//elsewhere.test//app.internal/a"),
            ("/\\app.internal/a", "/\\app.internal/a"),
            ("/a//app.internal/a", "/a//app.internal/a"),
            ("/a", "/a"),
            ("a/b", "a/b"),
            ("", ""),
            ("ftp://app.internal/a", "ftp://app.internal/a"),
        ] {
            assert_eq!(rewritten("", "", value), expected, "{value}");
        }
    }

    #[test]
    fn paths_lead_back() {
        for (base, prefix, value, expected) in [
            ("", "/api", "/a", "/api/a"),
            ("", "/api", "/", "/api/"),
            ("", "/api", "/api/a", "/api/a"), // it knows where it is
            ("", "/api", "/apix", "/api/apix"),
            ("", "/api", "http://127.0.0.1:3000/a", "/api/a"),
            ("", "/api", "https://example.com/a", "https://example.com/api/a"),
            ("", "/api", "//127.0.0.1:3000/a", "/api/a"),
            ("", "/api", "//example.com/a", "//example.com/api/a"),
            ("", "/api", "//example.com/api/a", "//example.com/api/a"),
            ("", "/api", "//elsewhere.test/a", "//elsewhere.test/a"),
            ("/v2", "/api", "//app.internal/v2/a", "/api/a"),
            ("", "/api", "https://elsewhere.test/a", "https://elsewhere.test/a"),
            ("", "/api", "a", "a"),
            ("/v2", "", "/v2/a", "/a"),
            ("/v2", "", "/v2", "/"),
            ("/v2", "", "/v2?x", "/?x"),
            ("/v2", "", "/v20", "/v20"),
            ("/v2", "", "/login", "/login"),
            ("/v2", "/api", "/v2/a", "/api/a"),
            ("/v2", "/api", "http://app.internal/v2/a", "/api/a"),
            ("/v2", "/api", "http://app.internal/other", "/other"),
        ] {
            assert_eq!(rewritten(base, prefix, value), expected, "{base} {prefix} {value}");
        }
    }
}
