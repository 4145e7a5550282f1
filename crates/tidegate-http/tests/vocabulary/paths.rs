//! `path`. FAULTS 32 is held here.

use proptest::prelude::*;
use tidegate_http::path::{
    PathError, behind_prefix, both_readings, encode_path, has_encoded_slash, is_reachable, normal_form,
    normalise, split_normal, without_dot_segments,
};
use tidegate_http::{Method, Status, Target};

#[test]
fn normalisation() {
    use PathError::{AboveRoot, DotParameter, EncodedSlash, MalformedPercent, NotAbsolute, Nul};
    type Row<'a> = (&'a str, &'a str, Result<&'a [u8], PathError>);
    let cases: &[Row<'_>] = &[
        ("root", "/", Ok(b"/")),
        ("plain", "/a/b.html", Ok(b"/a/b.html")),
        ("folder", "/a/", Ok(b"/a/")),
        ("hidden", "/.well-known/a", Ok(b"/.well-known/a")),
        ("three dots", "/.../a", Ok(b"/.../a")),
        ("dots in names", "/a../..b/c.", Ok(b"/a../..b/c.")),
        ("decoded", "/a%20b/%c3%A4", Ok(b"/a b/\xc3\xa4")),
        ("slashes", "//a///b//", Ok(b"/a/b/")),
        ("dot", "/a/./b/.", Ok(b"/a/b/")),
        ("dot-dot", "/a/b/../c", Ok(b"/a/c")),
        ("dot-dot at the end", "/a/b/..", Ok(b"/a/")),
        ("to the root", "/a/..", Ok(b"/")),
        ("to the root and on", "/a/../b", Ok(b"/b")),
        ("up with a parameter", "/a/..;/b", Err(DotParameter)),
        ("up with a parameter, encoded", "/a/%2e.%3bx=1/b", Err(DotParameter)),
        ("here with a parameter, at the end", "/a/.;", Err(DotParameter)),
        ("parameters", "/a;v=1/...;/..b;c", Ok(b"/a;v=1/...;/..b;c")),
        ("dot-dot over a merged slash", "/a//../b", Ok(b"/b")),
        ("encoded dots", "/a/%2e%2E/b", Ok(b"/b")),
        ("half encoded dots", "/a/.%2e/b", Ok(b"/b")),
        ("above", "/..", Err(AboveRoot)),
        ("above and back", "/../a", Err(AboveRoot)),
        ("above later", "/a/../../b", Err(AboveRoot)),
        ("above, encoded", "/%2e%2e/etc/passwd", Err(AboveRoot)),
        ("above, slashes merged", "/a//..//..", Err(AboveRoot)),
        ("encoded slash", "/a%2fb", Err(EncodedSlash)),
        ("encoded slash, traversal", "/..%2F..%2fetc/passwd", Err(EncodedSlash)),
        ("double encoding, dots", "/%252e%252e/a", Ok(b"/%2e%2e/a")),
        ("double encoding, slash", "/a%252fb", Ok(b"/a%2fb")),
        ("overlong slash", "/..%c0%af..%c0%afetc", Ok(b"/..\xc0\xaf..\xc0\xafetc")),
        ("overlong dots", "/%c0%ae%c0%ae/a", Ok(b"/\xc0\xae\xc0\xae/a")),
        ("backslash", "/..\\..\\etc", Ok(b"/..\\..\\etc")),
        ("encoded backslash", "/..%5c..%5cetc", Ok(b"/..\\..\\etc")),
        ("NUL", "/a%00.html", Err(Nul)),
        ("raw NUL", "/a\0", Err(Nul)),
        ("percent at the end", "/a%", Err(MalformedPercent)),
        ("one digit", "/a%2", Err(MalformedPercent)),
        ("one digit before a slash", "/a%2/b", Err(MalformedPercent)),
        ("no digits", "/a%zz", Err(MalformedPercent)),
        ("signed digits", "/a%+2", Err(MalformedPercent)),
        ("IIS unicode", "/%u002e%u002e/", Err(MalformedPercent)),
        ("empty", "", Err(NotAbsolute)),
        ("relative", "a/b", Err(NotAbsolute)),
        ("relative dots", "../a", Err(NotAbsolute)),
    ];
    for (name, raw, expected) in cases {
        let mut scratch = Vec::new();
        assert_eq!(normalise(raw, &mut scratch), *expected, "{name}");
    }
}

#[test]
fn encoded_slashes_are_read_both_ways() {
    let both =
        |raw: &str| both_readings(raw).map(|(a, b)| [a, b].map(|path| String::from_utf8(path).unwrap()));
    for (raw, separator, data) in [
        ("/projects/a%2Fb", "/projects/a/b", "/projects/a%2Fb"),
        ("/q/%2f/x%20y", "/q/x y", "/q/%2F/x y"),
        ("/a/../b%2Fc", "/b/c", "/b%2Fc"),
        ("/a%252Fb%2Fc", "/a%2Fb/c", "/a%2Fb%2Fc"),
    ] {
        assert_eq!(both(raw).unwrap(), [separator, data], "{raw}");
        assert!(has_encoded_slash(raw));
    }
    assert_eq!(both("/a/..%2F..%2Fb"), Err(PathError::AboveRoot));
    // For who resolves no dot segments it is below `/admin/`, for all others it is not.
    for raw in
        ["/a/b%2F..%2F..%2Fc", "/admin%2Fdelete%2F..%2F..%2Fx", "/a%2F%2e%2E%2Fb", "/a%2F.%2Fb", "/a%2F.."]
    {
        assert_eq!(both(raw), Err(PathError::EncodedSlash), "{raw}");
    }
    // With the dot segments resolved first, as it is passed on, it is another path.
    assert_eq!(both("/x/y%2Fz/../..%2Fadmin/q"), Err(PathError::EncodedSlash));
    assert_eq!(both("/secret//../open/x%2Fy").unwrap(), ["/open/x/y", "/open/x%2Fy"]);
    assert_eq!(both("/a%2Fb%00"), Err(PathError::Nul));
    assert!(!has_encoded_slash("/a%252Fb/c%2") && !has_encoded_slash("/a%2G"));
}

#[test]
fn paths_as_sent_keep_their_encoding() {
    for (raw, without) in [
        ("/a/%2e%2e/b%2Fc", "/b%2Fc"),
        ("/a/./b%20/.", "/a/b%20/"),
        ("/a//b/..", "/a//"),
        ("/a%2F../b", "/a%2F../b"),
        // Of several slashes in a row one counts: what is left is the path that routes are chosen by.
        ("/a//../b", "/b"),
        ("/a/b///%2e%2E/./c%3Bd", "/a/c%3Bd"),
        ("/./a%3Bb%2Bc%26d", "/a%3Bb%2Bc%26d"),
    ] {
        assert_eq!(without_dot_segments(raw), without);
    }
    for (raw, normal) in [
        ("/a%2fb/./%63%20d", "/a%2Fb/c%20d"),
        ("/a%252Fb", "/a%252Fb"),
        ("/x/../a%2F..%2Fb/", "/a%2F..%2Fb/"),
    ] {
        assert_eq!(normal_form(raw).as_deref(), Ok(normal), "{raw}");
    }
    assert_eq!(normal_form("/a%00"), Err(PathError::Nul));
    for (raw, prefix, rest) in [
        ("/%61pi/a%2Fb", "/api", Some("/a%2Fb")),
        ("/api", "/api", Some("")),
        ("/apis/a", "/api", None),
        ("/api%2Fa", "/api", None),
        ("/a%2Fpi/x", "/a/pi", None),
        ("/ap%", "/api", None),
    ] {
        assert_eq!(behind_prefix(raw, prefix), rest, "{raw}");
    }
}

#[test]
fn an_ordinary_path_is_borrowed() {
    for raw in ["/", "/index.html", "/.a/..b/c./", "/%"] {
        let mut scratch = b"untouched".to_vec();
        let is_borrowed = normalise(raw, &mut scratch).is_ok_and(|path| path.as_ptr() == raw.as_ptr());
        assert_eq!(is_borrowed, raw != "/%", "{raw}");
        assert_eq!(scratch == b"untouched", is_borrowed, "{raw}");
    }
}

#[test]
fn statuses() {
    assert_eq!(PathError::EncodedSlash.status(), Status::NOT_FOUND);
    assert_eq!(PathError::AboveRoot.status(), Status::BAD_REQUEST);
}

#[test]
fn encoding() {
    let cases: &[(&[u8], &str)] = &[
        (b"/a b/\xc3\xa4", "/a%20b/%C3%A4"),
        (b"/%2e?#", "/%252e%3F%23"),
        (b"javascript:alert(1)", "javascript%3Aalert(1)"),
        (b"/<\">", "/%3C%22%3E"),
        (b"/\r\n", "/%0D%0A"),
    ];
    for (path, expected) in cases {
        assert_eq!(encode_path(path), *expected);
    }
}

proptest! {
    #[test]
    fn stays_inside(raw in "/(\\.|/|%2[eEfF5]|%00|%c0%af|\\\\|[ab]|[^\\x00]){0,16}") {
        let mut scratch = Vec::new();
        if let Ok(path) = normalise(&raw, &mut scratch) {
            prop_assert!(path.starts_with(b"/"));
            prop_assert!(!path.contains(&0));
            let segments: Vec<_> = path[1..].split(|&byte| byte == b'/').collect();
            for (position, segment) in segments.iter().enumerate() {
                prop_assert!(*segment != b"." && *segment != b"..");
                prop_assert!(!segment.is_empty() || position == segments.len() - 1);
            }

            let encoded = encode_path(path);
            let target = Target::parse(Method::Get, &encoded);
            prop_assert_eq!(target, Ok(Target::Origin { path: &encoded[..], query: None }));
            let mut again = Vec::new();
            prop_assert_eq!(normalise(&encoded, &mut again), Ok(path));
        }
    }

    /// What is passed on without its dot segments is the path that was decided about, in every reading of it.
    #[test]
    fn a_path_as_it_is_passed_on_reads_the_same(raw in "/(\\.|\\.\\.|/|//|%2e|%2F|[ab]|%3B){0,16}") {
        let (mut scratch, mut again) = (Vec::new(), Vec::new());
        let resolved = without_dot_segments(&raw);
        if let Ok(path) = normalise(&raw, &mut scratch) {
            prop_assert_eq!(normalise(&resolved, &mut again), Ok(path));
            let normal = normal_form(&raw).unwrap();
            prop_assert_eq!(normalise(&normal, &mut again), Ok(path));
        }
        if let Ok(both) = both_readings(&raw) {
            prop_assert_eq!(both_readings(&resolved), Ok(both));
        }
        prop_assert_eq!(&*without_dot_segments(&resolved), &*resolved);
    }

    /// One look at a target says what its parser and [`normalise`] say.
    #[test]
    fn a_target_that_is_split_at_once_is_read_the_same(text in "/?(\\.|/|%2e|[ab]|[a-z]{9}|\\?|!|~){0,12}") {
        let mut scratch = Vec::new();
        if let Some((path, query)) = split_normal(&text) {
            prop_assert_eq!(Target::parse(Method::Get, &text), Ok(Target::Origin { path, query }));
            prop_assert_eq!(normalise(path, &mut scratch), Ok(path.as_bytes()));
        } else {
            let path = text.split('?').next().unwrap_or_default();
            let is_as_it_is = normalise(path, &mut scratch) == Ok(path.as_bytes());
            prop_assert!(!is_as_it_is || path.contains("/.") || path.contains('!'), "{}", text);
        }
    }

    /// What counts as reachable, encoded, is taken, and nothing else.
    #[test]
    fn reachable_names_are_those_that_are_taken(name in proptest::collection::vec(
        prop_oneof![Just(b'.'), Just(b';'), Just(b'/'), Just(b'%'), 0u8..=255], 0..6,
    )) {
        let raw = format!("/{}", encode_path(&name));
        let mut scratch = Vec::new();
        let is_taken = normalise(&raw, &mut scratch).is_ok_and(|path| path[1..] == name[..]);
        let is_one_segment = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
        prop_assert_eq!(is_reachable(&name), is_taken && is_one_segment);
    }
}
