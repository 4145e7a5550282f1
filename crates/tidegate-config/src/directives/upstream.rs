//! Upstream groups: servers elsewhere, and how requests are spread over them.

use super::{DAY, HOUR};
use crate::directive::{Argument, Children, Context, Count, Directive, Kind, Property, one, one_or};

const UPSTREAM: &[Context] = &[Context::Upstream];

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("name", Kind::Token)],
        children: Children::Block(Context::Upstream),
        repeats: true,
        doc: "Servers elsewhere that answer for one application, under a name that `proxy`, `fastcgi` and `scgi` \
              refer to. What is known of its members (who is ill, who has what in hand) outlives a reload as long \
              as the block says the same.",
        example: "upstream \"backends\" { member \"127.0.0.1:3000\"; member \"127.0.0.1:3001\" }",
        ..Directive::new("upstream", &[Context::Top])
    },
    Directive {
        arguments: &[
            one("address", Kind::Text { most: 300 }),
            Argument { name: "role", kind: Kind::Choice(&["backup"]), count: Count::Optional, words: &[] },
        ],
        properties: &[
            Property {
                name: "weight",
                kind: Kind::Number { least: 1, most: 1000 },
                default: Some("1"),
                doc: "Its share of the requests, beside those of the others.",
            },
            Property {
                name: "places",
                kind: Kind::Number { least: 1, most: 1_000_000 },
                default: None,
                doc: "Requests that it takes at once; without it there is no bound and no queue.",
            },
        ],
        repeats: true,
        doc: "A server of the group: `\"10.0.0.1:3000\"`, `\"[::1]:3000\"`, `\"unix:/run/app.sock\"`, or a name and \
              a port, `\"app.internal:3000\"`. A name is looked up again as its records say, and every address that \
              it has is used; one that cannot be looked up keeps nobody else from serving. `backup` is asked only \
              when none of the others can be.",
        example: "member \"10.0.0.1:3000\" weight=2",
        ..Directive::new("member", UPSTREAM)
    },
    Directive {
        arguments: &[one(
            "policy",
            Kind::Choice(&["round-robin", "least-connections", "two-choices", "hash"]),
        )],
        properties: &[
            Property {
                name: "by",
                kind: Kind::Text { most: 200 },
                default: None,
                doc: "What `hash` is of: `client`, `path`, `url` (host, path and query), `header:NAME` or `cookie:NAME`.",
            },
            Property {
                name: "balance-factor",
                kind: Kind::Number { least: 0, most: 100_000 },
                default: Some("0"),
                doc: "With `hash`: a member that has more requests in hand than so many percent of its share is passed over, \
                      for the next one of the key. So a hot key is on several members, and no member has more than \
                      125 % of its share with `125`. Up to 8 in hand are never too many. `0` passes over nobody: the same \
                      key always goes to the same member.",
            },
        ],
        default: Some("balance two-choices"),
        doc: "How a member is chosen. `round-robin`: each in its turn, by weight. `least-connections`: the one with \
              the fewest requests for its weight. `two-choices`: the less loaded of two drawn at random, nearly as \
              good and steadier where several servers choose at once. `hash`: the same key goes to the same member, \
              and one that leaves moves only its own keys. With all of them a member without a free place is passed \
              over.",
        example: "balance hash by=\"path\" balance-factor=125",
        ..Directive::new("balance", UPSTREAM)
    },
    Directive {
        arguments: &[one_or("cookie", Kind::Token, &["off"])],
        default: Some("sticky off"),
        doc: "Brings a client back to the member that answered it first, by a cookie of this name. The cookie holds \
              no address. A member that is ill or full is passed over.",
        example: "sticky \"backend\"",
        ..Directive::new("sticky", UPSTREAM)
    },
    Directive {
        arguments: &[one("kind", Kind::Choice(&["off", "tcp", "http", "fastcgi"]))],
        properties: &[
            Property {
                name: "path",
                kind: Kind::SitePath,
                default: Some("/"),
                doc: "What `http` asks for; an answer from 200 to 399 is a good one.",
            },
            Property {
                name: "host",
                kind: Kind::Text { most: 255 },
                default: None,
                doc: "The `Host` of that request; without it the member as written, and with TLS the name that its \
                      certificate is good for.",
            },
            Property {
                name: "every",
                kind: Kind::Duration { least: 100, most: DAY },
                default: Some("5s"),
                doc: "How often each member is asked.",
            },
            Property {
                name: "timeout",
                kind: Kind::Duration { least: 10, most: HOUR },
                default: Some("2s"),
                doc: "How long an answer may take.",
            },
            Property {
                name: "rise",
                kind: Kind::Number { least: 1, most: 1000 },
                default: Some("2"),
                doc: "Good answers in a row that bring a member back.",
            },
            Property {
                name: "fall",
                kind: Kind::Number { least: 1, most: 1000 },
                default: Some("3"),
                doc: "Bad ones in a row that take it out.",
            },
        ],
        default: Some("check off"),
        doc: "Asks the members on a schedule whether they are well: whether they accept a connection (`tcp`), answer \
              a request (`http`), or answer `FCGI_GET_VALUES` (`fastcgi`). Where routes reach them with TLS \
              (`proxy \"https://…\"`) the check does too, as the first of these routes says, and `tcp` wants the \
              handshake. Members that speak HTTP/2 are checked by `tcp`.",
        example: "check http path=\"/up\" every=\"5s\"",
        ..Directive::new("check", UPSTREAM)
    },
    Directive {
        properties: &[
            Property {
                name: "failures",
                kind: Kind::Number { least: 0, most: 1_000_000 },
                default: Some("5"),
                doc: "Failures in a row; 0 never puts a member aside.",
            },
            Property {
                name: "time",
                kind: Kind::Duration { least: 100, most: DAY },
                default: Some("10s"),
                doc: "How long the first time; twice as long each further time, and up to a fifth more by chance.",
            },
            Property {
                name: "most",
                kind: Kind::Duration { least: 100, most: DAY },
                default: Some("5m"),
                doc: "The longest time.",
            },
        ],
        default: Some("eject failures=5 time=\"10s\" most=\"5m\""),
        doc: "Puts a member aside that fails requests: no connection, no answer in time, or one that is none. After \
              its time one request tries it. The last member that is left is never put aside.",
        example: "eject failures=3 time=\"30s\"",
        ..Directive::new("eject", UPSTREAM)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 0, most: DAY })],
        default: Some("slow-start \"0s\""),
        doc: "How long a member that came back takes to get its whole share, so that a cold one is not met by the \
              whole load.",
        example: "slow-start \"30s\"",
        ..Directive::new("slow-start", UPSTREAM)
    },
    Directive {
        arguments: &[one("times", Kind::Number { least: 0, most: 100 })],
        properties: &[Property {
            name: "budget",
            kind: Kind::Number { least: 0, most: 100 },
            default: Some("10"),
            doc: "Retries in percent of requests: when every member is ill, retries add no more than this.",
        }],
        default: Some("retry 2 budget=10"),
        doc: "Members that a request is tried on after the first has failed. Only requests that are safe to repeat \
              are, and only as long as nothing of an answer has come.",
        example: "retry 1 budget=20",
        ..Directive::new("retry", UPSTREAM)
    },
];
