//! Groups, tags, and what a change makes invalid.

use tidegate_http::cache::groups::{LONGEST_GROUP, MOST_GROUPS, MOST_TAGS, groups, strip_tags, tags};
use tidegate_http::cache::{Base, Rules, invalidated};
use tidegate_http::{Authority, Method, Status};

use super::lines;

#[test]
#[rustfmt::skip]
fn groups_of_a_response() {
    for (clause, response, expected) in [
        ("9875-2", "Cache-Groups: \"scripts\", \"a b\"", vec!["scripts", "a b"]),
        ("9875-2 lines", "Cache-Groups: \"a\"\nCache-Groups: \"b\"", vec!["a", "b"]),
        ("9875-2 parameters", "Cache-Groups: \"a\";x=1", vec!["a"]),
        ("9875-2 not strings", "Cache-Groups: a, 1, (\"b\"), \"c\"", vec!["c"]),
        ("9651-4.2 not a list", "Cache-Groups: \"a\",", vec![]),
        ("9651-4.2 not ASCII", "Cache-Groups: \"\u{fc}\"", vec![]),
        ("9875-2 none", "X-A: 1", vec![]),
    ] {
        assert_eq!(groups(&lines(response)), expected, "{clause}");
    }
    let list: Vec<String> = (0..200).map(|number| format!("\"{number:032}\"")).collect();
    let found = groups(&lines(&format!("Cache-Groups: {}", list.join(", "))));
    assert_eq!(found.len(), MOST_GROUPS, "9875-2 at least 32 of at least 32 characters");
    assert_eq!(found[31], format!("{:032}", 31));
    let long = format!("Cache-Groups: \"{}\", \"b\"", "a".repeat(LONGEST_GROUP + 1));
    assert_eq!(groups(&lines(&long)), ["b"]);
}

#[test]
fn tags_of_a_response() {
    let found = |response: &str| {
        let lines = lines(response);
        tags(&lines).map(|tag| String::from_utf8_lossy(tag).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("Cache-Tag: a, b c ,,\nCache-Tag: d"), ["a", "b c", "d"]);
    assert_eq!(found("Surrogate-Key: a  b\nCache-Tag: c"), ["c", "a", "b"]);
    assert_eq!(found(&format!("Cache-Tag: {}", "a,".repeat(600))).len(), MOST_TAGS);
    assert_eq!(found(&format!("Cache-Tag: {}", "a".repeat(1025))), [""; 0]);
}

#[test]
fn tags_are_for_caches() {
    let keeping = Rules { keeps_tags: true, ..Rules::default() };
    for (rules, expected) in
        [(Rules::default(), "X-A: 1"), (keeping, "cache-tag: a\nX-A: 1\nSurrogate-Key: b")]
    {
        let mut found = lines("cache-tag: a\nX-A: 1\nSurrogate-Key: b");
        strip_tags(&mut found, &rules);
        assert_eq!(found, lines(expected));
    }
}

const BASE: Base<'_> = Base {
    scheme: "https",
    authority: Authority { host: "www.example.org", port: None },
    target: "/a/b?c=d",
};

#[test]
fn which_answers_invalidate() {
    let groups = "Cache-Group-Invalidation: \"g\"";
    for (clause, method, status, targets, groups_of) in [
        ("9111-4.4 POST", Method::Post, 200, 1, 1),
        ("9111-4.4 PUT", Method::Put, 201, 1, 1),
        ("9111-4.4 DELETE", Method::Delete, 204, 1, 1),
        ("9111-4.4 PATCH", Method::Patch, 303, 1, 1),
        ("9111-4.4 unknown", Method::Other, 207, 1, 1),
        ("9111-4.4 error", Method::Post, 404, 0, 1),
        ("9111-4.4 error", Method::Post, 500, 0, 1),
        ("9110-9.2.1, 9875-3 safe", Method::Get, 200, 0, 0),
        ("9110-9.2.1, 9875-3 safe", Method::Head, 200, 0, 0),
        ("9110-9.2.1, 9875-3 safe", Method::Options, 200, 0, 0),
    ] {
        let found = invalidated(method, Status(status), &BASE, &lines(groups));
        assert_eq!((found.targets.len(), found.groups.len()), (targets, groups_of), "{clause} {status}");
        assert!(found.targets.iter().all(|target| target == "/a/b?c=d"));
    }
    let many: Vec<String> = (0..1000).map(|number| format!("\"{number}\"")).collect();
    let many = lines(&format!("Cache-Group-Invalidation: {}", many.join(", ")));
    assert_eq!(
        invalidated(Method::Post, Status(200), &BASE, &many).groups.len(),
        1000,
        "not one is left out"
    );
}

#[test]
#[rustfmt::skip]
fn references_of_the_same_origin() {
    for (clause, reference, expected) in [
        ("3986-4.2 absolute path", "/x?y", Some("/x?y")),
        ("3986-4.2 network path", "//www.example.org/x", Some("/x")),
        ("3986-4.3 absolute", "https://WWW.example.org:443/x?y#z", Some("/x?y")),
        ("3986-4.3 absolute", "HTTPS://www.example.org", Some("/")),
        ("3986-4.3 absolute", "https://www.example.org?q", Some("/?q")),
        ("3986-5.2 relative", "x", Some("/a/x")),
        ("3986-5.2 relative", "../x/./y", Some("/x/y")),
        ("3986-5.2 relative", "../../../x", Some("/x")),
        ("3986-5.2 query alone", "?x", Some("/a/b?x")),
        ("3986-5.2 fragment alone", "#x", None),
        ("3986-5.2 a colon behind the first segment", "./x:y", Some("/a/x:y")),
        ("9111-4.4 another host", "https://example.org/x", None),
        ("9111-4.4 another host", "//evil.example/x", None),
        ("9111-4.4 another port", "https://www.example.org:8443/x", None),
        ("9111-4.4 another scheme", "http://www.example.org/x", None),
        ("9110-4.2.4 user", "https://www.example.org@evil.example/x", None),
        ("3986-5.2.2 no hierarchy", "https:x", None),
        ("no URI", "javascript:alert(1)", None),
        ("no URI", "/a b", None),
        ("no URI", "/\u{fc}", None),
    ] {
        for name in ["Location", "Content-Location"] {
            let found = invalidated(Method::Post, Status::OK, &BASE, &lines(&format!("{name}: {reference}")));
            let others: Vec<&str> = found.targets.iter().skip(1).map(String::as_str).collect();
            assert_eq!(others, expected.into_iter().collect::<Vec<_>>(), "{clause}: {reference}");
        }
    }
    let both = lines("Location: /x\nContent-Location: /x");
    assert_eq!(invalidated(Method::Post, Status::OK, &BASE, &both).targets, ["/a/b?c=d", "/x"], "once");
}
