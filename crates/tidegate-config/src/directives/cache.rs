//! `cache`: stores of responses, who uses them, and what they keep.

use super::{DAY, KIB, MIB, TIB, bound};
use crate::directive::{
    Apply, Children, Context, Directive, Inheritance, Kind, Property, one, one_or, some, some_or,
};
use crate::lower::cache;

const STORE: &[Context] = &[Context::CacheStore];
/// What a store says for all who use it, and each use for itself.
const POLICY: &[Context] = &[Context::CacheStore, Context::Cache];
const SWITCH: Kind = Kind::Choice(&["on", "off"]);
const YEAR: u64 = 365 * DAY;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one_or("name", Kind::Text { most: 64 }, &["off"])],
        children: Children::Block(Context::CacheStore),
        repeats: true,
        doc: "A store of responses, where its block has `memory` or `disk`; what else stands in the block holds for all who use \
              it. Without these it says that the whole server uses the store of that name, and its block what differs \
              from what the store says. A store answers for applications (`proxy`, `fastcgi`, `scgi`, `cgi`) what they have said may be \
              stored, and asks them for the rest. Files have the `file-cache`; only a route that names a store itself has \
              its files stored, which is for slow folders. `Cache-Status` and `tidegate explain` say what has come of a \
              request.",
        example: "cache \"main\" { memory \"64MiB\" }",
        ..Directive::new("cache", &[Context::Top])
    },
    Directive {
        arguments: &[one_or("name", Kind::Text { most: 64 }, &["off"])],
        children: Children::Block(Context::Cache),
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.cache = cache::usage(&route.stores, item))),
        doc: "The store that the responses of a site or a route are kept in. The block overrides what the store says. One of a \
              level inside takes the place of one outside, block and all; `off` uses none.",
        example: "cache \"main\"",
        ..Directive::new("cache", &[Context::Site, Context::Route])
    },
    bound("memory", STORE, &[one("size", Kind::Size { least: MIB, most: 16 * TIB })], "memory \"64MiB\"",
        "Bytes of memory, for contents, heads and what is kept to find them; never exceeded. Each of several `processes` has \
         as much.",
        "memory \"1GiB\""),
    Directive {
        arguments: &[one("folder", Kind::File)],
        properties: &[Property {
            name: "size",
            kind: Kind::Size { least: MIB, most: 1024 * TIB },
            default: None,
            doc: "The most bytes of files in it; never exceeded. Has to be given.",
        }],
        repeats: true,
        doc: "A folder for what the memory has no room for. It is made if it is not there, and is the server's alone. Several on \
              several disks share the load, and each fails by itself: without it, the others and the memory serve on.",
        example: "disk \"cache\" size=\"10GiB\"",
        ..Directive::new("disk", STORE)
    },
    bound("object-size", STORE, &[one_or("size", Kind::Size { least: KIB, most: 16 * TIB }, &["auto"])], "object-size auto",
        "The largest response that is stored. `auto` is a quarter of the largest place for it, which is the memory or \
         one of the disks, and not more than 1 GiB. In memory none is kept that is larger than ten sixteenths of it.",
        "object-size \"256MiB\""),
    Directive {
        arguments: &[one_or("status", Kind::Status { only: &[] }, &["2xx", "3xx", "4xx"]), one("time", Kind::Duration { least: 0, most: YEAR })],
        repeats: true,
        doc: "How long a response with this status may be used where the application says nothing of it: a status, or \
              `\"2xx\"`, `\"3xx\"`, `\"4xx\"` for all of a class that can be stored. One for a status goes before one for its class. What says \
              `no-store`, `no-cache`, `private` or how long it holds is never overruled. Statuses of one request or of a \
              failure (206, 304, 401, 429, 5xx and their like) are not stored by this.",
        example: "default-lifetime 200 \"10m\"",
        ..Directive::new("default-lifetime", POLICY)
    },
    bound("heuristic", POLICY, &[one("word", Kind::Choice(&["auto", "on", "off"]))], "heuristic auto",
        "Whether a response that says when it was changed last, and not how long it holds, is used for a tenth of its age, a day at \
         most (RFC 9111 section 4.2.2). `auto` does so for applications, not for files.",
        "heuristic off"),
    bound("query", POLICY, &[one("word", Kind::Choice(&["as-sent", "sort", "ignore"]))], "query as-sent",
        "How the query stands in the key. `sort` puts its parameters in order, so that `?a=1&b=2` and `?b=2&a=1` are the same; \
         `ignore` leaves it out. The application gets it as it was sent, so only what it takes to mean the same may be made the same.",
        "query sort"),
    Directive {
        arguments: &[some("names", Kind::Text { most: 128 })],
        doc: "Parameters of the query that are left out of the key; a `*`, anywhere in a name, stands for anything. They must change \
              nothing in the response. A request with one that an application may take for another goes past the store.",
        example: "query-drop \"utm_*\" \"fbclid\"",
        ..Directive::new("query-drop", POLICY)
    },
    Directive {
        arguments: &[some("names", Kind::Text { most: 128 })],
        doc: "The only parameters of the query that stand in the key; a `*`, anywhere in a name, stands for anything. All others must \
              change nothing in the response. A request with one that an application may take for one of these (`page.id` for \
              `page_id`) goes past the store.",
        example: "query-only \"page\" \"lang\"",
        ..Directive::new("query-only", POLICY)
    },
    Directive {
        arguments: &[some("names", Kind::Token)],
        doc: "Cookies whose values stand in the key: each value has responses of its own; a `*`, anywhere in a name, stands for \
              anything. For those with few values, such as a language.",
        example: "cookies \"lang\"",
        ..Directive::new("cookies", POLICY)
    },
    Directive {
        arguments: &[some_or("names", Kind::Token, &["auto", "none"])],
        default: Some("bypass-cookies auto"),
        doc: "Requests with one of these cookies go to the application, and their responses are not stored; a `*`, anywhere in a name, stands \
              for anything. Cookies that are named neither here nor in `cookies` then count for nothing: for applications that tell \
              visitors from users by certain cookies. `auto`: any cookie outside of `cookies` does so, unless the \
              response says `public` or `s-maxage`. `none`: no cookie does.",
        example: "bypass-cookies \"wordpress_logged_in_*\" \"wp-postpass_*\"",
        ..Directive::new("bypass-cookies", POLICY)
    },
    bound("store-cookies", POLICY, &[one("word", SWITCH)], "store-cookies off",
        "Whether a response with `Set-Cookie` may be stored, and everybody gets that cookie. Off, it is stored only where it says `public` or \
         `s-maxage`, and without the cookie, which the client alone gets whose request has fetched it.",
        "store-cookies on"),
    bound("collapse", POLICY, &[one("word", SWITCH)], "collapse on",
        "Whether requests for the same response, while it is being fetched, wait for the one fetch in place of asking the application \
         as well. They wait no longer than until its head has come.",
        "collapse off"),
    Directive {
        arguments: &[some_or("networks", Kind::Network, &["none"])],
        default: Some("obey-clients \"local\""),
        doc: "Clients that may force a fetch (`Cache-Control: no-cache`, `max-age`, `min-fresh`, `Pragma`), may say that what comes of their \
              request is not stored (`no-store`; what is stored already is used, RFC 9111 section 5.2.1.5), and are told why in \
              `Cache-Status`. Of others these words are ignored: each reload by anybody would reach the application.",
        example: "obey-clients \"local\" \"10.0.0.0/8\"",
        ..Directive::new("obey-clients", POLICY)
    },
    bound("stale-while-revalidate", POLICY, &[one_or("time", Kind::Duration { least: 1000, most: YEAR }, &["off"])],
        "stale-while-revalidate off",
        "How long past its lifetime a response may be used while a new one is fetched, where the application does not say it itself (RFC 5861).",
        "stale-while-revalidate \"10s\""),
    bound("stale-if-error", POLICY, &[one_or("time", Kind::Duration { least: 1000, most: YEAR }, &["off"])],
        "stale-if-error off",
        "How long past its lifetime a response may be used when the application cannot be reached or answers 500, 502, 503 or 504, where \
         it does not say it itself (RFC 5861).",
        "stale-if-error \"1h\""),
    bound("no-vary-search", POLICY, &[one("word", SWITCH)], "no-vary-search off",
        "Whether the field `No-Vary-Search` of a response may say which parameters of the query change nothing in it.",
        "no-vary-search on"),
    Directive {
        arguments: &[some_or("fields", Kind::FieldName, &["off"])],
        default: Some("tag-field \"Surrogate-Key\" \"Cache-Tag\" \"xkey\""),
        doc: "Fields whose words, with spaces or commas between them, are tags of a response, by which `tidegate cache purge --tag` finds \
              it. They are for this cache alone: clients do not get them.",
        example: "tag-field \"Surrogate-Key\"",
        ..Directive::new("tag-field", POLICY)
    },
];
