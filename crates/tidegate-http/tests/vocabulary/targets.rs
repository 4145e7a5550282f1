//! `target`, `authority`, `method`, `status`.

use proptest::prelude::*;
use tidegate_http::{Authority, AuthorityError, Method, Status, Target, TargetError};

#[test]
fn targets() {
    use Method::{Connect, Get, Options};
    let host = |host, port| Authority { host, port };
    let cases: &[(Method, &str, Result<Target<'_>, TargetError>)] = &[
        (Get, "/", Ok(Target::Origin { path: "/", query: None })),
        (Get, "/a?b?c", Ok(Target::Origin { path: "/a", query: Some("b?c") })),
        (Get, "/a?", Ok(Target::Origin { path: "/a", query: Some("") })),
        (Get, "//a", Ok(Target::Origin { path: "//a", query: None })),
        (Get, "/{a}|\"b\"", Ok(Target::Origin { path: "/{a}|\"b\"", query: None })),
        (
            Get,
            "http://example.com:80/a?b",
            Ok(Target::Absolute {
                scheme: "http",
                authority: host("example.com", Some(80)),
                path: "/a",
                query: Some("b"),
            }),
        ),
        (
            Get,
            "http://example.com?b/c",
            Ok(Target::Absolute {
                scheme: "http",
                authority: host("example.com", None),
                path: "/",
                query: Some("b/c"),
            }),
        ),
        (
            Options,
            "http://example.com",
            Ok(Target::Absolute {
                scheme: "http",
                authority: host("example.com", None),
                path: "*",
                query: None,
            }),
        ),
        (Options, "*", Ok(Target::Asterisk)),
        (Get, "*", Err(TargetError::WrongForm)),
        (Connect, "example.com:443", Ok(Target::Authority(host("example.com", Some(443))))),
        (Connect, "[::1]:443", Ok(Target::Authority(host("[::1]", Some(443))))),
        (Connect, "example.com", Err(TargetError::MissingPort)),
        (Connect, "example.com:", Err(TargetError::MissingPort)),
        (Connect, "/", Err(TargetError::Authority(AuthorityError::InvalidHost))),
        (Get, "example.com:443", Err(TargetError::WrongForm)),
        (Get, "", Err(TargetError::Empty)),
        (Get, "a", Err(TargetError::WrongForm)),
        (Get, "/a#b", Err(TargetError::Fragment)),
        (Get, "/a b", Err(TargetError::InvalidCharacter)),
        (Get, "/a\tb", Err(TargetError::InvalidCharacter)),
        (Get, "/a\u{7f}", Err(TargetError::InvalidCharacter)),
        (Get, "/\u{e4}", Err(TargetError::InvalidCharacter)),
        (Get, "1http://a/", Err(TargetError::WrongForm)),
        (Get, "://a/", Err(TargetError::WrongForm)),
        (Get, "/a://b", Ok(Target::Origin { path: "/a://b", query: None })),
        (Get, "http://u:p@a/", Err(TargetError::Authority(AuthorityError::Userinfo))),
        (Get, "http:///a", Err(TargetError::Authority(AuthorityError::EmptyHost))),
    ];
    for (method, text, expected) in cases {
        assert_eq!(Target::parse(*method, text), *expected, "{method:?} {text}");
    }
    assert_eq!(Target::parse(Options, "http://a").map(|target| target.path()), Ok(None));
}

#[test]
fn authorities() {
    use AuthorityError::{EmptyHost, InvalidAddress, InvalidHost, InvalidPort, Userinfo};
    type Row<'a> = (&'a str, Result<(&'a str, Option<u16>), AuthorityError>);
    let cases: &[Row<'_>] = &[
        ("example.com", Ok(("example.com", None))),
        ("EXAMPLE.com.:8080", Ok(("EXAMPLE.com.", Some(8080)))),
        ("example.com:", Ok(("example.com", None))),
        ("127.0.0.1:1", Ok(("127.0.0.1", Some(1)))),
        ("[::1]", Ok(("[::1]", None))),
        ("[2001:db8::1]:65535", Ok(("[2001:db8::1]", Some(65535)))),
        ("[::ffff:1.2.3.4]:", Ok(("[::ffff:1.2.3.4]", None))),
        ("a_b%20c", Ok(("a_b%20c", None))),
        ("", Err(EmptyHost)),
        (":80", Err(EmptyHost)),
        (".", Err(EmptyHost)),
        ("a:65536", Err(InvalidPort)),
        ("a:+80", Err(InvalidPort)),
        ("a:80:80", Err(InvalidPort)),
        ("a:8 0", Err(InvalidPort)),
        ("a/b", Err(InvalidHost)),
        ("a b", Err(InvalidHost)),
        ("a,b?", Err(InvalidHost)),
        ("a%2", Err(InvalidHost)),
        ("a%zz", Err(InvalidHost)),
        ("a\\b", Err(InvalidHost)),
        ("\u{e4}", Err(InvalidHost)),
        ("::1", Err(EmptyHost)),
        ("[::1", Err(InvalidAddress)),
        ("[1.2.3.4]", Err(InvalidAddress)),
        ("[fe80::1%25eth0]", Err(InvalidAddress)),
        ("[v1.a]", Err(InvalidAddress)),
        ("[::1]80", Err(InvalidPort)),
        ("u@a", Err(Userinfo)),
        ("u:p@a:80", Err(Userinfo)),
    ];
    for (text, expected) in cases {
        let found = Authority::parse(text.as_bytes()).map(|authority| (authority.host, authority.port));
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn methods() {
    for name in ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"] {
        assert_eq!(Method::from_token(name).as_str(), name);
    }
    assert_eq!(Method::from_token("get"), Method::Other);
    assert!(Method::Head.is_safe() && !Method::Put.is_safe() && !Method::Other.is_safe());
}

#[test]
fn statuses() {
    assert_eq!(Status::NOT_FOUND.reason(), "Not Found");
    assert_eq!(Status(299).reason(), "");
    assert!(!Status::NOT_MODIFIED.has_body());
    assert!(!Status::CONTINUE.has_body() && !Status::NO_CONTENT.has_body() && Status::OK.has_body());
    assert!(Status(599).is_error() && Status(400).is_error() && !Status(600).is_error());
}

proptest! {
    #[test]
    fn never_panics(text in "(https?://)?[\\[\\]:@%a-f0-9/?#.*\\PC]{0,30}") {
        for method in [Method::Get, Method::Connect, Method::Options] {
            let _ = Target::parse(method, &text);
        }
        if let Ok(authority) = Authority::parse(text.as_bytes()) {
            prop_assert!(!authority.host.is_empty());
            prop_assert!(!authority.host.contains(['@', '/', '?', '#', ' ']));
        }
    }
}
