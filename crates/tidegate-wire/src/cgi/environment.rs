//! The variables that tell an application of a request (RFC 3875 section 4.1), written once for CGI, FastCGI
//! and SCGI.
//!
//! What a client sends can only become `HTTP_…` variables, and not all of it: names with an underscore would
//! take the place of others, `Proxy` would be `HTTP_PROXY`, which libraries take for a setting, and
//! connection fields are between the client and this server (FAULTS 36).

use crate::h1::bytes::is_word_all;
use smallvec::SmallVec;
use tidegate_http::words::eq_ignore_case;
use tidegate_http::{Field, Fields};

/// Says one thing however often and whatever it says (RFC 8470 section 5.1), so it is written by
/// [`Environment::write`] alone.
const EARLY_DATA: &str = "early-data";

/// Takes variables.
pub trait Sink {
    /// One variable. Names come once each.
    fn variable(&mut self, name: &[u8], value: &[u8]);
}

impl<F: FnMut(&[u8], &[u8])> Sink for F {
    #[inline(always)]
    fn variable(&mut self, name: &[u8], value: &[u8]) {
        self(name, value);
    }
}

/// A client that has shown a certificate, and whoever vouches for it has been verified.
#[derive(Debug, Clone, Copy)]
pub struct ClientCertificate<'a> {
    /// `SSL_CLIENT_S_DN`: whom it is for.
    pub subject: &'a str,
    /// `SSL_CLIENT_I_DN`: who has signed it.
    pub issuer: &'a str,
    /// `SSL_CLIENT_M_SERIAL`: its serial number, hexadecimal.
    pub serial: &'a str,
}

/// What the variables say. What is empty is written as an empty value where RFC 3875 demands the variable,
/// and left out where it does not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment<'a> {
    /// `SERVER_SOFTWARE`
    pub server_software: &'a str,
    /// `SERVER_NAME`: the host the client asked for, without port.
    pub server_name: &'a str,
    /// `SERVER_PORT`
    pub server_port: u16,
    /// `SERVER_ADDR`, where there is one.
    pub server_addr: &'a str,
    /// `SERVER_PROTOCOL`: `HTTP/1.1`.
    pub server_protocol: &'a str,
    /// `REQUEST_METHOD`
    pub request_method: &'a str,
    /// `REQUEST_URI`: the target as sent.
    pub request_uri: &'a str,
    /// `REQUEST_SCHEME`; `HTTPS` is `on` where it is `https`.
    pub request_scheme: &'a str,
    /// `QUERY_STRING`: behind the `?`, as sent.
    pub query_string: &'a str,
    /// `SCRIPT_NAME`: the part of the path that leads to the script, decoded.
    pub script_name: &'a [u8],
    /// `SCRIPT_FILENAME`, where the script is a file.
    pub script_filename: &'a [u8],
    /// `PATH_INFO`: the part of the path behind the script, decoded.
    pub path_info: &'a [u8],
    /// `PATH_TRANSLATED`, where there is a `PATH_INFO` and a root.
    pub path_translated: &'a [u8],
    /// `DOCUMENT_ROOT`, where there is one.
    pub document_root: &'a [u8],
    /// `REMOTE_ADDR`
    pub remote_addr: &'a str,
    /// `REMOTE_USER`: who has logged in.
    pub remote_user: Option<&'a str>,
    /// `AUTH_TYPE`: by which scheme, where the request itself has shown it.
    pub auth_type: Option<&'a str>,
    /// `REMOTE_PORT`, where there is one.
    pub remote_port: Option<u16>,
    /// `CONTENT_LENGTH`, where the request has content.
    pub content_length: Option<u64>,
    /// `SSL_CLIENT_VERIFY`, which is `SUCCESS`, and what the certificate says; without one none of these is there.
    pub client: Option<ClientCertificate<'a>>,
    /// `HTTP_EARLY_DATA`, which is `1`: the request may have been played again by somebody (RFC 8470).
    pub is_early: bool,
    /// `HTTP_X_REQUEST_ID`, where the server gives ids.
    pub request_id: Option<&'a str>,
    /// `HTTP_TRACEPARENT`, and `HTTP_TRACESTATE` unless it is empty, where the server begins traces.
    pub trace: Option<(&'a str, &'a str)>,
    /// `CONTENT_TYPE` and the `HTTP_…` variables come from here.
    pub fields: Fields<'a>,
    /// From the settings; these take the place of those above, and an empty value leaves one out.
    pub extra: &'a [(String, String)],
}

impl Environment<'_> {
    /// Writes all variables. `accepts` says of a field whether the application may see it, beside
    /// [`is_passed_on`].
    pub fn write(&self, sink: &mut impl Sink, accepts: impl Fn(&Field<'_>) -> bool) {
        self.write_fixed(sink);
        self.write_server(sink);
        self.write_request(sink, accepts);
    }

    /// Writes the variables that are the same for all requests of a route: of `server_software`, `document_root` and
    /// `extra` alone.
    pub fn write_fixed(&self, sink: &mut impl Sink) {
        let mut beside = Beside { extra: self.extra, sink };
        beside.put("GATEWAY_INTERFACE", b"CGI/1.1");
        beside.put("SERVER_SOFTWARE", self.server_software.as_bytes());
        beside.put("REDIRECT_STATUS", b"200"); // php-cgi wants to know that a server has started it
        if !self.document_root.is_empty() {
            beside.put("DOCUMENT_ROOT", self.document_root);
        }
        for (name, value) in self.extra.iter().filter(|(_, value)| !value.is_empty()) {
            sink.variable(name.as_bytes(), value.as_bytes());
        }
    }

    /// Writes the variables that tell of the server as a request has reached it: of those whose names begin with `server_`,
    /// beside `server_software`, of `request_scheme` and `extra` alone.
    pub fn write_server(&self, sink: &mut impl Sink) {
        let mut beside = Beside { extra: self.extra, sink };
        beside.put("SERVER_NAME", self.server_name.as_bytes());
        beside.put("SERVER_PORT", itoa::Buffer::new().format(self.server_port).as_bytes());
        beside.put("SERVER_PROTOCOL", self.server_protocol.as_bytes());
        beside.put("REQUEST_SCHEME", self.request_scheme.as_bytes());
        if self.request_scheme == "https" {
            beside.put("HTTPS", b"on");
        }
        if !self.server_addr.is_empty() {
            beside.put("SERVER_ADDR", self.server_addr.as_bytes());
        }
    }

    /// Writes all others. Inlined: each protocol calls it once, and what most requests do not have is known there.
    #[inline(always)]
    pub fn write_request(&self, sink: &mut impl Sink, accepts: impl Fn(&Field<'_>) -> bool) {
        let mut beside = Beside { extra: self.extra, sink };
        let mut number = itoa::Buffer::new();
        beside.put("REQUEST_METHOD", self.request_method.as_bytes());
        beside.put("REQUEST_URI", self.request_uri.as_bytes());
        beside.put("QUERY_STRING", self.query_string.as_bytes());
        beside.put("SCRIPT_NAME", self.script_name);
        beside.put("REMOTE_ADDR", self.remote_addr.as_bytes());
        if !self.script_filename.is_empty() {
            beside.put("SCRIPT_FILENAME", self.script_filename);
        }
        if !self.path_info.is_empty() {
            beside.put("PATH_INFO", self.path_info);
        }
        if !self.path_translated.is_empty() {
            beside.put("PATH_TRANSLATED", self.path_translated);
        }
        if let Some(port) = self.remote_port {
            beside.put("REMOTE_PORT", number.format(port).as_bytes());
        }
        if let Some(user) = self.remote_user {
            beside.put("REMOTE_USER", user.as_bytes());
        }
        if let Some(scheme) = self.auth_type.filter(|_| self.remote_user.is_some()) {
            beside.put("AUTH_TYPE", scheme.as_bytes());
        }
        if let Some(length) = self.content_length {
            beside.put("CONTENT_LENGTH", number.format(length).as_bytes());
        }
        let (mut media_type, mut is_early) = (None, self.is_early);
        for field in self.fields.iter() {
            match field.name.len() {
                10 => is_early |= field.is(EARLY_DATA),
                12 if media_type.is_none() && field.is("content-type") => media_type = Some(field.value),
                _ => {}
            }
        }
        if let Some(media_type) = media_type {
            beside.put("CONTENT_TYPE", media_type);
        }
        if let Some(client) = &self.client {
            beside.put("SSL_CLIENT_VERIFY", b"SUCCESS");
            beside.put("SSL_CLIENT_S_DN", client.subject.as_bytes());
            beside.put("SSL_CLIENT_I_DN", client.issuer.as_bytes());
            beside.put("SSL_CLIENT_M_SERIAL", client.serial.as_bytes());
        }
        if is_early {
            beside.put("HTTP_EARLY_DATA", b"1");
        }
        if let Some(id) = self.request_id {
            beside.put("HTTP_X_REQUEST_ID", id.as_bytes());
        }
        if let Some((parent, state)) = self.trace {
            beside.put("HTTP_TRACEPARENT", parent.as_bytes());
            if !state.is_empty() {
                beside.put("HTTP_TRACESTATE", state.as_bytes());
            }
        }
        self.fields(&mut beside, accepts);
    }

    fn fields(&self, beside: &mut Beside<'_, impl Sink>, accepts: impl Fn(&Field<'_>) -> bool) {
        for (at, field) in self.fields.iter().enumerate() {
            if !is_passed_on(field.name) || !accepts(field) {
                continue;
            }
            let same = |other: &&Field<'_>| other.is(field.name);
            if self.fields.iter().take(at).find(same).is_some() {
                continue; // written where the first of them stands
            }
            let name = variable_of(field.name);
            if self.fields.iter().skip(at + 1).find(same).is_none() {
                beside.put_bytes(&name, field.value);
                continue;
            }
            // Several lines are one value (RFC 3875 section 4.1.18).
            let separator: &[u8] = if field.name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
            let values: Vec<&[u8]> = self.fields.all(field.name).collect();
            beside.put_bytes(&name, &values.join(separator));
        }
    }
}

/// What is written beside the variables of the settings, which take the place of others.
struct Beside<'s, S> {
    extra: &'s [(String, String)],
    sink: &'s mut S,
}

impl<S: Sink> Beside<'_, S> {
    /// Inlined, since most names are known beforehand.
    #[inline(always)]
    fn put(&mut self, name: &str, value: &[u8]) {
        self.put_bytes(name.as_bytes(), value);
    }

    #[inline(always)]
    fn put_bytes(&mut self, name: &[u8], value: &[u8]) {
        if self.extra.is_empty() || !self.extra.iter().any(|(known, _)| known.as_bytes() == name) {
            self.sink.variable(name, value);
        }
    }
}

/// Bytes of the names of most variables.
const USUAL_NAME: usize = 64;

/// `HTTP_…`: the name of the variable that a field becomes.
fn variable_of(name: &str) -> SmallVec<[u8; USUAL_NAME]> {
    const PREFIX: &[u8; 5] = b"HTTP_";
    let capital = |byte: &mut u8| *byte = if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    let len = PREFIX.len() + name.len();
    let mut usual = [0; USUAL_NAME];
    if let Some(place) = usual.get_mut(PREFIX.len()..len) {
        place.copy_from_slice(name.as_bytes());
        // All of the memory, or half of it, at once: those lengths are known beforehand.
        match usual.first_chunk_mut::<{ USUAL_NAME / 2 }>().filter(|half| len <= half.len()) {
            Some(half) => half.iter_mut().for_each(capital),
            None => usual.iter_mut().for_each(capital),
        }
        usual[..PREFIX.len()].copy_from_slice(PREFIX);
        return SmallVec::from_buf_and_len(usual, len);
    }
    let mut variable = SmallVec::from_slice(PREFIX);
    variable.extend_from_slice(name.as_bytes());
    variable.iter_mut().skip(PREFIX.len()).for_each(capital);
    variable
}

/// Whether a field of the request becomes a variable. Names are tokens; those with anything but letters,
/// digits and `-` could take the place of another one.
pub fn is_passed_on(name: &str) -> bool {
    let is = |never: &str| eq_ignore_case(name.as_bytes(), never.as_bytes());
    let is_never = match name.len() {
        2 => is("te"),
        5 => is("proxy"),
        6 => is("expect"),
        7 => is("trailer") || is("upgrade"),
        10 => is(EARLY_DATA) || is("connection") || is("keep-alive"),
        12 => is("content-type"),
        14 => is("content-length") || is("http2-settings"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        19 => is("proxy-authorization"),
        _ => false,
    };
    !is_never && is_unambiguous(name)
}

/// Whether applications can tell a name from all others: in variables and in some frameworks everything but letters and
/// digits becomes `_`, so that `X.Real.IP` and `X_Real_IP` would be taken for `X-Real-IP` (FAULTS 36).
#[inline]
pub fn is_unambiguous(name: &str) -> bool {
    is_word_all(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tidegate_http::Field;

    #[test]
    fn names_of_any_length_become_variables() {
        for len in [1, 7, 58, 59, 60, 200] {
            let name: String = "aZ-09b-_".chars().cycle().take(len).collect();
            let expected = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
            assert_eq!(variable_of(&name).as_slice(), expected.as_bytes());
        }
    }

    fn written(environment: &Environment<'_>) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let mut sink = |name: &[u8], value: &[u8]| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(out.insert(text(name), text(value)).is_none(), "{} twice", text(name));
        };
        environment.write(&mut sink, |field| !field.name.eq_ignore_ascii_case("x-sendfile"));
        out
    }

    #[test]
    fn a_request_for_a_script() {
        let field = |name, value: &'static str| Field { name, value: value.as_bytes() };
        let fields = [
            field("Host", "example.com:8080"),
            field("Cookie", "a=1"),
            field("Content-Type", "text/plain"),
            field("Content-Length", "3"),
            field("Accept", "text/html"),
            field("cookie", "b=2"),
            field("ACCEPT", "*/*"),
            field("Proxy", "http://evil/"),
            field("X_Forwarded_For", "evil"),
            field("X.Y", "evil"),
            field("X-Sendfile", "/etc/passwd"),
            field("Connection", "close"),
            field("Authorization", "Basic eA=="),
        ];
        let extra = [("APP_ENV".to_owned(), "live".to_owned()), ("SERVER_NAME".to_owned(), "set".to_owned())];
        let environment = Environment {
            server_software: "Tidegate",
            server_name: "example.com",
            server_port: 8080,
            server_protocol: "HTTP/1.1",
            request_method: "POST",
            request_uri: "/a.php/b?c=d",
            request_scheme: "https",
            query_string: "c=d",
            script_name: b"/a.php",
            script_filename: b"/srv/a.php",
            path_info: b"/b",
            path_translated: b"/srv/b",
            document_root: b"/srv",
            remote_addr: "192.0.2.1",
            remote_port: Some(4711),
            content_length: Some(3),
            fields: Fields::new(&fields),
            extra: &extra,
            ..Environment::default()
        };
        let expected: BTreeMap<String, String> = [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "Tidegate"),
            ("SERVER_NAME", "set"),
            ("SERVER_PORT", "8080"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_METHOD", "POST"),
            ("REDIRECT_STATUS", "200"),
            ("REQUEST_URI", "/a.php/b?c=d"),
            ("REQUEST_SCHEME", "https"),
            ("HTTPS", "on"),
            ("QUERY_STRING", "c=d"),
            ("SCRIPT_NAME", "/a.php"),
            ("SCRIPT_FILENAME", "/srv/a.php"),
            ("PATH_INFO", "/b"),
            ("PATH_TRANSLATED", "/srv/b"),
            ("DOCUMENT_ROOT", "/srv"),
            ("REMOTE_ADDR", "192.0.2.1"),
            ("REMOTE_PORT", "4711"),
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "text/plain"),
            ("HTTP_HOST", "example.com:8080"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_ACCEPT", "text/html, */*"),
            ("HTTP_AUTHORIZATION", "Basic eA=="),
            ("APP_ENV", "live"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(written(&environment), expected);
    }

    #[test]
    fn who_the_client_is_and_how_early_it_came() {
        let certificate = ClientCertificate { subject: "CN=alice", issuer: "CN=ca", serial: "01" };
        let client = written(&Environment { client: Some(certificate), ..Environment::default() });
        for (name, value) in [
            ("SSL_CLIENT_VERIFY", "SUCCESS"),
            ("SSL_CLIENT_S_DN", "CN=alice"),
            ("SSL_CLIENT_I_DN", "CN=ca"),
            ("SSL_CLIENT_M_SERIAL", "01"),
        ] {
            assert_eq!(client.get(name).map(String::as_str), Some(value), "{name}");
        }
        let one = [Field { name: "Early-Data", value: b"1" }];
        let two = [Field { name: "early-data", value: b"0" }, Field { name: "Early-Data", value: b"x" }];
        for (is_early, fields, expected) in [
            (false, &[][..], None),
            (true, &[], Some("1")),
            (false, &one, Some("1")),
            (true, &one, Some("1")),
            (false, &two, Some("1")),
        ] {
            let written =
                written(&Environment { is_early, fields: Fields::new(fields), ..Environment::default() });
            assert_eq!(written.get("HTTP_EARLY_DATA").map(String::as_str), expected, "{is_early} {fields:?}");
            assert!(!written.contains_key("SSL_CLIENT_VERIFY"));
        }
    }

    #[test]
    fn what_has_to_be_there() {
        let written = written(&Environment::default());
        let names: Vec<_> = written.keys().map(String::as_str).collect();
        let expected = [
            "GATEWAY_INTERFACE",
            "QUERY_STRING",
            "REDIRECT_STATUS",
            "REMOTE_ADDR",
            "REQUEST_METHOD",
            "REQUEST_SCHEME",
            "REQUEST_URI",
            "SCRIPT_NAME",
            "SERVER_NAME",
            "SERVER_PORT",
            "SERVER_PROTOCOL",
            "SERVER_SOFTWARE",
        ];
        assert_eq!(names, expected);
    }
}
