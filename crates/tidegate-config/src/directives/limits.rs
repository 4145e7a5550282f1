//! `limits`: bounds on what clients may do, for the server as a whole, and for the requests to a site or a route.

use super::{DAY, GIB, HOUR, KIB, MIB, SECOND, TIB, bound};
use crate::check::{Item, duration, number};
use crate::directive::{
    Apply, Argument, Children, Context, Directive, Inheritance, Kind, Property, one, one_or, some_or,
};
use crate::lower::limits::small;
use crate::settings::RequestLimits;

const LIMITS: &[Context] = &[Context::Limits];

/// A limit that a site or a route may set for itself, and how.
const fn of_request(
    apply: fn(&mut RequestLimits, &Item),
    name: &'static str,
    argument: &'static [Argument],
    default: &'static str,
    doc: &'static str,
    example: &'static str,
) -> Directive {
    let contexts = &[Context::Limits, Context::RequestLimits];
    let mut directive = bound(name, contexts, argument, default, doc, example);
    directive.inheritance = Inheritance::Replaces(Apply::to_limits(apply));
    directive
}

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        children: Children::Block(Context::Limits),
        doc: "Bounds on what a client may do. All are on by default; each is there because without it a few \
              clients could take the server from all others.",
        example: "limits { body-size \"1GiB\"; keep-alive-timeout \"20s\" }",
        ..Directive::new("limits", &[Context::Top])
    },
    Directive {
        children: Children::Block(Context::RequestLimits),
        inheritance: Inheritance::Adds(Apply::to_route(|route, item| {
            for child in &item.children {
                child.directive.inheritance.apply_to_limits(&mut route.limits, child);
            }
        })),
        doc: "Bounds of the requests to this site, or to this route. What is not said here is what the level around says. \
              The route is the one that the path of the request leads to; what `index`, `try` or an error page lead on \
              to counts no more. Limits of connections, of the server's memory, and of what comes before the site is \
              known (`head-timeout`, `handshake-timeout`, `fields`, `streams`) stand at the top level only.",
        example: "limits { body-size \"1GiB\" }",
        ..Directive::new("limits", &[Context::Site, Context::Route])
    },
    bound("connections", LIMITS, &[one("count", Kind::Number { least: 1, most: 10_000_000 })], "connections 20000",
        "Open client connections, all workers together. Each needs a descriptor; raise `LimitNOFILE` with it. Several \
         `processes` have an equal part each: where the kernel gives one of them more than its part, it turns clients \
         away although another has room.",
        "connections 100000"),
    bound("connections-per-address", LIMITS, &[one_or("count", Kind::Number { least: 1, most: 10_000_000 }, &["unlimited"])],
        "connections-per-address 2048",
        "Open connections of one client address, of one /64 network for IPv6; above it the answer is 429. Many \
         clients may share an address behind a gateway, so it is generous. Addresses of `exempt-addresses` are \
         not counted.",
        "connections-per-address 200"),
    Directive {
        arguments: &[some_or("networks", Kind::Network, &["none"])],
        default: Some("exempt-addresses \"127.0.0.0/8\" \"::1\""),
        doc: "Clients that `connections-per-address` does not count, nor the requests that they cancel over HTTP/2: \
              load balancers and TLS terminators in front, mirrors that fetch a lot. `none` counts everyone.",
        example: "exempt-addresses \"127.0.0.0/8\" \"::1\" \"10.0.0.0/8\"",
        ..Directive::new("exempt-addresses", LIMITS)
    },
    bound("in-flight", LIMITS, &[one("count", Kind::Number { least: 1, most: 10_000_000 })], "in-flight 4096",
        "Requests that wait for something at the same time: an application, a cold disk, a scan of a folder. What \
         is answered at once is not counted, nor is one whose content is still to come. Of what is free, all requests \
         to one application may hold eight times as much, those of one site sixteen times: one alone ends at eight \
         ninths, the others always find some, and whoever has none is let in even when all are taken. Requests over \
         it wait in the `queue`.",
        "in-flight 500"),
    bound("incoming-bodies", LIMITS, &[one("count", Kind::Number { least: 1, most: 10_000_000 })],
        "incoming-bodies 8192",
        "Requests whose content is still to come before they can be answered. They hold nothing of an application and \
         no place `in-flight`. One client may have half of what is free, one site sixteen seventeenths; further ones \
         get the `busy-answer`. As many again may wait for what the server has to find out before it can begin: a \
         login, the decision of an application, where a file lies.",
        "incoming-bodies 1000"),
    Directive {
        properties: &[
            Property {
                name: "length",
                kind: Kind::Number { least: 0, most: 10_000_000 },
                default: Some("4096"),
                doc: "Requests that wait at most; further ones get the `busy-answer` at once.",
            },
            Property {
                name: "age",
                kind: Kind::Duration { least: 10, most: HOUR },
                default: Some("10s"),
                doc: "How long a request waits at most; then it gets the `busy-answer`.",
            },
        ],
        default: Some("queue length=4096 age=\"10s\""),
        doc: "Where requests over `in-flight` wait, those for each application in the order they came. A client that goes away frees its place.",
        example: "queue length=500 age=\"2s\"",
        ..Directive::new("queue", LIMITS)
    },
    bound("memory", LIMITS, &[one_or("size", Kind::Size { least: MIB, most: 16 * TIB }, &["auto"])], "memory auto",
        "Bytes that all connections together may own: heads and bodies that are incomplete, answers that nobody takes, \
         what is read ahead of an application, compressed or remembered for them. When it is short nothing is read \
         ahead and nothing is compressed; above it those that hold the most for the longest are reset first, then \
         new connections, and requests that would have to wait, are refused. `auto` is a quarter of the memory that this server may use: the limit of its \
         cgroup, what a bounded address space (`ulimit -v`) leaves, else what the machine has. In a cgroup or an address space with a bound it is never \
         more than half of that.",
        "memory \"256MiB\""),
    bound("overload-delay", LIMITS, &[one_or("time", Kind::Duration { least: 10, most: 60 * SECOND }, &["off"])],
        "overload-delay \"500ms\"",
        "How long what is ready may wait for its turn on a worker before the server counts as overloaded and turns \
         away idle connections, then new ones, then new requests. A crowd that is served slower than usual is no \
         overload; a queue that does not empty is. `off` never turns away.",
        "overload-delay \"200ms\""),
    of_request(|limits, item| limits.head_size = small(item),
        "head-size", &[one("size", Kind::Size { least: KIB, most: MIB })], "head-size \"32KiB\"",
        "Bytes of a request head, its target included; above it the answer is 431. Large cookies may need more.",
        "head-size \"64KiB\""),
    of_request(|limits, item| limits.target_size = small(item),
        "target-size", &[one("size", Kind::Size { least: 256, most: MIB })], "target-size \"8KiB\"",
        "Bytes of a request target; above it the answer is 414. Not more than `head-size`.",
        "target-size \"16KiB\""),
    bound("fields", LIMITS, &[one("count", Kind::Number { least: 8, most: 256 })], "fields 100",
        "Field lines of a request head; above it the answer is 431.",
        "fields 200"),
    of_request(|limits, item| (limits.body_size, limits.body_size_origin) = (number(item), item.origin()),
        "body-size", &[one("size", Kind::Size { least: 0, most: 16 * TIB })], "body-size \"16MiB\"",
        "Bytes of a request body; above it the answer is 413, before the body is read.",
        "body-size \"1GiB\""),
    bound("head-timeout", LIMITS, &[one("time", Kind::Duration { least: 100, most: HOUR })], "head-timeout \"10s\"",
        "Time from the first byte of a request head to its last.",
        "head-timeout \"5s\""),
    bound("handshake-timeout", LIMITS, &[one("time", Kind::Duration { least: 100, most: HOUR })], "handshake-timeout \"10s\"",
        "Time from the beginning of a connection to the end of its TLS handshake, a header of the PROXY protocol \
         included. One on which nothing comes begins when the kernel hands it over, up to 8 seconds after it was made.",
        "handshake-timeout \"5s\""),
    of_request(|limits, item| limits.body_rate = small(item),
        "body-rate", &[one("size", Kind::Size { least: 0, most: GIB })], "body-rate \"256B\"",
        "Bytes per second below which a request body is given up with 408, once `rate-grace` has passed. \
         `\"0B\"` waits for ever.",
        "body-rate \"1KiB\""),
    of_request(|limits, item| limits.send_rate = small(item),
        "send-rate", &[one("size", Kind::Size { least: 0, most: GIB })], "send-rate \"256B\"",
        "Bytes per second below which a reader is given up and its connection reset, once `rate-grace` has \
         passed. What counts is what the client has acknowledged. `\"0B\"` waits for ever.",
        "send-rate \"1KiB\""),
    bound("streams", LIMITS, &[one("count", Kind::Number { least: 1, most: 1000 })], "streams 128",
        "Requests that a client may have under way at once on one HTTP/2 connection. More are refused, and may be \
         sent again.",
        "streams 64"),
    of_request(|limits, item| limits.rate_grace = duration(item),
        "rate-grace", &[one("time", Kind::Duration { least: SECOND, most: HOUR })], "rate-grace \"30s\"",
        "How long a connection may be slower than `body-rate` or `send-rate`.",
        "rate-grace \"10s\""),
    of_request(|limits, item| limits.keep_alive_timeout = duration(item),
        "keep-alive-timeout", &[one("time", Kind::Duration { least: 0, most: DAY })], "keep-alive-timeout \"60s\"",
        "An idle connection is closed after this. Idle ones are cheap here, so longer saves clients a handshake.",
        "keep-alive-timeout \"5m\""),
    bound("keep-alive-connections", LIMITS, &[one("count", Kind::Number { least: 1, most: 10_000_000 })], "keep-alive-connections 16384",
        "Idle connections at the same time, all workers together; each worker has an equal share. When there are \
         more, those that have been idle longest are closed. Less than `connections` leaves room for those that \
         come.",
        "keep-alive-connections 50000"),
    of_request(|limits, item| limits.keep_alive_requests = (!item.is_word("unlimited")).then(|| small(item)),
        "keep-alive-requests", &[one_or("count", Kind::Number { least: 1, most: 4_000_000_000 }, &["unlimited"])], "keep-alive-requests unlimited",
        "Requests served on one connection before it is closed. A number spreads clients anew over several servers.",
        "keep-alive-requests 10000"),
    of_request(|limits, item| limits.discard_size = number(item),
        "discard-size", &[one("size", Kind::Size { least: 0, most: GIB })], "discard-size \"64KiB\"",
        "Bytes of a request body nobody reads that are read and dropped to keep the connection; with more left, \
         it is closed.",
        "discard-size \"1MiB\""),
    of_request(|limits, item| limits.linger_timeout = duration(item),
        "linger-timeout", &[one("time", Kind::Duration { least: 0, most: HOUR })], "linger-timeout \"2s\"",
        "How long a closing connection waits for the client to stop sending, so that the client sees the answer. It waits \
         where something that was sent is unread, behind an answer of more than ten segments, and with HTTP/2, where a \
         client that goes on reading has this time anew, up to five times.",
        "linger-timeout \"5s\""),
    of_request(|limits, item| limits.ranges = u16::try_from(number(item)).unwrap_or(u16::MAX),
        "ranges", &[one("count", Kind::Number { least: 1, most: 1000 })], "ranges 64",
        "Ranges of one request; with more the whole file is sent.",
        "ranges 16"),
    bound("unsent-size", LIMITS, &[one("size", Kind::Size { least: 4 * KIB, most: GIB })], "unsent-size \"128KiB\"",
        "Unsent bytes that the kernel may hold for one connection (`TCP_NOTSENT_LOWAT`) once a worker has more than \
         128 of them, and half of what it may hold in all (`SO_SNDBUF`); with thousands of them it is less, down to 16 KiB, below 128 up \
         to 8 times as much for one whose client has taken a part, where `memory` allows. Less saves kernel memory with many slow downloads, more saves \
         processor time.",
        "unsent-size \"512KiB\""),
];
