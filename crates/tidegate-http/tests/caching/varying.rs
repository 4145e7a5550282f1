//! What a response was chosen by, and which requests it is for.

use tidegate_http::cache::{Answered, NotStored, Rules, Varying};
use tidegate_http::{FieldLines, Fields, Status};

use super::{fields, lines};

fn varying(response: &str, request: &str, rules: &Rules) -> Result<Varying, NotStored> {
    let (response, request) = (lines(response), lines(request));
    Varying::of(&Answered { status: Status::OK, fields: &response }, Fields::new(&fields(&request)), rules)
}

#[test]
#[rustfmt::skip]
fn which_requests_a_response_is_for() {
    let (encoding, language) = ("Vary: Accept-Encoding", "Vary: accept-language");
    for (clause, response, first, second, expected) in [
        ("9111-4.1 no Vary", "X-A: 1", "X-B: 1", "X-B: 2", true),
        ("9111-4.1 the same", "Vary: X-A", "X-A: 1", "x-a: 1", true),
        ("9111-4.1 another", "Vary: X-A", "X-A: 1", "X-A: 2", false),
        ("9111-4.1 longer", "Vary: X-A", "X-A: 1", "X-A: 12", false),
        ("9111-4.1 shorter", "Vary: X-A", "X-A: 12", "X-A: 1", false),
        ("9111-4.1 absent", "Vary: X-A", "", "", true),
        ("9111-4.1 absent is not empty", "Vary: X-A", "", "X-A:", false),
        ("9111-4.1 empty is not absent", "Vary: X-A", "X-A:", "", false),
        ("9111-4.1 lines are put together", "Vary: X-A", "X-A: 1\nX-A: 2", "X-A: 1, 2", true),
        ("9111-4.1 their order counts", "Vary: X-A", "X-A: 1\nX-A: 2", "X-A: 2\nX-A: 1", false),
        ("9111-4.1 all of them", "Vary: X-A, X-B\nVary: X-C", "X-A: 1\nX-B: 2\nX-C: 3", "X-C: 3\nX-B: 2\nX-A: 1", true),
        ("9111-4.1 all of them", "Vary: X-A, X-B\nVary: X-C", "X-A: 1\nX-B: 2\nX-C: 3", "X-C: 4\nX-B: 2\nX-A: 1", false),
        ("9111-4.1 a value is no other field's", "Vary: X-A, X-B", "X-A: 1\nX-B: 2", "X-A: 2\nX-B: 1", false),
        ("9111-4.1 white space in lists", language, "Accept-Language: de,en;q=0.5", "Accept-Language: DE , en; q=0.5", true),
        ("9111-4.1 languages in another order", language, "Accept-Language: de, en", "Accept-Language: en, de", false),
        ("9111-4.1 letters count elsewhere", "Vary: Accept", "Accept: text/html;v=A", "Accept: text/html;v=a", false),
        ("9111-4.1 white space in quotes counts", "Vary: Accept", "Accept: a/b;v=\"a b\"", "Accept: a/b;v=\"ab\"", false),
        ("codings: order and weights", encoding, "Accept-Encoding: gzip, br", "Accept-Encoding: br;q=1, GZIP;q=0.5", true),
        ("codings: one more", encoding, "Accept-Encoding: gzip, br", "Accept-Encoding: gzip, br, zstd", false),
        ("codings: one that nobody here knows", encoding, "Accept-Encoding: gzip, deflate", "Accept-Encoding: gzip", true),
        ("codings: refused", encoding, "Accept-Encoding: gzip", "Accept-Encoding: gzip;q=0", false),
        ("codings: any", encoding, "Accept-Encoding: *", "Accept-Encoding: gzip, br, zstd, identity", true),
        ("codings: any but", encoding, "Accept-Encoding: *, br;q=0", "Accept-Encoding: gzip, zstd", true),
        ("codings: as it is refused", encoding, "Accept-Encoding: gzip", "Accept-Encoding: gzip, identity;q=0", false),
        ("codings: all others refused", encoding, "Accept-Encoding: gzip, *;q=0", "Accept-Encoding: gzip, identity;q=0", true),
        ("codings: none named", encoding, "Accept-Encoding:", "Accept-Encoding: identity", true),
        ("codings: absent is not empty", encoding, "", "Accept-Encoding:", false),
        ("codings: a response in one that nobody here knows", "Vary: Accept-Encoding\nContent-Encoding: dcb", "Accept-Encoding: gzip, dcb", "Accept-Encoding: gzip", false),
        ("codings: a response in one that nobody here knows", "Vary: Accept-Encoding\nContent-Encoding: dcb", "Accept-Encoding: gzip, dcb", "Accept-Encoding: gzip,DCB", true),
        ("codings: a response in one that was refused", "Vary: Accept-Encoding\nContent-Encoding: gzip", "Accept-Encoding: gzip;q=0", "Accept-Encoding: identity", false),
        ("codings: a response in one that was not named", "Vary: Accept-Encoding\nContent-Encoding: br", "Accept-Encoding: gzip", "Accept-Encoding: gzip, identity", false),
        ("codings: a response in one that was taken", "Vary: Accept-Encoding\nContent-Encoding: gzip", "Accept-Encoding: gzip", "Accept-Encoding: x-gzip;q=0.5", true),
    ] {
        let varying = varying(response, first, &Rules::default()).expect("a response of a table that is stored");
        let (first, second) = (lines(first), lines(second));
        assert!(varying.fits(Fields::new(&fields(&first))), "{clause}: its own request");
        assert_eq!(varying.fits(Fields::new(&fields(&second))), expected, "{clause}");
        assert_eq!(Varying::from_bytes(varying.as_bytes()), Some(varying), "{clause}");
    }
}

#[test]
#[rustfmt::skip]
fn what_is_not_stored() {
    let long = format!("X-A: {}", "a".repeat(Varying::MOST_BYTES));
    let rules = Rules { ignores_cookies: true, ..Rules::default() };
    for (clause, response, request, rules, expected) in [
        ("9111-4.1 anything", "Vary: *", "", &Rules::default(), NotStored::VariesByAnything),
        ("9111-4.1 anything among others", "Vary: X-A\nVary: X-B, *", "", &rules, NotStored::VariesByAnything),
        ("9110-12.5.5 no name", "Vary: a b", "", &rules, NotStored::VariesByAnything),
        ("explosion: cookies", "Vary: Accept-Encoding, Cookie", "", &Rules::default(), NotStored::VariesByClient),
        ("explosion: programs", "Vary: User-Agent", "", &rules, NotStored::VariesByClient),
        ("explosion: credentials", "Vary: Authorization", "", &rules, NotStored::VariesByClient),
        ("explosion: names", "Vary: a, b, c, d, e, f, g, h, i", "", &rules, NotStored::VariesByTooMuch),
        ("explosion: bytes", "Vary: X-A", &long, &rules, NotStored::VariesByTooMuch),
    ] {
        assert_eq!(varying(response, request, rules), Err(expected), "{clause}");
    }
    let ignoring = varying("Vary: Cookie", "Cookie: a=b", &rules).expect("settings: cookies do not count");
    assert!(ignoring.is_empty());
    let twice = varying("Vary: X-A, x-a, X-A, X-A, X-A, X-A, X-A, X-A, X-A, X-A", "", &rules);
    assert_eq!(twice.expect("one name").names().collect::<Vec<_>>(), ["x-a"]);
}

#[test]
fn names_are_compared_without_values() {
    let of = |response, request| varying(response, request, &Rules::default()).expect("stored");
    let one = of("Vary: X-B, X-A", "X-A: 1");
    assert!(one.same_names(&of("Vary: x-a\nVary: X-B", "X-B: 2")));
    assert!(!one.same_names(&of("Vary: x-a", "X-A: 1")));
    assert!(!one.same_names(&Varying::default()) && Varying::default().is_empty());
    assert!(Varying::default().fits(Fields::default()));
    assert_eq!(FieldLines::new(), lines(""));
}

#[test]
fn bytes_of_a_disk_are_not_trusted() {
    let of = |response, request| varying(response, request, &Rules::default()).expect("stored");
    let bytes = of("Vary: X-A, X-B, Accept-Encoding", "X-A: abc\nAccept-Encoding: gzip").as_bytes().to_vec();
    for end in 1..bytes.len() {
        let cut = Varying::from_bytes(&bytes[..end]);
        assert!(cut.is_none_or(|cut| !cut.is_empty() && cut.as_bytes() == &bytes[..end]), "{end}");
    }
    assert_eq!(Varying::from_bytes(&[bytes.clone(), bytes.clone()].concat()), None, "names in another order");
    assert_eq!(Varying::from_bytes(&[1, b'a', 9, 0, 0]), None, "a form that there is not");
    assert_eq!(Varying::from_bytes(&[1, b' ', 0, 0, 0]), None, "no name");
    assert_eq!(Varying::from_bytes(&[0, 0, 0, 0]), None, "no name");
    assert_eq!(Varying::from_bytes(&[]), Some(Varying::default()));
}
