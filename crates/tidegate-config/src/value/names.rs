//! Host names, addresses, networks, field names and values, media types.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::ValueError;
use crate::settings::{Country, HostPattern, ListenAddress, Network, TimeWindow, first_address};

/// The longest path of a unix socket: `sun_path` holds 108 bytes and ends with a zero.
const SOCKET_PATH: usize = 107;

/// Reads a host name (RFC 1123 labels, RFC 4592 star), lower-cased and without the final dot.
pub(crate) fn host(text: &str) -> Result<HostPattern, ValueError> {
    let bad = |why: &str, help: &str| Err(ValueError::new(format!("`{text}` is no host name: {why}"), help));
    let name = text.to_ascii_lowercase();
    if name.contains('/') {
        return bad("it holds a `/`", "write the name alone: `\"example.com\"`");
    }
    if let Some(literal) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return match literal.parse::<Ipv6Addr>() {
            Ok(address) => Ok(HostPattern::Exact(format!("[{address}]"))),
            Err(_) => bad("the address in brackets is no IPv6 address", "write `\"[2001:db8::1]\"`"),
        };
    }
    if name.contains(':') {
        // Without brackets nothing else could be meant.
        return match name.parse::<Ipv6Addr>() {
            Ok(address) => Ok(HostPattern::Exact(format!("[{address}]"))),
            Err(_) => bad("it holds a `:`", "a site is named without a port; ports are given with `listen`"),
        };
    }
    if !name.is_ascii() {
        return bad("it holds letters outside ASCII", "write its ASCII form, which begins with `xn--`");
    }
    if let Some(rest) = name.strip_prefix('.').filter(|rest| !rest.is_empty()) {
        let help = format!("for a name and all below it write both: `\"{rest}\" \"*.{rest}\"`");
        return bad("it begins with a dot", &help);
    }
    let (labels, is_suffix) = match name.strip_prefix("*.") {
        Some(rest) => (rest, true),
        None => (name.as_str(), false),
    };
    let labels = labels.strip_suffix('.').unwrap_or(labels);
    if labels.contains('*') || labels == "*" {
        return bad(
            "a star may only be its first label",
            "write `\"*.example.com\"`; for all names, write none",
        );
    }
    if let Some((why, help)) = unfit_labels(labels) {
        return bad(why, help);
    }
    let length = labels.len();
    Ok(if is_suffix {
        HostPattern::Suffix(format!(".{labels}"))
    } else {
        let mut name = name;
        name.truncate(length);
        HostPattern::Exact(name)
    })
}

/// Why labels with dots between them are no name of a host, and what to write (RFC 1035 section 2.3.4, RFC 1123 section 2.1).
fn unfit_labels(labels: &str) -> Option<(&'static str, &'static str)> {
    let fits = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !labels.split('.').all(fits) {
        return Some((
            "a label is empty or holds other characters",
            "labels hold letters, digits, `-` and `_`, and dots part them",
        ));
    }
    unfit_length(labels).map(|why| (why, LENGTHS))
}

/// How long the name of a host may be.
pub(super) const LENGTHS: &str = "a name has 253 characters at most, and 63 between two dots";

/// What is said of a name that is only too long.
pub(super) fn unfit_length(labels: &str) -> Option<&'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !labels.bytes().all(is_plain) {
        return None;
    }
    if labels.len() > 253 {
        return Some("it is longer than 253 characters");
    }
    labels.split('.').any(|label| label.len() > 63).then_some("a label is longer than 63 characters")
}

/// Whether a text is the name of a host, and no address.
pub(super) fn is_host_name(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic()) && unfit_labels(text).is_none()
}

/// Reads the host that applications are told: a name or an address, without a port, as it is written.
pub(super) fn told_host(text: &str) -> Result<String, ValueError> {
    let bad = |why: &str, help: &str| Err(ValueError::new(format!("`{text}` is no host name: {why}"), help));
    let lower = text.to_ascii_lowercase();
    if text.contains(['$', '{', '%']) {
        let is_of_client = lower.contains("host") && !lower.contains("proxy") && !lower.contains("upstream");
        let help = match is_of_client {
            true => OF_CLIENT.to_owned(),
            false => format!("write the name as it is, `\"app.internal\"`; or {OF_CLIENT}"),
        };
        return bad("`host` is the same for every request, and has no placeholders", &help);
    }
    let without_port = text.rsplit_once(':').filter(|(name, port)| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']'))
    });
    if let Some((name, _)) = without_port {
        return bad(
            "it holds a port",
            &format!("write the name alone, `\"{name}\"`; the port is that of the address"),
        );
    }
    match host(text)? {
        HostPattern::Exact(address) if address.starts_with('[') => Ok(address),
        HostPattern::Exact(_) => Ok(text.to_owned()),
        HostPattern::Suffix(_) => bad("a star stands for no one name", "write the name as it is"),
    }
}

/// What gives applications the host that the client has asked for.
pub(super) const OF_CLIENT: &str = "take the line out: `Host` stays the client's";

/// Whether what stands behind the last colon is a number, and larger than that of a port.
pub(crate) fn has_too_large_a_port(text: &str) -> bool {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_number && port.parse::<u16>().is_err()
}

/// Reads an address to listen on.
pub(super) fn address(text: &str, folder: &Path) -> Result<ListenAddress, ValueError> {
    let bad = |why: &str, help: &str| {
        Err(ValueError::new(format!("`{text}` is no address to listen on: {why}"), help))
    };
    if let Some(path) = text.strip_prefix("unix:") {
        let path = super::paths::file(path, folder)?;
        if path.as_os_str().len() > SOCKET_PATH {
            return bad(
                "the path is longer than 107 bytes, the most the system takes",
                "choose a shorter path",
            );
        }
        return Ok(ListenAddress::Unix(path));
    }
    if text.starts_with('/') {
        return bad("it is a path", "a unix socket is written `\"unix:/run/tidegate.sock\"`");
    }
    if text.contains("://") {
        return bad("it is a URL", "write the address and port alone: `\"127.0.0.1:8080\"`");
    }
    let every = text.strip_prefix("*:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if !every.is_empty() && every.bytes().all(|byte| byte.is_ascii_digit()) {
        return match every.parse::<u16>() {
            Ok(port) => Ok(ListenAddress::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))),
            Err(_) => bad("the port is larger than 65535", "ports go from 0 to 65535"),
        };
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(ListenAddress::Tcp(address));
    }
    if text.parse::<IpAddr>().is_ok() {
        let help = if text.contains(':') {
            // `::1:80` is an address in itself, and may be meant as one with a port.
            let split = text.rsplit_once(':').filter(|(host, port)| {
                host.parse::<IpAddr>().is_ok() && port.parse::<u16>().is_ok_and(|port| port != 0)
            });
            let every = text.strip_prefix("::").filter(|port| port.parse::<u16>().is_ok());
            let with_port = split.map(|(host, port)| format!("[{host}]:{port}"));
            match with_port.or_else(|| every.map(|port| format!("[::]:{port}"))) {
                Some(with_port) => {
                    format!("write `\"{with_port}\"` where the end is the port, or `\"[{text}]:80\"`")
                }
                None => format!("write `\"[{text}]:80\"`"),
            }
        } else {
            format!("write `\"{text}:80\"`")
        };
        return bad("the port is missing", &help);
    }
    let is_address = |host: &str| format!("{host}:1").parse::<SocketAddr>().is_ok();
    if has_too_large_a_port(text) && text.rsplit_once(':').is_some_and(|(host, _)| is_address(host)) {
        return bad("the port is larger than 65535", "ports go from 0 to 65535");
    }
    if text.starts_with("localhost") {
        return bad("names are not looked up", "write `\"127.0.0.1:8080\"` or `\"[::1]:8080\"`");
    }
    bad(
        "it is neither IPV4:PORT, [IPV6]:PORT, :PORT nor unix:PATH",
        "write `\"127.0.0.1:8080\"`, `\"[::1]:8080\"`, `\":80\"` or `\"unix:/run/tidegate.sock\"`",
    )
}

/// Where what is no network belongs: names and countries of clients have words of their own.
fn elsewhere(text: &str) -> Option<String> {
    if text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Some(format!("a country is `country=\"{text}\"`, as a condition `when country \"{text}\"`"));
    }
    let is_name = text.contains('.') && text.bytes().any(|byte| byte.is_ascii_alphabetic());
    (is_name && host(text).is_ok()).then(|| format!("what a client is called is `name=\"{text}\"`"))
}

/// Reads whom a rule of access is about.
pub(crate) fn network(text: &str) -> Result<Network, ValueError> {
    match text {
        "all" | "*" => return Ok(Network::All),
        "unix" => return Ok(Network::Unix),
        "local" => return Ok(Network::Local),
        _ => {}
    }
    let help =
        "write `\"all\"`, `\"local\"`, `\"unix\"`, `\"192.0.2.7\"`, `\"10.0.0.0/8\"` or `\"2001:db8::/32\"`";
    let bad = |why: String, help: &str| Err(ValueError::new(format!("`{text}` is no network: {why}"), help));
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        let help = &match elsewhere(text) {
            Some(elsewhere) => format!("{elsewhere}; {help}"),
            None => help.to_owned(),
        };
        return bad(
            "what stands before the `/` is no address"
                .replace(" before the `/`", if bits.is_some() { " before the `/`" } else { " here" }),
            help,
        );
    };
    let width: u8 = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => width,
        Some(bits) => match bits.parse::<u8>() {
            Ok(bits) if bits <= width && !bits.to_string().is_empty() => bits,
            _ => return bad(format!("the bits go from 0 to {width}"), help),
        },
    };
    // An IPv4 client of an IPv6 socket is the IPv4 client that it is: such a network is one of IPv4.
    let (address, bits) = match address.to_canonical() {
        canonical @ IpAddr::V4(_) if address.is_ipv6() && bits >= 96 => (canonical, bits - 96),
        _ => (address, bits),
    };
    let masked = first_address(address, bits);
    if masked != address {
        return bad(
            "the address has bits set behind the network's".to_owned(),
            &format!("write `\"{masked}/{bits}\"` for the network, or `\"{address}\"` for the one address"),
        );
    }
    Ok(Network::Prefix { address, bits })
}

impl std::str::FromStr for Network {
    type Err = String;

    /// As settings say it: `10.0.0.0/8`, `::1`, `all`, `local`, `unix`.
    fn from_str(text: &str) -> Result<Network, String> {
        network(text).map_err(|error| format!("{}; {}", error.message, error.help))
    }
}

/// Fields that the server itself sets, and where they are set instead.
#[rustfmt::skip]
const OWNED: &[(&str, &str)] = &[
    ("accept-ranges", "the server sets it"),
    ("cache-control", "use `cache-control` or `expires`"),
    ("connection", "the server sets it"),
    ("content-encoding", "use `compress` or `precompressed`"),
    ("content-length", "the server counts it"),
    ("content-range", "the server sets it"),
    ("content-type", "use `types`, `default-type` and `charset`"),
    ("date", "the server sets it"),
    ("etag", "the server makes it"),
    ("expires", "use `expires`"),
    ("keep-alive", "use `limits { keep-alive-timeout \"60s\" }`"),
    ("last-modified", "the server takes it from the file"),
    ("location", "use `redirect`"),
    ("proxy-connection", "the server sets what holds for the connection"),
    ("server", "use `server-field`"),
    ("te", "the server sets what holds for the connection"),
    ("trailer", "the server sets what holds for the connection"),
    ("transfer-encoding", "the server sets what holds for the connection"),
    ("upgrade", "the server sets what holds for the connection"),
];

/// Reads the name of a response field (RFC 9110 section 5.1).
pub(super) fn field_name(text: &str) -> Result<String, ValueError> {
    if !is_token(text) || text.len() > 256 {
        let help = match text.split_once(':') {
            Some((name, value)) if is_token(name) && !value.trim().is_empty() => {
                format!("write the name and the value apart: `\"{name}\" \"{}\"`", value.trim())
            }
            Some((name, _)) if is_token(name) => format!("write it without the `:`: `\"{name}\"`"),
            _ => "a field name holds letters, digits and `-`, and no `:`".to_owned(),
        };
        return Err(ValueError::new(format!("`{text}` is no field name"), help));
    }
    if let Some((_, help)) = OWNED.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Err(ValueError::new(format!("the field `{text}` belongs to the server"), *help));
    }
    Ok(text.to_owned())
}

/// Reads the value of a field (RFC 9110 section 5.5): visible ASCII, spaces and tabs, none at the ends.
pub(super) fn field_value(text: &str) -> Result<String, ValueError> {
    if let Some(character) = text.chars().find(|character| !matches!(character, ' '..='~' | '\t')) {
        let what = match character {
            '\r' | '\n' => "a line end, which would begin another field".to_owned(),
            character if character.is_ascii() => "a control character".to_owned(),
            character => format!("`{character}`, which is not ASCII"),
        };
        return Err(ValueError::new(
            format!("the field value holds {what}"),
            "a field value holds visible ASCII characters and spaces",
        ));
    }
    if text.len() > 8192 {
        return Err(ValueError::new(
            "the field value is longer than 8 KiB",
            "clients refuse such fields; shorten it",
        ));
    }
    Ok(text.trim_matches([' ', '\t']).to_owned())
}

/// Whether two field names are the same field.
pub(crate) fn field_names_agree(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right)
}

/// Reads a media type, parameters allowed (RFC 9110 section 8.3.1).
pub(super) fn media_type(text: &str) -> Result<String, ValueError> {
    let value = field_value(text)?;
    let essence = value.split(';').next().unwrap_or("").trim_end();
    match essence.split_once('/') {
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Ok(value),
        _ => Err(ValueError::new(
            format!("`{text}` is no media type"),
            "write a type and a subtype: `\"text/html\"`",
        )),
    }
}

/// Reads a token (RFC 9110 section 5.6.2).
pub(super) fn token(text: &str) -> Result<String, ValueError> {
    if is_token(text) && text.len() <= 64 {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(
        format!("`{text}` is no name that can stand here"),
        "it holds letters, digits and `-`, 64 at most",
    ))
}

/// The name that is meant by a text which is none: one without what cannot stand in it.
pub(crate) fn meant_token(text: &str) -> Option<String> {
    let words = text.split(|character: char| !is_token(character.encode_utf8(&mut [0; 4])));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let meant = words.join("-");
    (text.is_ascii() && !meant.is_empty() && meant.len() <= 64).then_some(meant)
}

/// Reads tokens with commas between them.
pub(super) fn tokens(text: &str) -> Result<String, ValueError> {
    let is_sound = text.len() <= 4096 && text.split(',').all(|token| is_token(token.trim()));
    is_sound.then(|| text.to_owned()).ok_or_else(|| {
        ValueError::new(
            format!("`{text}` is no list of names"),
            "write names with commas between them: `\"GET,POST\"`",
        )
    })
}

/// Reads an origin (RFC 6454 section 6.2) in which a star stands for the beginning of a host name or a port, or `*`.
pub(super) fn origin(text: &str) -> Result<String, ValueError> {
    let bad = |why: &str, help: String| Err(ValueError::new(format!("`{text}` is no origin: {why}"), help));
    if matches!(text, "*" | "credentials") {
        return Ok(text.to_owned());
    }
    let Some((scheme, authority)) = text.split_once("://") else {
        return bad("it names no scheme", format!("write `\"https://{text}\"`"));
    };
    if !matches!(scheme, "http" | "https") {
        return bad(
            "its scheme is neither `http` nor `https`",
            "write `\"https://app.example.com\"`".to_owned(),
        );
    }
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(']') || authority.starts_with('[') => (name, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| port != "*" && port.parse::<u16>().is_err()) {
        return bad("its port is no number", "write `\"https://app.example.com:8443\"`".to_owned());
    }
    match host(name) {
        Ok(HostPattern::Exact(known) | HostPattern::Suffix(known))
            if name.trim_start_matches('*') == known =>
        {
            Ok(text.to_owned())
        }
        _ => bad(
            "browsers write host names in lower case, with nothing behind",
            "write `\"https://app.example.com\"` or `\"https://*.example.com\"`".to_owned(),
        ),
    }
}

/// Reads the tag of a language (RFC 5646).
pub(super) fn language(text: &str) -> Result<String, ValueError> {
    let fits =
        |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let first = text.split('-').next().unwrap_or_default();
    match text.split('-').all(fits) && first.len() > 1 && first.bytes().all(|byte| byte.is_ascii_alphabetic())
    {
        true => Ok(text.to_owned()),
        false => {
            Err(ValueError::new(format!("`{text}` is no language"), "write its tag: `\"en\"`, `\"pt-BR\"`"))
        }
    }
}

/// Reads codes of countries.
pub(super) fn countries(text: &str) -> Result<Vec<Country>, ValueError> {
    text.split(',').map(|code| country(code.trim())).collect()
}

/// Reads names that clients may have, with commas between them. No client is called by an address.
pub(super) fn client_names(text: &str) -> Result<Vec<HostPattern>, ValueError> {
    let read = |name: &str| match host(name.trim())? {
        HostPattern::Exact(name) if name.starts_with('[') || name.parse::<IpAddr>().is_ok() => {
            Err(ValueError::new(
                format!("`{name}` is an address, not a name"),
                format!("write it without `name=`: `\"{name}\"`"),
            ))
        }
        pattern => Ok(pattern),
    };
    text.split(',').map(read).collect()
}

/// Reads the code of a country.
pub(crate) fn country(text: &str) -> Result<Country, ValueError> {
    Country::read(text).map_err(|help| ValueError::new(format!("`{text}` is no country"), help))
}

/// Reads days, hours and a time zone.
pub(crate) fn time_window(text: &str) -> Result<TimeWindow, ValueError> {
    TimeWindow::read(text).map_err(|why| {
        ValueError::new(
            format!("`{text}` is no time: {why}"),
            "write days, hours and a time zone: `\"Mon-Fri 08:00-18:00 Europe/Berlin\"`",
        )
    })
}

/// Reads the extension of a file name, lower-cased.
pub(super) fn extension(text: &str) -> Result<String, ValueError> {
    let fits = !text.is_empty() && text.len() <= 64 && !text.contains(['/', '.', '*', '\0', ' ']);
    if fits {
        return Ok(text.to_lowercase());
    }
    let help = match text.trim_start_matches(['*', '.']) {
        "" => "write it without its dot: `\"wasm\"`".to_owned(),
        bare => {
            format!("write it without its dot: `\"{bare}\"`; only what follows the last dot of a name counts")
        }
    };
    Err(ValueError::new(format!("`{text}` is no extension"), help))
}

/// Whether a text is a token of RFC 9110.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let exact = |name: &str| Some(HostPattern::Exact(name.to_owned()));
        for (text, expected) in [
            ("Example.COM.", exact("example.com")),
            ("localhost", exact("localhost")),
            ("127.0.0.1", exact("127.0.0.1")),
            ("[::1]", exact("[::1]")),
            ("::1", exact("[::1]")),
            ("0:0:0:0:0:0:0:1", exact("[::1]")),
            ("[0:0::0:1]", exact("[::1]")),
            ("*.Example.com", Some(HostPattern::Suffix(".example.com".to_owned()))),
            ("", None),
            ("a..b", None),
            ("*", None),
            ("a.*.b", None),
            ("*a.b", None),
            ("example.com:80", None),
            ("http://example.com", None),
            ("bücher.example", None),
            ("-a.b", None),
        ] {
            assert_eq!(host(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn hosts_that_applications_are_told() {
        let long = format!("{}.elb.example.com", "a".repeat(63));
        for text in ["app.internal", "App_1.internal", "localhost", "10.0.0.1", "[2001:db8::1]", &long] {
            assert_eq!(told_host(text).as_deref(), Ok(text));
        }
        assert_eq!(told_host("2001:db8::1").as_deref(), Ok("[2001:db8::1]"));
        for (text, why, help) in [
            ("app.internal:8080", "it holds a port", "`\"app.internal\"`"),
            ("[::1]:8080", "it holds a port", "`\"[::1]\"`"),
            ("$host", "has no placeholders", OF_CLIENT),
            ("$http_host", "has no placeholders", OF_CLIENT),
            ("{host}", "has no placeholders", OF_CLIENT),
            ("{http.request.host}", "has no placeholders", OF_CLIENT),
            ("$proxy_host", "has no placeholders", "write the name as it is"),
            ("*.example.com", "a star stands for no one name", "as it is"),
            ("a b", "holds other characters", "letters, digits"),
            (&"a".repeat(64), "longer than 63 characters", "63 between two dots"),
            (&"a.".repeat(128), "longer than 253 characters", "253 characters at most"),
        ] {
            let error = told_host(text.trim_end_matches('.')).unwrap_err();
            assert!(error.message.ends_with(why), "{text}: {}", error.message);
            assert!(error.help.contains(help), "{text}: {}", error.help);
        }
    }

    #[test]
    fn addresses() {
        let tcp = |text: &str| Some(ListenAddress::Tcp(text.parse().unwrap()));
        for (text, expected) in [
            ("127.0.0.1:8080", tcp("127.0.0.1:8080")),
            ("[::1]:80", tcp("[::1]:80")),
            (":80", tcp("[::]:80")),
            ("*:80", tcp("[::]:80")),
            ("8080", tcp("[::]:8080")),
            ("0.0.0.0:0", tcp("0.0.0.0:0")),
            ("unix:run/x", Some(ListenAddress::Unix("/base/run/x".into()))),
            ("unix:", None),
            ("/run/x", None),
            ("localhost:80", None),
            ("::1", None),
            ("127.0.0.1", None),
            (":99999", None),
            ("", None),
            (":", None),
        ] {
            assert_eq!(address(text, Path::new("/base")).ok(), expected, "{text}");
        }
    }

    #[test]
    fn networks() {
        let prefix = |text: &str, bits| Some(Network::Prefix { address: text.parse().unwrap(), bits });
        for (text, expected) in [
            ("all", Some(Network::All)),
            ("unix", Some(Network::Unix)),
            ("local", Some(Network::Local)),
            ("10.0.0.0/8", prefix("10.0.0.0", 8)),
            ("0.0.0.0/0", prefix("0.0.0.0", 0)),
            ("::1", prefix("::1", 128)),
            ("2001:db8::/32", prefix("2001:db8::", 32)),
            ("::ffff:10.0.0.0/104", prefix("10.0.0.0", 8)),
            ("::ffff:10.0.0.7", prefix("10.0.0.7", 32)),
            ("::ffff:0:0/96", prefix("0.0.0.0", 0)),
            ("::/0", prefix("::", 0)),
            ("10.0.0.1/8", None),
            ("::ffff:10.0.0.1/104", None),
            ("10.0.0.0/33", None),
            ("10.0.0", None),
            ("example.com", None),
        ] {
            assert_eq!(network(text).ok(), expected, "{text}");
        }
        for (text, help) in [
            ("example.com", "what a client is called is `name=\"example.com\"`; write"),
            ("DE", "a country is `country=\"DE\"`"),
            ("10.0.0", "write `\"all\"`"),
        ] {
            let error = network(text).unwrap_err();
            assert!(error.help.starts_with(help), "{text}: {}", error.help);
        }
    }

    #[test]
    fn fields() {
        assert!(field_name("X-Frame-Options").is_ok());
        for name in ["", "a b", "a:", "Content-Length", "DATE", "é"] {
            assert!(field_name(name).is_err(), "{name}");
        }
        assert_eq!(field_value(" a\tb ").as_deref(), Ok("a\tb"));
        for value in ["a\r\nb", "a\0", "é"] {
            assert!(field_value(value).is_err(), "{value:?}");
        }
    }
}
