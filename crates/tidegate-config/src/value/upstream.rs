//! Where applications are: names of pools and groups, addresses, URLs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::{ValueError, names};
use crate::settings::ListenAddress;
use crate::settings::gateway::Destination;

/// Reads `php`, `unix:/run/php.sock`, `127.0.0.1:9000`, `localhost:9000`, `app.example.com:9000`. The last is the name of a
/// group that nobody need write: no other has a colon in its name.
pub(super) fn destination(text: &str, folder: &Path) -> Result<Destination, ValueError> {
    let bad = |why: &str, help: &str| {
        Err(ValueError::new(format!("`{text}` says not where the application is: {why}"), help))
    };
    if is_name(text) || names::is_host_name(text) {
        return Ok(Destination::Named(text.to_owned()));
    }
    if text.contains("://") {
        return bad(
            "it is a URL",
            "write the address alone: `\"127.0.0.1:9000\"` or `\"unix:/run/php.sock\"`",
        );
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Destination::Tcp((Ipv4Addr::LOCALHOST, port).into())),
            _ => bad("the port is no number from 1 to 65535", "write `\"localhost:9000\"`"),
        };
    }
    if text.starts_with("unix:") {
        return match names::address(text, folder)? {
            ListenAddress::Unix(path) => Ok(Destination::Unix(path)),
            ListenAddress::Tcp(address) => Ok(Destination::Tcp(address)),
        };
    }
    if text.starts_with('/') {
        return bad("it begins with a `/`", "a unix socket is written `\"unix:/run/php.sock\"`");
    }
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    if let Some(why) = names::unfit_length(host.trim_end_matches('.')) {
        return bad(why, names::LENGTHS);
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(Destination::Tcp(address)),
        Ok(_) => bad("the port is 0", "write the port that the application listens on"),
        Err(_) if text.contains(':') => match host_and_port(text) {
            Some((host, port)) => Ok(Destination::Named(format!("{host}:{port}"))),
            None if names::has_too_large_a_port(text) => {
                bad("the port is larger than 65535", "ports go from 1 to 65535")
            }
            None => bad(
                "it is no host with a port",
                "write `\"127.0.0.1:9000\"`, `\"[::1]:9000\"`, `\"app.example.com:9000\"` or `\"unix:/run/php.sock\"`",
            ),
        },
        Err(_) => bad(
            "it is neither a name, nor an address with a port, nor a unix socket",
            "write the name of a pool, `\"127.0.0.1:9000\"`, `\"[::1]:9000\"` or `\"unix:/run/php.sock\"`",
        ),
    }
}

/// An application as a URL names it.
#[derive(Debug, PartialEq)]
pub(super) struct Url {
    /// Where requests go.
    pub to: Destination,
    /// What stands in front of every path, without a slash at its end.
    pub base: String,
    /// With `https` or `h2`: what the server is called.
    pub tls_name: Option<String>,
    /// With `h2` or `h2c`: HTTP/2 is spoken.
    pub is_http2: bool,
}

/// Reads `http://127.0.0.1:3000`, `http://unix:/run/app.sock`, `https://app/base`, `h2c://127.0.0.1:50051`, `app`.
pub(super) fn url(text: &str, folder: &Path) -> Result<Url, ValueError> {
    let bad = |why: &str, help: &str| {
        Err(ValueError::new(format!("`{text}` says not where the application is: {why}"), help))
    };
    let plain = |to: Destination| Url { to, base: String::new(), tls_name: None, is_http2: false };
    let (is_tls, rest) = match text.split_once("://") {
        Some(("http" | "h2c", rest)) => (false, rest),
        Some(("https" | "h2", rest)) => (true, rest),
        Some((scheme, _)) => {
            return bad(
                &format!("`{scheme}` is not spoken to applications"),
                "write `\"http://127.0.0.1:3000\"`",
            );
        }
        None if text.contains('/') && !text.starts_with(['/']) && !text.starts_with("unix:") => {
            return bad("it has a path and no scheme", &format!("write `\"http://{text}\"`"));
        }
        None => return Ok(plain(destination(text, folder)?)),
    };
    let is_http2 = text.starts_with("h2");
    if rest.starts_with("unix:") {
        let tls_name = is_tls.then(|| "localhost".to_owned());
        return Ok(Url { tls_name, is_http2, ..plain(destination(rest, folder)?) });
    }
    let (authority, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let base = base.trim_end_matches('/');
    if !base.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"<>\\".contains(&byte)) {
        return bad("its path holds what cannot stand in front of a path", "leave out `?`, `#` and spaces");
    }
    if authority.contains('@') {
        return bad("it holds a user", "set `request-header \"Authorization\" \"Basic …\"` instead");
    }
    let is_literal =
        authority.ends_with(']') || authority.parse::<Ipv4Addr>().is_ok() || authority == "localhost";
    let port = if is_tls { 443 } else { 80 };
    let with_port = if is_literal { format!("{authority}:{port}") } else { authority.to_owned() };
    let host =
        if is_literal { authority } else { authority.rsplit_once(':').map_or(authority, |(host, _)| host) };
    let to = destination(&with_port, folder)?;
    let tls_name = is_tls.then(|| host.trim_matches(['[', ']']).to_owned());
    Ok(Url { to, base: base.to_owned(), tls_name, is_http2 })
}

/// A host by its name, in lower case, with a port: what stands for a group of this one member.
pub(crate) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    names::is_host_name(&host).then_some((host, port))
}

/// Letters, digits, `-`, `_` and single dots: what names a pool.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 64
        && text.bytes().all(is_plain)
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Reads the name of a variable.
pub(super) fn variable(text: &str) -> Result<String, ValueError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = (1..=128).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with(|first: char| first.is_ascii_digit());
    if !fits {
        return Err(ValueError::new(
            format!("`{text}` is no name of a variable"),
            "it holds letters, digits and `_`: `\"APP_ENV\"`",
        ));
    }
    // Lengths are counted by the server, and a wrong one would make two requests out of one.
    if text == "CONTENT_LENGTH" || text == "SCGI" {
        return Err(ValueError::new(
            format!("the variable `{text}` belongs to the server"),
            "take the line out",
        ));
    }
    Ok(text.to_owned())
}

/// Fields of a request that frame it or belong to the connection.
const OWNED: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Reads the name of a field that requests may be given.
pub(super) fn request_field(text: &str) -> Result<String, ValueError> {
    if OWNED.iter().any(|owned| owned.eq_ignore_ascii_case(text)) {
        let help = match text.eq_ignore_ascii_case("host") {
            true => format!("{}; another one is `host \"app.internal\"`", names::OF_CLIENT),
            false => "take the line out".to_owned(),
        };
        return Err(ValueError::new(format!("the field `{text}` belongs to the server"), help));
    }
    names::token(text)
}

/// Reads a suffix of script names: `.php`.
pub(super) fn suffix(text: &str) -> Result<String, ValueError> {
    let fits = text.len() >= 2 && text.len() <= 32 && text.starts_with('.') && text.is_ascii();
    if !fits || text.contains(['/', '*', '\0', ' ', ',']) {
        return Err(ValueError::new(
            format!("`{text}` is no suffix of scripts"),
            "write it with its dot, in ASCII: `\".php\"`",
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        let tcp = |text: &str| Some(Destination::Tcp(text.parse().unwrap()));
        for (text, expected) in [
            ("php", Some(Destination::Named("php".to_owned()))),
            ("php-8.2", Some(Destination::Named("php-8.2".to_owned()))),
            ("unix:/run/php.sock", Some(Destination::Unix("/run/php.sock".into()))),
            ("unix:run/php.sock", Some(Destination::Unix("/base/run/php.sock".into()))),
            ("127.0.0.1:9000", tcp("127.0.0.1:9000")),
            ("[::1]:9000", tcp("[::1]:9000")),
            ("localhost:9000", tcp("127.0.0.1:9000")),
            ("localhost:0", None),
            ("127.0.0.1", None),
            ("127.0.0.1:0", None),
            ("/run/php.sock", None),
            ("http://127.0.0.1:9000", None),
            ("unix:", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(destination(text, Path::new("/base")).ok(), expected, "{text}");
        }
    }

    /// RFC 1035 section 2.3.4: 63 characters in a label, 253 in all as one writes it.
    #[test]
    fn long_names_of_hosts() {
        let base = Path::new("/base");
        let elb = "internal-k8s-production-ingressgateway-0123456789.eu-central-1.elb.amazonaws.com";
        let label = "a".repeat(63);
        let most = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        assert_eq!(most.len(), 253);
        for name in [elb, &most, "3scale.example.com", "1a.example"] {
            let with_port = Destination::Named(format!("{name}:80"));
            assert_eq!(destination(&format!("{name}:80"), base).unwrap(), with_port, "{name}");
            assert_eq!(url(&format!("http://{name}:80/a"), base).unwrap().to, with_port, "{name}");
            let alone = url(&format!("https://{name}"), base).unwrap();
            assert_eq!(alone.to, Destination::Named(name.to_owned()), "{name}");
            assert_eq!(alone.tls_name.as_deref(), Some(name), "{name}");
        }
        for (name, why) in [
            (format!("{most}c"), "it is longer than 253 characters"),
            (format!("{label}a.example"), "a label is longer than 63 characters"),
        ] {
            for text in [format!("http://{name}"), format!("http://{name}:80"), format!("{name}:80")] {
                let said = url(&text, base).unwrap_err().message;
                assert!(said.ends_with(why), "{said}");
            }
        }
        for address in ["127.0.0.1", "1.2.3.4.5:80", "300.1.1.1:80"] {
            assert!(destination(address, base).is_err(), "{address}");
        }
    }

    #[test]
    fn urls() {
        let tcp = |text: &str| Destination::Tcp(text.parse().unwrap());
        for (text, expected) in [
            ("http://127.0.0.1:3000", Some((tcp("127.0.0.1:3000"), ""))),
            ("http://127.0.0.1:3000/", Some((tcp("127.0.0.1:3000"), ""))),
            ("http://127.0.0.1/app/", Some((tcp("127.0.0.1:80"), "/app"))),
            ("http://[::1]", Some((tcp("[::1]:80"), ""))),
            ("http://localhost:3000/a/b", Some((tcp("127.0.0.1:3000"), "/a/b"))),
            ("http://unix:/run/app.sock", Some((Destination::Unix("/run/app.sock".into()), ""))),
            ("http://app", Some((Destination::Named("app".to_owned()), ""))),
            ("app", Some((Destination::Named("app".to_owned()), ""))),
            ("127.0.0.1:3000", Some((tcp("127.0.0.1:3000"), ""))),
            ("https://127.0.0.1", Some((tcp("127.0.0.1:443"), ""))),
            ("https://[::1]:8443/a", Some((tcp("[::1]:8443"), "/a"))),
            ("h2c://127.0.0.1:50051", Some((tcp("127.0.0.1:50051"), ""))),
            ("h2://127.0.0.1/a", Some((tcp("127.0.0.1:443"), "/a"))),
            ("ftp://127.0.0.1", None),
            ("http://", None),
            ("http://u@127.0.0.1", None),
            ("http://127.0.0.1/a?b", None),
        ] {
            let expected = expected.map(|(to, base)| (to, base.to_owned()));
            let read = url(text, Path::new("/base")).ok().map(|url| (url.to, url.base));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn what_a_server_is_called() {
        for (text, expected) in [
            ("http://127.0.0.1", None),
            ("127.0.0.1:3000", None),
            ("https://127.0.0.1:8443/a", Some("127.0.0.1")),
            ("https://[::1]", Some("::1")),
            ("https://[::1]:8443", Some("::1")),
            ("https://localhost:8443", Some("localhost")),
            ("https://app.internal/x", Some("app.internal")),
            ("https://unix:/run/app.sock", Some("localhost")),
        ] {
            let name = url(text, Path::new("/base")).unwrap().tls_name;
            assert_eq!(name.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn names_of_the_server_are_refused() {
        for name in ["", "1A", "A-B", "A B", "CONTENT_LENGTH", "SCGI"] {
            assert!(variable(name).is_err(), "{name}");
        }
        assert!(variable("APP_ENV").is_ok());
        for name in ["Host", "connection", "Content-Length", "a b", ""] {
            assert!(request_field(name).is_err(), "{name}");
        }
        assert!(request_field("X-Api-Key").is_ok());
        let help = request_field("Host").unwrap_err().help;
        assert!(help.starts_with("take the line out: `Host` stays the client's"), "{help}");
        for text in ["", ".", "php", ".p/p", ".ph*", ".phł"] {
            assert!(suffix(text).is_err(), "{text}");
        }
        assert!(suffix(".php").is_ok());
    }
}
