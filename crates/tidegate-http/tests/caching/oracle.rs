//! Another implementation's opinion: `http-cache-semantics`, which follows RFC 7234, on whether a stored response
//! may be sent without asking.
//!
//! What it does otherwise is not asked:
//! - It knows no `Date` but for lifetimes: all responses are made when they come, and asked for at that moment.
//! - Of a directive with two values it makes `must-revalidate`, not the smaller one: each occurs once.
//! - It takes names of directives by their letters' case, and splits quoted strings at commas: none is here.
//! - `proxy-revalidate` makes a response stale for it at once, `immutable` fresh for a day: neither is here.
//! - `max-stale` overrides `no-cache` and `s-maxage` for it, against RFC 9111 sections 5.2.2.4 and 5.2.2.10, and
//!   its bound is one second shorter: not asked together, nor at the second.
//! - What has no lifetime, or is stale at once without a validator, is kept by it for requests with `max-stale`.
//! - Errors get lifetimes by heuristics: here only those that name one.
//! - What has `Set-Cookie` and not `public` is stale at once for it; here it is not stored, but for `s-maxage`. Not
//!   asked with `s-maxage` or `max-stale`.
//! - Stale directives, targeted fields, `must-understand` and requests with `Cookie` it does not know.

use std::time::{Duration, SystemTime};

use http_cache_semantics::{CacheOptions, CachePolicy};
use proptest::prelude::*;
use tidegate_http::cache::{Answered, Asked, Rules, Times, Use, Verdict, storable, usable};
use tidegate_http::{Fields, Method, Status};

use super::{NOW, fields, lines};

#[derive(Debug, Clone)]
struct Exchange {
    status: u16,
    response: Vec<String>,
    request: Vec<String>,
    authorization: bool,
    after: i64,
}

fn some(text: &'static str) -> impl Strategy<Value = Option<String>> {
    prop::option::of(Just(text.to_owned()))
}

fn seconds(name: &'static str) -> impl Strategy<Value = Option<String>> {
    let number = prop_oneof![Just(0u32), Just(1), Just(10), Just(60), 0u32..120];
    prop::option::of(number.prop_map(move |number| format!("{name}={number}")))
}

fn date(name: &'static str, from: i64, to: i64) -> impl Strategy<Value = Option<String>> {
    prop::option::of((from..to).prop_map(move |seconds| format!("{name}: @{seconds}")))
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let statuses = prop_oneof![
        Just(200u16),
        Just(203),
        Just(204),
        Just(300),
        Just(301),
        Just(302),
        Just(303),
        Just(307),
        Just(308),
        Just(404),
        Just(410),
        Just(501),
        Just(304),
    ];
    let control = (
        seconds("max-age"),
        seconds("s-maxage"),
        some("no-store"),
        some("no-cache"),
        some("private"),
        some("public"),
        some("must-revalidate"),
        some("unknown=5"),
    );
    let others = (
        date("Expires", -60, 120),
        date("Last-Modified", -900_000, 0),
        prop::option::of((0u32..90).prop_map(|age| format!("Age: {age}"))),
        some("ETag: \"a\""),
        some("Set-Cookie: a=b"),
        some("Expires: 0"),
    );
    let request = (
        seconds("max-age"),
        seconds("min-fresh"),
        seconds("max-stale"),
        some("max-stale"),
        some("no-cache"),
        some("no-store"),
    );
    (statuses, control, others, request, any::<bool>(), 0i64..150).prop_map(
        |(status, control, others, request, authorization, after)| {
            let (a, b, c, d, e, f, g, h) = control;
            let directives: Vec<String> = [a, b, c, d, e, f, g, h].into_iter().flatten().collect();
            let (a, b, c, d, e, f) = others;
            let mut response: Vec<String> = vec!["Date: @0".to_owned()];
            if !directives.is_empty() {
                response.push(format!("Cache-Control: {}", directives.join(", ")));
            }
            // One `Expires` only.
            let expires = if a.is_some() { None } else { f };
            response.extend([a, b, c, d, e, expires].into_iter().flatten());
            let (a, b, c, d, e, f) = request;
            let d = if c.is_some() { None } else { d };
            let directives: Vec<String> = [a, b, c, d, e, f].into_iter().flatten().collect();
            let mut request = Vec::new();
            if !directives.is_empty() {
                request.push(format!("Cache-Control: {}", directives.join(", ")));
            }
            Exchange { status, response, request, authorization, after }
        },
    )
}

impl Exchange {
    fn says(&self, text: &str) -> bool {
        self.response.iter().any(|line| line.contains(text))
    }

    /// Whether the other one means the same by it.
    fn is_comparable(&self) -> bool {
        let wants_stale = self.request.iter().any(|line| line.contains("max-stale"));
        let is_named = self.says("max-age") || self.says("s-maxage") || self.says("Expires");
        !(wants_stale && (self.says("no-cache") || self.says("s-maxage") || !is_named || !self.says("ETag")))
            && (self.status < 400 || is_named)
            && !(self.says("Set-Cookie") && (self.says("s-maxage") || wants_stale))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, max_local_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn it_says_the_same(exchange in exchange().prop_filter("what it does otherwise", Exchange::is_comparable)) {
        let mut head = exchange.request.clone();
        if exchange.authorization {
            head.push("Authorization: Basic eA==".to_owned());
        }
        let (request, response) = (lines(&head.join("\n")), lines(&exchange.response.join("\n")));

        // Ours. What is stored was asked for without directives, but for no-store.
        let fields_of_request = fields(&request);
        let asked = Asked {
            method: Method::Get,
            fields: Fields::new(&fields_of_request),
            has_content: false,
            is_obeyed: true,
        };
        let answered = Answered { status: Status(exchange.status), fields: &response };
        let rules = Rules { heuristic: true, ..Rules::default() };
        let stored = storable(&asked, &answered, Times { asked: NOW, answered: NOW }, &rules);
        let verdict = stored.ok().map(|freshness| usable(&asked, &freshness, NOW + exchange.after));
        let ours = verdict.is_some_and(|verdict| matches!(verdict.use_, Use::Fresh | Use::Stale));
        let is_at_bound = |verdict: Verdict| head.iter().any(|line| {
            line.split([' ', ',']).any(|said| said == format!("max-stale={}", -verdict.ttl))
        });
        if verdict.is_some_and(is_at_bound) {
            return Ok(());
        }

        // Theirs.
        let mut builder = http::Request::builder().uri("https://a.example/");
        for (name, value) in request.iter() {
            builder = builder.header(name, value);
        }
        let their_request = builder.body(()).expect("a request of a table");
        let mut builder = http::Response::builder().status(exchange.status);
        for (name, value) in response.iter() {
            builder = builder.header(name, value);
        }
        let their_response = builder.body(()).expect("a response of a table");
        let came = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW as u64);
        let policy = CachePolicy::new_options(&their_request, &their_response, came, CacheOptions::default());
        let now = came + Duration::from_secs(exchange.after as u64);
        let theirs = policy.is_storable() && policy.before_request(&their_request, now).satisfies_without_revalidation();
        prop_assert_eq!(ours, theirs, "{:?} {:?}", exchange, stored);
    }
}
