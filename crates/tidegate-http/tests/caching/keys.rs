//! What responses are stored under, and which queries are the same.

use tidegate_http::cache::NoVarySearch;
use tidegate_http::cache::key::{KeyRules, QueryRules, Resource, write, write_url};
use tidegate_http::cache::names::Names;
use tidegate_http::{Authority, Fields};

use super::{fields, lines};

const PLAIN: Resource<'_> = Resource {
    scheme: "https",
    authority: Authority { host: "www.example.org", port: None },
    site: "shop",
    target: "/a?b=c",
    fields: Fields::new(&[]),
};

fn key(resource: &Resource<'_>, rules: &KeyRules) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, resource, rules, None);
    out
}

#[test]
#[rustfmt::skip]
fn resources() {
    let host = |host| Authority { host, port: None };
    let port = |port| Authority { host: "www.example.org", port: Some(port) };
    for (clause, resource, is_same) in [
        ("3986-6.2.2.1 host", Resource { authority: host("WWW.Example.ORG"), ..PLAIN }, true),
        ("3986-6.2.2.1 scheme", Resource { scheme: "HTTPS", ..PLAIN }, true),
        ("3986-6.2.3 port", Resource { authority: port(443), ..PLAIN }, true),
        ("another port", Resource { authority: port(80), ..PLAIN }, false),
        ("another scheme", Resource { scheme: "http", ..PLAIN }, false),
        ("another host", Resource { authority: host("example.org"), ..PLAIN }, false),
        ("another site", Resource { site: "blog", ..PLAIN }, false),
        ("deception: encoded delimiters", Resource { target: "/a%3Fb=c", ..PLAIN }, false),
        ("deception: encoded letters", Resource { target: "/%61?b=c", ..PLAIN }, false),
        ("another query", Resource { target: "/a?b=C", ..PLAIN }, false),
        ("no query", Resource { target: "/a", ..PLAIN }, false),
        ("confusion: lengths", Resource { site: "sho", target: "p/a?b=c", ..PLAIN }, false),
    ] {
        let rules = KeyRules::default();
        assert_eq!(key(&resource, &rules) == key(&PLAIN, &rules), is_same, "{clause}");
    }
    let rules = KeyRules::default();
    let bare = |target| key(&Resource { target, ..PLAIN }, &rules);
    assert_ne!(bare("/a"), bare("/a?"), "no query is not an empty one");
}

#[test]
#[rustfmt::skip]
fn queries() {
    let names = |names: &[&str]| names.iter().copied().collect::<Names>();
    let sorted = QueryRules { is_sorted: true, ..QueryRules::default() };
    let dropped = QueryRules { dropped: names(&["utm_*", "fbclid"]), ..QueryRules::default() };
    let inner = QueryRules { dropped: names(&["*_id", "p*e"]), ..QueryRules::default() };
    let kept = QueryRules { kept: Some(names(&["id", "page"])), ..QueryRules::default() };
    let none = QueryRules { kept: Some(Names::default()), ..QueryRules::default() };
    for (clause, query, one, other, is_same) in [
        ("as sent", &QueryRules::default(), "a=1&b=2", "b=2&a=1", false),
        ("as sent", &QueryRules::default(), "a=1", "a=1&", false),
        ("sorted", &sorted, "a=1&b=2", "b=2&a=1", true),
        ("sorted: the order of one name counts", &sorted, "a=1&a=2", "a=2&a=1", false),
        ("sorted: the order of one name counts, however it is written", &sorted, "%61=2&a=1", "a=1&%61=2", false),
        ("sorted: the order of what PHP takes for one name counts", &sorted, "a.b=2&a_b=1", "a_b=1&a.b=2", false),
        ("sorted: an array is one name", &sorted, "a[x]=2&a=1", "a=1&a[x]=2", false),
        ("sorted: encoded names are sorted", &sorted, "b=2&%61=1", "%61=1&b=2", true),
        ("sorted: what has another separator keeps its order", &sorted, "b=1;a=2&a=1", "a=1&b=1;a=2", false),
        ("sorted: values count", &sorted, "a=1&b=2", "a=2&b=1", false),
        ("sorted: nothing but separators", &sorted, "&&a=1&", "a=1", true),
        ("dropped", &dropped, "a=1&utm_source=x&fbclid=9", "a=1", true),
        ("dropped: encoded", &dropped, "a=1&%75tm_source=x", "a=1", true),
        ("dropped: order counts", &dropped, "a=1&b=2", "b=2&a=1", false),
        ("dropped: a longer name", &dropped, "fbclid2=1", "", false),
        ("dropped: a star in front", &inner, "post_id=1&a=1", "a=1", true),
        ("dropped: a star within", &inner, "p1e=1&a=1", "a=1", true),
        ("dropped: a star within, another end", &inner, "p1ex=1&a=1", "a=1", false),
        ("kept", &kept, "id=1&x=2&page=3", "y=1&id=1&page=3", true),
        ("kept: values count", &kept, "id=1", "id=2", false),
        ("kept: nothing", &none, "a=1&b=2", "c", true),
    ] {
        let rules = KeyRules { query: query.clone(), ..KeyRules::default() };
        let of = |query: &str| key(&Resource { target: &format!("/a?{query}"), ..PLAIN }, &rules);
        assert_eq!(of(one) == of(other), is_same, "{clause}: {one} {other}");
    }
    let rules = KeyRules { query: dropped, ..KeyRules::default() };
    let of = |target: &str| key(&Resource { target, ..PLAIN }, &rules);
    assert_eq!(of("/a?fbclid=1"), of("/a"), "nothing is left: as if there had been no query");
}

#[test]
fn cookies() {
    let rules = KeyRules { cookies: ["lang", "currency"].into_iter().collect(), ..KeyRules::default() };
    let of = |text: &str| {
        let lines = lines(text);
        let fields = fields(&lines);
        key(&Resource { fields: Fields::new(&fields), ..PLAIN }, &rules)
    };
    assert_eq!(of("Cookie: lang=de; x=1"), of("Cookie: y=2;lang=de"));
    assert_eq!(of("Cookie: x=1\nCookie: lang=de"), of("Cookie: lang=de"));
    assert_ne!(of("Cookie: lang=de"), of("Cookie: lang=en"));
    assert_ne!(of("Cookie: lang=de"), of("Cookie: currency=de"));
    assert_ne!(of("Cookie: lang="), of("X-A: 1"), "an empty one is one");
    assert_eq!(of("Cookie: xlang=de"), of("X-A: 1"));
    let rules = KeyRules { cookies: ["la*"].into_iter().collect(), ..KeyRules::default() };
    let by_pattern = |text: &str| {
        let lines = lines(text);
        let fields = fields(&lines);
        key(&Resource { fields: Fields::new(&fields), ..PLAIN }, &rules)
    };
    assert_ne!(by_pattern("Cookie: lang=de"), by_pattern("Cookie: lang=en"));
    assert_ne!(by_pattern("Cookie: lang=de"), by_pattern("Cookie: lane=de"));
    assert_eq!(by_pattern("Cookie: lang=de; x=1"), by_pattern("Cookie: lang=de"));
    let mut url = Vec::new();
    write_url(&mut url, &PLAIN, &rules.query, None);
    assert!(of("Cookie: lang=de").starts_with(&url) && of("X-A: 1").starts_with(&url));
}

#[test]
#[rustfmt::skip]
fn names_that_applications_take_for_others() {
    let names = |names: &[&str]| names.iter().copied().collect::<Names>();
    let dropped = QueryRules { dropped: names(&["utm_*", "*_ref", "fbclid"]), ..QueryRules::default() };
    let kept = QueryRules { kept: Some(names(&["page_id", "f[a]"])), ..QueryRules::default() };
    let none = QueryRules { kept: Some(Names::default()), ..QueryRules::default() };
    for (rules, query, expected) in [
        (&kept, "page_id=2", false),
        (&kept, "page%5fid=2", false),
        (&kept, "x=1&y", false),
        (&kept, "page.id=2", true),
        (&kept, "%20page_id=2", true),
        (&kept, "+page_id=2", true),
        (&kept, "page%20id=2", true),
        (&kept, "page[id=2", true),
        (&kept, "page%5Bid=2", true),
        (&kept, "page_id%00x=2", true),
        (&kept, "page_id[]=2", true),
        (&kept, "PAGE_ID=2", true),
        (&kept, "page_id%20=2", true),
        (&kept, "page_id=1&page.id=2", true),
        (&kept, "x=1;page_id=2", true),
        (&kept, "page_id=1;x=2", false),
        (&kept, "f[a]=2", false),
        (&kept, "f=2", true),
        (&dropped, "utm_a=1&fbclid=2", false),
        (&dropped, "utm.a=1&id=2", false),
        (&dropped, "utm_a[]=1", false),
        (&dropped, "utm_a=1;id=2", true),
        (&dropped, "a_ref=1", false),
        (&dropped, "id%00_ref=1", true),
        (&dropped, "id[]_ref=1", true),
        (&dropped, "id[_ref=1", false),
        (&none, "a.b=1;c", false),
        (&QueryRules::default(), "a.b=1;c", false),
    ] {
        assert_eq!(rules.is_ambiguous(query), expected, "{query}");
    }
    let rules = KeyRules { cookies: names(&["lang", "shop_*"]), ..KeyRules::default() };
    for (cookies, expected) in [
        ("lang=de; x=1", false),
        ("lang=de; lang=en", true),
        ("lang =de", true),
        ("lang", true),
        ("Lang=de", true),
        ("%6Cang=de", true),
        ("lang[]=de", true),
        ("shop_a=1; shop_b=2", false),
        ("shop.a=1", true),
        ("shop_a=1; shop_a=2", true),
        ("shops=1", false),
    ] {
        let lines = lines(&format!("Cookie: {cookies}"));
        let fields = fields(&lines);
        assert_eq!(rules.has_ambiguous_cookies(Fields::new(&fields)), expected, "{cookies}");
    }
    let many = (0..40).map(|n| format!("shop_{n}=1;")).collect::<String>();
    let lines = lines(&format!("Cookie: {many}"));
    assert!(rules.has_ambiguous_cookies(Fields::new(&fields(&lines))), "more than a key holds");
}

fn search(value: &str) -> Option<NoVarySearch> {
    NoVarySearch::parse(&lines(&format!("No-Vary-Search: {value}")))
}

#[test]
fn no_vary_search_says_nothing() {
    for value in [
        "unknown-key",
        "key-order=\"not a boolean\"",
        "params=\"not a boolean or inner list\"",
        "params=(not-a-string)",
        "params=(\"a\"), except=(\"x\")",
        "params=(), except=()",
        "params=?0, except=(\"x\")",
        "params, except=(not-a-string)",
        "params, except=\"not an inner list\"",
        "params, except=?1",
        "except=(\"x\")",
        "except=()",
        "params=?0",
        "params=()",
        "key-order=?0",
        "",
        "=",
    ] {
        assert_eq!(search(value), None, "no-vary-search-4.1: {value}");
    }
    assert_eq!(NoVarySearch::parse(&lines("X-A: 1")), None);
}

#[test]
#[rustfmt::skip]
fn no_vary_search() {
    for (value, one, other, is_same) in [
        ("params", Some("a=1"), None, true),
        ("params=?1", Some("a=1"), Some("b=2"), true),
        ("params=(\"a\")", Some("a=1&b=2"), Some("b=2&a=3"), true),
        ("params=(\"a\")", Some("b=1"), Some("b=2"), false),
        ("params, except=(\"x\")", Some("a=1&x=2"), Some("x=2"), true),
        ("params, except=(\"x\")", Some("x=1"), Some("x=2"), false),
        ("params, except=()", Some("x=1"), Some("y"), true),
        ("key-order", Some("a=1&b=2"), Some("b=2&a=1"), true),
        ("key-order", Some("a=1&a=2"), Some("a=2&a=1"), false),
        ("key-order, params=(\"c\")", Some("a=1&b=2&c"), Some("b=2&a=1"), true),
        ("params=(\"c\")", Some("a=1&b=2"), Some("b=2&a=1"), false),
        ("key-order", None, Some(""), true),
        ("key-order", Some("a=x"), Some("%61=%78"), true),
        ("key-order", Some("a=%f6"), Some("a=%ef%bf%bd"), true),
        ("key-order", Some("a=x&&&&"), Some("a=x"), true),
        ("key-order", Some("a="), Some("a"), true),
        ("key-order", Some("a=%20"), Some("a=+"), true),
        ("params=(\"%C3%A9+%E6%B0%97\")", Some("%C3%A9%20%E6%B0%97=3"), Some("%C3%A9+%E6%B0%97=4"), true),
    ] {
        let search = search(value).expect("a value of the draft");
        assert_eq!(search.is_same(one, other), is_same, "no-vary-search-5: {value} {one:?} {other:?}");
        let of = |query: Option<&str>| {
            let target = query.map_or("/a".to_owned(), |query| format!("/a?{query}"));
            let mut out = Vec::new();
            write(&mut out, &Resource { target: &target, ..PLAIN }, &KeyRules::default(), Some(&search));
            out
        };
        assert_eq!(of(one) == of(other), is_same, "no-vary-search-6: {value} {one:?} {other:?}");
    }
}
