//! How often something may be asked for.

use crate::directive::{Apply, Argument, Context, Count, Directive, Inheritance, Kind, Property, one_or};

pub(super) const DIRECTIVES: &[Directive] = &[Directive {
    arguments: &[
        one_or("name", Kind::Text { most: 64 }, &["off"]),
        Argument { name: "track", kind: Kind::Choice(&["track"]), count: Count::Optional, words: &[] },
    ],
    properties: &[
        Property {
            name: "requests",
            kind: Kind::Rate,
            default: None,
            doc: "How many requests, steadily. Has to be given.",
        },
        Property {
            name: "burst",
            kind: Kind::Number { least: 1, most: 1_000_000_000 },
            default: None,
            doc: "How many may come at once, before the steady rate holds. Without it as many as `requests` says for \
                  its time: with `\"10/s\"` ten.",
        },
        Property {
            name: "by",
            kind: Kind::FieldTemplate,
            default: Some("{client}"),
            doc: "What is counted by itself: a text with placeholders. Requests for which it is the same count \
                  together. Of an IPv6 address `{client}` is the network of 64 bits here, which is what one customer has. \
                  A text without a placeholder makes one count of all.",
        },
        Property {
            name: "keys",
            kind: Kind::Number { least: 8, most: 100_000_000 },
            default: Some("100000"),
            doc: "How many of those are remembered at once, 16 bytes each, of memory that all server processes share. \
                  One that is in debt is never forgotten; when there is no place for another, those without a place \
                  count together, and the status says so.",
        },
    ],
    repeats: true,
    inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_rate(item))),
    doc: "How often something may be asked for: a request beyond it is answered 429 with `Retry-After`, `RateLimit` and \
          `RateLimit-Policy`, and goes nowhere. Exact for all workers and server processes together, kept across a reload \
          and an upgrade. A name is one count wherever it stands, so that a request that a `try` or an index leads on \
          counts once. `track` behind the name only counts what would be refused, to see what a limit would do. \
          `limit off` does away with the limits of the levels around.",
    example: "limit \"api\" requests=\"10/s\" burst=20 by=\"{client}\"",
    ..Directive::new("limit", &[Context::Top, Context::Site, Context::Route])
}];
