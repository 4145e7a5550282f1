//! What holds whatever a peer sends.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_http::cache::key::{KeyRules, Resource, write};
use tidegate_http::cache::{
    Answered, Asked, CacheStatus, Freshness, NotStored, Rules, Times, Use, Varying, lookup_allowed, may_join,
    only_if_cached, set_age, storable, usable,
};
use tidegate_http::fuzzing::fuzz_http_cache;
use tidegate_http::{Authority, FieldLines, Fields, Method, Status};

use super::{NOW, fields, stored};

const REQUEST_NAMES: [&str; 8] = [
    "Cache-Control",
    "Authorization",
    "Cookie",
    "Pragma",
    "Range",
    "Accept-Encoding",
    "X-Target",
    "CDN-Loop",
];
const RESPONSE_NAMES: [&str; 16] = [
    "Cache-Control",
    "CDN-Cache-Control",
    "Tidegate-Cache-Control",
    "Expires",
    "Date",
    "Age",
    "Last-Modified",
    "ETag",
    "Vary",
    "Connection",
    "Set-Cookie",
    "Content-Range",
    "Location",
    "Cache-Groups",
    "No-Vary-Search",
    "Cache-Tag",
];

/// What is found in such fields, and what is not.
fn value() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just("max-age"),
        Just("s-maxage"),
        Just("no-cache"),
        Just("no-store"),
        Just("private"),
        Just("public"),
        Just("must-revalidate"),
        Just("must-understand"),
        Just("stale-while-revalidate"),
        Just("immutable"),
        Just("=60"),
        Just("=0"),
        Just("=x"),
        Just("="),
        Just("\""),
        Just("\\"),
        Just(", "),
        Just(","),
        Just(";"),
        Just("\"a\""),
        Just("W/\"a\""),
        Just("Tue, 14 Nov 2023 22:13:11 GMT"),
        Just("Accept-Encoding"),
        Just("*"),
        Just("gzip"),
        Just("br;q=0"),
        Just("bytes 0-1/9"),
        Just("bytes=0-1"),
        Just("params"),
        Just("key-order"),
        Just("(\"a\" \"b\")"),
        Just("/a/../b?c"),
        Just("https://a.example/"),
        Just("a=1&b"),
        Just("5"),
        Just("-1"),
        Just("99999999999999999999"),
        Just("\u{fc}"),
        Just(" "),
        Just("?0"),
    ];
    vec(pieces, 0..8).prop_map(|pieces| pieces.concat())
}

fn head(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let line = (0..names.len(), value()).prop_map(|(name, value)| format!("{}: {value}\n", names[name]));
    vec(line, 0..8).prop_map(|lines| lines.concat())
}

/// The lines as a peer sends them, without the marks of tables.
fn plain(text: &str) -> FieldLines {
    let mut lines = FieldLines::new();
    text.lines().filter_map(|line| line.split_once(':')).for_each(|(name, value)| {
        lines.push(name, value);
    });
    lines
}

/// Whether a response is stored, whatever the request.
fn outcome(request: &str, status: u16, response: &str, rules: &Rules) -> Result<Freshness, NotStored> {
    let (request, response) = (plain(request), plain(response));
    let fields = fields(&request);
    let asked =
        Asked { method: Method::Get, fields: Fields::new(&fields), has_content: false, is_obeyed: true };
    let times = Times { asked: NOW - 2, answered: NOW };
    storable(&asked, &Answered { status: Status(status), fields: &response }, times, rules)
}

/// For how long it may be sent without asking, stale or not.
fn usable_for(outcome: Result<Freshness, NotStored>) -> i64 {
    outcome.map_or(0, |freshness| {
        let stale = freshness.stale_while_revalidate.max(freshness.stale_if_error);
        if freshness.no_cache() { 0 } else { (freshness.ttl(NOW) + i64::from(stale)).max(0) }
    })
}

proptest! {
    #[test]
    fn whatever_comes_the_claims_hold(choice: u8, request in head(&REQUEST_NAMES), response in head(&RESPONSE_NAMES)) {
        let mut data = vec![choice];
        data.extend_from_slice(format!("{request}\n{response}").as_bytes());
        fuzz_http_cache(&data);
    }

    #[test]
    fn bytes_hold_no_surprise(data in vec(any::<u8>(), 0..200)) {
        fuzz_http_cache(&data);
    }

    #[test]
    fn what_is_malformed_makes_nothing_fresher(
        response in head(&RESPONSE_NAMES),
        malformed in prop_oneof![
            "Cache-Control: (max-age|s-maxage|stale-while-revalidate|stale-if-error)(=|=x|=-1|=1\\.5|= 60|=\"6|)\n",
            "Expires: (0|-1|soon|Tue, 14 Nov 2023)\n",
            "(CDN|Tidegate)-Cache-Control: (max-age=|,|max-age=60;|Max-Age=60|\"|=|max-age 60|)\n",
            "(Age|Date|Last-Modified): (x|-1|1\\.5|)\n",
        ],
        is_heuristic: bool,
    ) {
        // Of a field that has one value the first line counts: what is behind it changes nothing.
        let both = if malformed.starts_with(['A', 'D', 'L']) {
            format!("{response}{malformed}")
        } else {
            format!("{malformed}{response}")
        };
        // The second line of a structured field is a part of it, and makes it wrong as a whole: what the field
        // allowed and forbade goes together.
        let response = if malformed.contains("-Cache-Control") { response.replace("-Cache-Control", "-A") } else { response };
        let rules = Rules { heuristic: is_heuristic, keeps_set_cookie: true, ..Rules::default() };
        let of = |response: &str| usable_for(outcome("", 200, response, &rules));
        prop_assert!(of(&both) <= of(&response), "{} {}", both, response);
    }

    #[test]
    fn what_must_not_be_stored_is_not(
        request in head(&REQUEST_NAMES),
        response in head(&RESPONSE_NAMES),
        said in prop_oneof![Just("no-store"), Just("private"), Just("No-Store"), Just("private, public, s-maxage=60")],
        is_targeted: bool,
        is_before: bool,
        status in 100u16..700,
    ) {
        // Beside `must-understand` no-store means something else, and a targeted field hides the others.
        let response = response.replace("must-understand", "x").replace("Tidegate-Cache-Control", "X-A");
        let name = if is_targeted { "Tidegate-Cache-Control" } else { "Cache-Control" };
        let response = if is_targeted { response } else { response.replace("CDN-Cache-Control", "X-A") };
        // Keys of structured fields are small letters.
        let said = if is_targeted { said.to_ascii_lowercase() } else { said.to_owned() };
        let response = match is_before {
            true => format!("{name}: {said}\n{response}"),
            false => format!("{response}{name}: {said}\n"),
        };
        let rules = Rules { keeps_set_cookie: true, ignores_cookies: true, heuristic: true, ..Rules::default() };
        prop_assert!(outcome(&request, status, &response, &rules).is_err(), "{}", response);
    }

    #[test]
    fn freshness_of_a_disk(bytes in vec(any::<u8>(), Freshness::ENCODED), flags in 0u8..40, source in 0u8..9) {
        let mut bytes = bytes;
        (bytes[24], bytes[25]) = (source, flags);
        if let Some(freshness) = Freshness::from_bytes(&bytes) {
            prop_assert_eq!(&freshness.to_bytes()[..], &bytes[..]);
            prop_assert!(freshness.ttl(NOW) <= i64::from(freshness.lifetime));
        }
        prop_assert_eq!(Freshness::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn variants_of_a_disk(bytes in vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(b'a'), any::<u8>()], 0..40)) {
        if let Some(varying) = Varying::from_bytes(&bytes) {
            prop_assert_eq!(varying.as_bytes(), &bytes[..]);
            prop_assert!(varying.same_names(&varying));
            varying.fits(Fields::default());
        }
    }

    #[test]
    fn two_resources_have_two_keys(
        one in ("https?", "[aB]{1,2}(\\.a)?", prop::option::of(prop_oneof![Just(80u16), Just(443), Just(8)]), "[a/]{0,2}", "/[ab?&=%]{0,3}"),
        other in ("https?", "[aB]{1,2}(\\.a)?", prop::option::of(prop_oneof![Just(80u16), Just(443), Just(8)]), "[a/]{0,2}", "/[ab?&=%]{0,3}"),
    ) {
        type Parts = (String, String, Option<u16>, String, String);
        let key = |(scheme, host, port, site, target): &Parts| {
            let authority = Authority { host, port: *port };
            let mut out = Vec::new();
            write(&mut out, &Resource { scheme, authority, site, target, fields: Fields::default() }, &KeyRules::default(), None);
            out
        };
        let normal = |(scheme, host, port, site, target): &Parts| {
            let port = port.unwrap_or(if scheme == "https" { 443 } else { 80 });
            (scheme.clone(), host.to_ascii_lowercase(), port, site.clone(), target.clone())
        };
        prop_assert_eq!(key(&one) == key(&other), normal(&one) == normal(&other), "{:?} {:?}", one, other);
        prop_assert_eq!(key(&one).starts_with(&key(&other)), normal(&one) == normal(&other));
    }
}

#[test]
fn the_corpus_of_the_fuzz_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http_cache");
    let seeds: Vec<Vec<u8>> =
        fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(seeds.len() >= 10);
    for seed in &seeds {
        for choice in 0..=u8::MAX {
            fuzz_http_cache(&[&[choice], &seed[1..]].concat());
        }
        (0..seed.len()).for_each(|end| fuzz_http_cache(&seed[..end]));
    }
}

/// A hit allocates nothing: only what it is written into may grow.
#[test]
fn a_hit_allocates_nothing() {
    let rules = Rules::default();
    let response =
        plain("Cache-Control: max-age=60\nVary: Accept-Encoding, Accept-Language, X-A\nETag: \"a\"");
    let request = plain(
        "Accept-Encoding: gzip, br\nAccept-Language: de, en;q=0.5\nX-A: 1\nCache-Control: max-age=\"9\"",
    );
    let fields = fields(&request);
    let asked =
        Asked { method: Method::Get, fields: Fields::new(&fields), has_content: false, is_obeyed: true };
    let answered = Answered { status: Status::OK, fields: &response };
    let freshness = storable(&asked, &answered, Times { asked: NOW, answered: NOW }, &rules).expect("stored");
    let varying = Varying::of(&answered, asked.fields, &rules).expect("stored");
    let resource = Resource {
        scheme: "https",
        authority: Authority { host: "Www.example.org", port: Some(443) },
        site: "shop",
        target: "/a?b=c",
        fields: asked.fields,
    };
    let (key_rules, mut key) = (KeyRules::default(), Vec::with_capacity(256));
    let mut lines = FieldLines::with_capacity(256);
    let counted = allocation_counter::measure(|| {
        assert!(lookup_allowed(&asked).is_ok() && may_join(&asked) && !only_if_cached(&asked));
        write(&mut key, &resource, &key_rules, None);
        assert!(varying.fits(asked.fields));
        let verdict = usable(&asked, &freshness, NOW + 5);
        assert_eq!(verdict.use_, Use::Fresh);
        set_age(&mut lines, verdict.age);
        CacheStatus::hit("tidegate", verdict.ttl)
            .key(b"key")
            .detail(verdict.why.reason().as_str())
            .append_to(&mut lines);
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_size_that_is_kept() {
    assert!(size_of::<Freshness>() <= 40);
    let freshness = stored("", 200, "Cache-Control: max-age=60", &Rules::default()).expect("stored");
    assert_eq!(freshness.to_bytes().len(), Freshness::ENCODED);
}
