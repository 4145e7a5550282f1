//! Who gets in by being somebody, and how often something may be asked for.

use super::{DAY, HOUR};
use crate::directive::{
    Apply, Argument, Children, Context, Count, Directive, Inheritance, Kind, Property, any, one, one_or,
};

const USERS: &[Context] = &[Context::Users];
const EVERYWHERE: &[Context] = &[Context::Top, Context::Site, Context::Route];

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("file", Kind::File)],
        doc: "What tells the country of a client, for `allow country=`, `when country` and `{country}`: a file in the format of \
              MaxMind, such as `GeoLite2-Country.mmdb` or that of DB-IP. It is read by the master, once in memory for all \
              server processes, and read again when it is replaced; what is no such file, or not whole, leaves the one before \
              in force.",
        example: "country-database \"/var/lib/GeoIP/GeoLite2-Country.mmdb\"",
        ..Directive::new("country-database", &[Context::Top])
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        children: Children::Block(Context::Users),
        repeats: true,
        doc: "People who can log in, under a name that `login` refers to.",
        example: "users \"staff\" { htpasswd \"staff\" }",
        ..Directive::new("users", &[Context::Top])
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        repeats: true,
        doc: "A file of names and passwords as `htpasswd` of Apache writes it: `anna:$2y$…`, one a line. bcrypt (`htpasswd \
              -B`), argon2, SHA-256 and SHA-512 of crypt(3) (`openssl passwd -6`) and apr1 are known; a line with anything \
              weaker is warned of, and its user cannot log in. It is read by the master, so that server processes and applications need not be able \
              to, and again when it changes, without a reload: whose line is another is asked anew. A changed file that is \
              broken leaves what was there before.",
        example: "htpasswd \"staff\"",
        ..Directive::new("htpasswd", USERS)
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        repeats: true,
        doc: "A file of groups as Apache's `AuthGroupFile`: `admins: anna ben`, one a line. A change counts as that of \
              `htpasswd` does.",
        example: "groups \"staff-groups\"",
        ..Directive::new("groups", USERS)
    },
    Directive {
        properties: &[
            Property {
                name: "lifetime",
                kind: Kind::Duration { least: 0, most: DAY },
                default: Some("2m"),
                doc: "How long a password that was right is not looked into again. `0s`: every request is, which costs \
                      tens of milliseconds of processor time each.",
            },
            Property {
                name: "users",
                kind: Kind::Number { least: 1, most: 10_000_000 },
                default: Some("10000"),
                doc: "How many users are remembered at once.",
            },
            Property {
                name: "groups",
                kind: Kind::Number { least: 1, most: 10_000 },
                default: Some("64"),
                doc: "How many groups of each. Whether somebody belongs to a further one is looked up again.",
            },
        ],
        default: Some("cache lifetime=\"2m\" users=10000 groups=64"),
        doc: "What each server process remembers of users who have proved who they are. A change in a directory counts once \
              it has run out, a change of a file within seconds.",
        example: "cache lifetime=\"10m\" users=50000",
        ..Directive::new("cache", USERS)
    },
    Directive {
        arguments: &[
            one_or("how", Kind::Choice(&["basic", "forward", "token", "openid"]), &["off"]),
            Argument { name: "users", kind: Kind::Token, count: Count::Optional, words: &[] },
        ],
        properties: &[Property {
            name: "realm",
            kind: Kind::FieldValue,
            default: None,
            doc: "What the browser says is asked for. Without it the name of the users.",
        }],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.set_login(item))),
        doc: "Lets in who proves to be one of these users. `basic` asks everybody else for a name and a password with 401 (RFC \
              7617); with `forward` the application that `forward` of these users names decides, with `token` a \
              token of their `tokens` in `Authorization: Bearer` (RFC 6750), and with `openid` browsers are sent to the \
              identity provider of their `openid`. Access rules and \
              limits are asked before it, `require` after it. An inner one takes the place of an outer one; `login off` \
              opens what the levels around have closed, with what they require. Applications are told the name as \
              `REMOTE_USER`. Guessing is slowed down for the user and the address that guesses, and locks nobody out. \
              Passwords cross the network as they are: `check` warns where that may happen without TLS.",
        example: "login basic \"staff\" realm=\"Staff only\"",
        ..Directive::new("login", EVERYWHERE)
    },
    Directive {
        arguments: &[one("name", Kind::Token), one("file", Kind::File)],
        repeats: true,
        doc: "Keys of signed URLs, under a name that `signed` refers to: a line of base64 of 32 bytes or more, as `openssl rand \
              -base64 32` writes it. `tidegate sign-url` signs with the first; a second one, the one before it, is good as well. \
              The master reads the file, and again when it changes.",
        example: "url-keys \"downloads\" \"url-keys\"",
        ..Directive::new("url-keys", &[Context::Top])
    },
    Directive {
        arguments: &[
            one_or("keys", Kind::Token, &["off"]),
            Argument { name: "for", kind: Kind::Choice(&["client", "host"]), count: Count::Any, words: &[] },
        ],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.set_signed(item))),
        doc: "Lets in who comes by a URL that was signed with one of these keys (`tidegate sign-url`) and has not expired: by \
              HMAC-SHA-256 over path, query and expiry, with `client` over the address of the one client that it is for, and with `host` over the \
              host of the URL, so that no other site with these keys takes it. `GET` and `HEAD` alone. Others get 403, and 410 once it has expired. A `login` is asked for beside it. An inner \
              one takes the place of an outer one; `signed off` asks for none.",
        example: "signed \"downloads\"",
        ..Directive::new("signed", EVERYWHERE)
    },
    Directive {
        arguments: &[
            one("what", Kind::Choice(&["user", "group", "certificate"])),
            any("names", Kind::Text { most: 256 }),
        ],
        properties: &[Property {
            name: "issuer",
            kind: Kind::Text { most: 512 },
            default: None,
            doc: "Of `require certificate`: who has to have signed it, such as `\"CN=Corp CA,O=Corp\"`.",
        }],
        repeats: true,
        inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_requirement(item))),
        doc: "Of who has logged in, lets in those who are one of these users, or belong to one of these groups; others get \
              403. Several lines, also those of the levels around, all have to hold. `require certificate` lets in who has \
              shown a certificate that the site's `client-certificates` accept and is called so by it: `\"dns:*.corp.example\"`, \
              `\"email:anna@example.com\"`, `\"uri:spiffe://corp/*\"` of its alternative names, `\"cn:anna\"`, \
              `\"subject:CN=anna,O=Corp\"`, or by its SHA-256, `\"fingerprint:…\"`. A `*` stands for any characters, in a \
              `subject` within one part of it, and alone for any number of parts. Without names it lets in whoever has one. \
              What has fitted is the `{user}`, unless there is a `login`.",
        example: "require user \"anna\" \"ben\"",
        ..Directive::new("require", EVERYWHERE)
    },
    Directive {
        arguments: &[
            one_or("name", Kind::Text { most: 64 }, &["off"]),
            Argument { name: "how", kind: Kind::Choice(&["track", "shared"]), count: Count::Any, words: &[] },
        ],
        properties: &[
            Property {
                name: "requests",
                kind: Kind::Rate,
                default: None,
                doc: "How many requests, steadily. This, `concurrent` or `connections` has to be given.",
            },
            Property {
                name: "concurrent",
                kind: Kind::Number { least: 1, most: 10_000_000 },
                default: None,
                doc: "How many requests may be under way at once: from when they have come until their answer is with the \
                  kernel. What a server process has under way when it is killed is given back.",
            },
            Property {
                name: "connections",
                kind: Kind::Number { least: 1, most: 10_000_000 },
                default: None,
                doc: "How many connections may be open of those who have asked for something that the limit is for. One \
                  counts from its first such request until it closes.",
            },
            Property {
                name: "burst",
                kind: Kind::Number { least: 1, most: 1_000_000_000 },
                default: None,
                doc: "How many may come at once, before the steady rate holds. Without it as many as `requests` says for \
                  its time: with `\"10/s\"` ten, with `\"0.5/s\"` one.",
            },
            Property {
                name: "queue",
                kind: Kind::Number { least: 0, most: 1_000_000 },
                default: Some("0"),
                doc: "With `concurrent`: requests that wait, of each that is counted by itself (`by`); further ones are refused \
                  at once, as all are without it. First come, first served in a server process; with several `processes` \
                  a place that one leaves is found by who waits in another within some tens of milliseconds. A client that goes away \
                  frees its place.",
            },
            Property {
                name: "age",
                kind: Kind::Duration { least: 1, most: HOUR },
                default: Some("10s"),
                doc: "With `queue`: how long one may wait; then it is refused.",
            },
            Property {
                name: "by",
                kind: Kind::FieldTemplate,
                default: Some("{client}"),
                doc: "What is counted by itself: a text with placeholders, which are `{client}`, `{client.name}`, `{country}`, \
                  `{groups}`, `{host}`, `{method}`, `{path}`, `{query}`, `{request-id}`, `{scheme}`, `{uri}`, `{user}`, \
                  `{header.NAME}`, `{cookie.NAME}`, `{query.NAME}`, `{value.NAME}`, and `{1}` and `{id}` (stars and groups of \
                  the route). Requests for which it is the same count together. Of an IPv6 address `{client}` is the network of 64 bits here, which is what one customer has. \
                  A text without a placeholder makes one count of all: write `\"all\"`.",
            },
            Property {
                name: "keys",
                kind: Kind::Number { least: 8, most: 100_000_000 },
                default: Some("100000"),
                doc: "How many of those are remembered at once, 32 bytes each, 16 for what is under way at once (and 8 in each server process), of memory that all server processes share. \
                  One that is in debt is never forgotten; when there is no place for another, those without a place \
                  count together, and the status says so.",
            },
            Property {
                name: "lease",
                kind: Kind::Number { least: 1, most: 1_000_000 },
                default: None,
                doc: "With `shared`: how many requests of a key a server may let in before the others have heard of them. All \
                  servers together may exceed `burst` by so many for each of them. Without it a quarter of `burst`, one at \
                  least.",
            },
        ],
        repeats: true,
        inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_rate(item))),
        doc: "How often something may be asked for, or how much of it may be under way at once: a request beyond it is \
          answered 429 with `Retry-After`, and goes nowhere. A rate tells more in `RateLimit` and `RateLimit-Policy`; where \
          what is under way is counted for all together (`by` without a placeholder) the answer is 503. Exact for all workers and server processes together, kept across a reload \
          and an upgrade. With `queue`, who finds no place among what may be under way waits for one, and gets that answer when \
          it has waited too long; where that is 503, `busy-answer` says what it looks like. A name is one count wherever it stands, so that a request that a `try` or an index leads on \
          counts once. `track` behind the name only counts what would be refused, to see what a limit would do. \
          `shared` counts together with the other \
          servers of the `limit-store`. `limit off` does away with the limits of the levels around.",
        example: "limit \"api\" requests=\"10/s\" burst=20 by=\"{client}\"",
        ..Directive::new("limit", EVERYWHERE)
    },
    Directive {
        arguments: &[
            one_or("speed", Kind::Speed { least: 16, most: 1 << 40 }, &["off"]),
            Argument { name: "track", kind: Kind::Choice(&["track"]), count: Count::Optional, words: &[] },
        ],
        properties: &[
            Property {
                name: "by",
                kind: Kind::FieldTemplate,
                default: None,
                doc: "Who has as much each: a text with placeholders, such as `{client}`. Without it all answers that this \
                  line is for share it, and clients have equal parts, however many connections each has.",
            },
            Property {
                name: "after",
                kind: Kind::Size { least: 0, most: 1 << 44 },
                default: Some("0B"),
                doc: "Bytes of each answer that are free: so small answers are as fast as ever.",
            },
            Property {
                name: "burst",
                kind: Kind::Size { least: 0, most: 1 << 40 },
                default: Some("0B"),
                doc: "Bytes that may be sent at once after as long a rest as earns them.",
            },
            Property {
                name: "class",
                kind: Kind::Text { most: 64 },
                default: None,
                doc: "All lines that name the same class share one bandwidth, wherever they stand. They have to say the same; \
                  `rules` and `use` write it once.",
            },
            Property {
                name: "keys",
                kind: Kind::Number { least: 8, most: 100_000_000 },
                default: Some("100000"),
                doc: "How many clients, or whatever `by` says, are known at once, 48 bytes each (and 8 in each server \
                  process), of memory that all server processes share. Those without a place share one bandwidth.",
            },
        ],
        repeats: true,
        inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_bandwidth(item))),
        doc: "How fast answers are sent: heads and content, over plain connections, TLS and HTTP/2 alike, of files and of \
          applications. One at the top level is for the whole server, one in a site for that, one in a route for that; they \
          add up, and the slowest counts. Exact for all workers and server processes together. Clients share it in equal \
          parts. A client that waits for its share is not taken for a slow one. `track` behind the speed delays nothing and \
          counts the bytes that it would delay. `bandwidth off` does away with those of the levels around.",
        example: "bandwidth \"1MiB/s\" by=\"{client}\" after=\"10MiB\"",
        ..Directive::new("bandwidth", EVERYWHERE)
    },
    Directive {
        arguments: &[
            one_or("name", Kind::Text { most: 64 }, &["off"]),
            Argument { name: "how", kind: Kind::Choice(&["track", "shared"]), count: Count::Any, words: &[] },
        ],
        properties: &[
            Property {
                name: "statuses",
                kind: Kind::Text { most: 128 },
                default: Some("401 403"),
                doc: "The statuses of answers that count, with spaces between them; refusals only, from 400 to 599. A 401 counts only where the \
                      request has shown credentials: an `Authorization` field, or a form (POST).",
            },
            Property {
                name: "count",
                kind: Kind::Number { least: 1, most: 1_000_000 },
                default: Some("20"),
                doc: "So many of them ban a client.",
            },
            Property {
                name: "within",
                kind: Kind::Duration { least: 1000, most: 30 * DAY },
                default: Some("1m"),
                doc: "In this time, which begins with the first of them.",
            },
            Property {
                name: "for",
                kind: Kind::Duration { least: 1000, most: 366 * DAY },
                default: Some("10m"),
                doc: "How long the client is banned.",
            },
            Property {
                name: "answer",
                kind: Kind::Text { most: 5 },
                default: Some("429"),
                doc: "What a banned client gets: this status, from 400 to 599, or `close`, which ends its connection without \
                  an answer. Connections of trusted proxies carry others, too, and get 429 instead.",
            },
            Property {
                name: "tarpit",
                kind: Kind::Duration { least: 10, most: 5 * 60 * 1000 },
                default: None,
                doc: "How long the answer is held back. A server process holds back 1000 at once, some hundred bytes each and \
                  their connections; further ones are given at once.",
            },
            Property {
                name: "keys",
                kind: Kind::Number { least: 8, most: 100_000_000 },
                default: Some("100000"),
                doc: "How many clients are known at once, 32 bytes each, of memory that all server processes share. Nobody \
                  who is banned is forgotten for another.",
            },
        ],
        repeats: true,
        inheritance: Inheritance::Adds(Apply::to_route(|route, item| route.add_ban(item))),
        doc: "Keeps out who is refused too often: a client (an IPv4 address, or an IPv6 network of 64 bits) that gets so many \
          answers with these statuses is answered 429 with `Retry-After` for a while, wherever a ban of this name stands. Exact \
          for all workers and server processes, kept over reloads, upgrades and the end of server processes. It is asked before \
          the access rules, and so counts what those refuse, as well as what a limit, a login or an application refuses; what it \
          answers itself is not counted. `tidegate bans` lists who is banned, `tidegate bans lift ADDRESS` lets somebody in \
          again. A trusted proxy, and one on this machine that names its clients, is never banned; other proxies of your own have \
          to be named in `trusted-proxies`, else it is they who are. `track` behind the name refuses nobody and counts. `shared` \
          bans on the other servers of the `limit-store` as well, which hear of it within a second or two, and of whom is let in again. `ban \
          off` does away with those of the levels around.",
        example: "ban \"guessers\" statuses=\"401 403\" count=20 within=\"1m\" for=\"10m\"",
        ..Directive::new("ban", EVERYWHERE)
    },
];
