//! Applications behind the server.

use super::{HOUR, MIB, TIB, bound};
use crate::check::duration;
use crate::directive::{
    Apply, Argument, Children, Context, Count, Directive, Inheritance, Kind, OFF, Property, one, one_or,
    some, some_or,
};
use crate::lower;

const EVERYWHERE: &[Context] = &[Context::Top, Context::Site, Context::Route];
const INSIDE: &[Context] = &[Context::Site, Context::Route];
const ALL: &[Context] = &[Context::Fastcgi, Context::Scgi, Context::Cgi, Context::Proxy];
/// What may be a plain address, whose bounds nobody else knows.
const PLAIN: &[Context] = &[Context::Fastcgi, Context::Scgi, Context::Proxy];
const KEPT: &[Context] = &[Context::Fastcgi, Context::Proxy];
const SCRIPTS: &[Context] = &[Context::Fastcgi, Context::Scgi];
const VARIABLES: &[Context] = &[Context::Fastcgi, Context::Scgi, Context::Cgi];
const PROXY: &[Context] = &[Context::Proxy];

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("to", Kind::Destination)],
        children: Children::Block(Context::Fastcgi),
        doc: "Has requests answered by a FastCGI application: the name of a pool, or the address of one that runs \
              already. Connections are kept and reused; none is kept that another worker or request is in need of. \
              What the application writes to its standard error goes to the error log.",
        example: "fastcgi \"unix:/run/php/php-fpm.sock\"",
        ..Directive::new("fastcgi", INSIDE)
    },
    Directive {
        arguments: &[one("to", Kind::Destination)],
        children: Children::Block(Context::Scgi),
        doc: "Has requests answered by an SCGI application: the name of a pool, or the address of one that runs \
              already. In a route `\"/app/*\"` it is mounted at `/app`.",
        example: "scgi \"127.0.0.1:4000\"",
        ..Directive::new("scgi", INSIDE)
    },
    Directive {
        arguments: &[Argument { name: "pool", kind: Kind::Token, count: Count::Optional, words: &[] }],
        children: Children::Block(Context::Cgi),
        doc: "Runs CGI scripts (RFC 3875): the first part of the path that is a file below `root` or `alias` is the \
              script, what follows is `PATH_INFO`. They are started by small processes that a pool with `cgi-stubs` \
              keeps ready; without a name that is the pool `cgi`, which need not be written.",
        example: "cgi",
        ..Directive::new("cgi", INSIDE)
    },
    Directive {
        arguments: &[one("to", Kind::Url)],
        children: Children::Block(Context::Proxy),
        doc: "Passes requests on to an HTTP server: an address, a unix socket (`\"http://unix:/run/app.sock\"`) or \
              the name of a pool or group. With `https` TLS is spoken to it, see `tls` in `proxy`. `h2c` and `h2` in place \
              of `http` and `https` speak HTTP/2, as gRPC needs it, many requests to a connection. Paths are passed on \
              as the client sent them, behind the path of the address where it has one. WebSockets and other upgrades \
              go through over HTTP/1.1.",
        example: "proxy \"http://127.0.0.1:3000\"",
        ..Directive::new("proxy", INSIDE)
    },
    Directive {
        properties: &[
            Property { name: "name", kind: Kind::Text { most: 253 }, default: None,
                doc: "What the server is called: the name that is asked for (SNI) and that its certificate must be \
                      good for. Without it the host of the URL." },
            Property { name: "roots", kind: Kind::File, default: None,
                doc: "A PEM file of the authorities that are trusted. Without it whom the system trusts." },
            Property { name: "certificate", kind: Kind::File, default: None,
                doc: "A PEM file with a certificate to show where the server asks for one." },
            Property { name: "key", kind: Kind::File, default: None,
                doc: "A PEM file with its private key. Without it the key lies in the file of the certificate." },
            Property { name: "verify", kind: Kind::Choice(&["full", "none"]), default: Some("full"),
                doc: "`none` believes every server: whoever can stand between may read and change everything." },
        ],
        doc: "How TLS is spoken to the server of an `https` address. Its certificate is verified, TLS 1.3 and 1.2 are \
              offered, sessions are resumed. Files that change are read anew as those of the server's own are.",
        example: "tls name=\"app.internal\"",
        ..Directive::new("tls", &[Context::Proxy, Context::Forward, Context::Tokens, Context::Openid])
    },
    bound("connect-timeout", ALL, &[one("time", Kind::Duration { least: 1, most: HOUR })], "connect-timeout \"5s\"",
        "How long connecting to the application may take. Then the answer is 504, or another member is asked.",
        "connect-timeout \"1s\""),
    bound("timeout", ALL, &[one("time", Kind::Duration { least: 1, most: 24 * HOUR })], "timeout \"60s\"",
        "How long the application may be silent: until the first byte of its answer, between two pieces of it, and \
         in both directions of a WebSocket. Before the answer has begun the client gets 504. An application that takes \
         content of the request (64 KiB, or what had to wait for it) is not silent, nor is one whose answer has not begun \
         and whose client still owes it content: for that `body-rate` is there.",
        "timeout \"10m\""),
    bound("keep", KEPT, &[one_or("connections", Kind::Number { least: 1, most: 65535 }, &["off"])], "keep 32",
        "Idle connections to the application that each worker keeps. They are let go of early when the application \
         needs them for others. `off` opens one for each request.",
        "keep off"),
    bound("keep-timeout", &[Context::Fastcgi], &[one("time", Kind::Duration { least: 1, most: 24 * HOUR })],
        "keep-timeout \"2s\"",
        "How long an idle connection is kept. Most FastCGI applications serve one connection at a time: an idle one \
         holds a process that other programs of this machine may be waiting for. Within this server nobody waits: \
         what one worker keeps is let go of when another needs it.",
        "keep-timeout \"10s\""),
    bound("keep-timeout", PROXY, &[one("time", Kind::Duration { least: 1, most: 24 * HOUR })],
        "keep-timeout \"30s\"",
        "How long an idle connection is kept. Less than what the application itself keeps them for.",
        "keep-timeout \"4s\""),
    bound("connections", PLAIN, &[one_or("count", Kind::Number { least: 1, most: 1_000_000 }, &["auto", "unlimited"])],
        "connections auto",
        "Requests that the application gets at once, all workers together: the number of its processes where each \
         takes one at a time. The others wait in a queue, in the order of their arrival; a place that comes free on a \
         worker goes first to a request that waits there, where its connection is, unless another has waited more than \
         four times as long. `auto` lets 1024 wait for the beginning of their answers, so that an application that hangs \
         fills its own queue and nothing else; an answer that has begun, such as a WebSocket, is not counted. Several \
         `processes` have an equal part each, rounded up. A pool knows its own.",
        "connections 8"),
    Directive {
        properties: &[
            Property {
                name: "length",
                kind: Kind::Number { least: 0, most: 1_000_000 },
                default: Some("1024"),
                doc: "Most requests that wait; further ones are answered 503 at once.",
            },
            Property {
                name: "age",
                kind: Kind::Duration { least: 1, most: HOUR },
                default: Some("10s"),
                doc: "How long one may wait; then it is answered 503.",
            },
        ],
        default: Some("queue"),
        doc: "The queue before `connections`.",
        example: "queue length=128 age=\"2s\"",
        ..Directive::new("queue", PLAIN)
    },
    bound("buffer", ALL, &[one("size", Kind::Size { least: 0, most: 1024 * MIB })], "buffer \"1MiB\"",
        "How much of a response is taken off the application's hands when the client is slower. A response that fits \
         frees the application at once; a larger one flows at the client's pace.",
        "buffer \"256KiB\""),
    bound("request-buffer", ALL, &[one("size", Kind::Size { least: 0, most: 16 * MIB })], "request-buffer \"64KiB\"",
        "How much of a request body is collected before the application is bothered with it. What is larger is \
         streamed to it as it comes.",
        "request-buffer \"1MiB\""),
    Directive {
        arguments: &[one("root", Kind::File)],
        properties: &[Property {
            name: "prefix",
            kind: Kind::SitePath,
            default: None,
            doc: "The path that stands for the folder in `X-Accel-Redirect`; without it only `X-Sendfile` is heeded.",
        }],
        repeats: true,
        doc: "A folder whose files the application may have sent by naming one in `X-Sendfile` (its path in the file \
              system) or in `X-Accel-Redirect` (a path below `prefix`). Without this both fields are dropped.",
        example: "sendfile \".\" prefix=\"/protected/\"",
        ..Directive::new("sendfile", ALL)
    },
    Directive {
        arguments: &[some("suffixes", Kind::Suffix)],
        default: Some("split \".php\""),
        doc: "How scripts end. The path is split behind the first part that names one, what follows is `PATH_INFO`; \
              the script must be a file below the root. Compared byte by byte.",
        example: "split \".php\" \".phtml\"",
        ..Directive::new("split", SCRIPTS)
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        doc: "One script for all paths of the route, such as the front controller of a framework. The whole path is \
              `PATH_INFO`.",
        example: "script \"index.php\"",
        ..Directive::new("script", SCRIPTS)
    },
    Directive {
        arguments: &[one("prefix", Kind::SitePath)],
        doc: "The application is no file: the path begins with `prefix`, which is `SCRIPT_NAME`, and what follows is \
              `PATH_INFO`. For `scgi` in a route that ends in a star this is the default, with the part before it.",
        example: "mount \"/app\"",
        ..Directive::new("mount", SCRIPTS)
    },
    Directive {
        arguments: &[one("name", Kind::Variable), one_or("value", Kind::Text { most: 8192 }, &["off", "pass"])],
        repeats: true,
        doc: "A variable for the application, in place of one of the same name; `off` without quotes leaves it out. `pass` \
              lets a field of any client through which only proxies send: `param \"HTTP_X_USER\" pass`.",
        example: "param \"APP_ENV\" \"production\"",
        ..Directive::new("param", VARIABLES)
    },
    Directive {
        arguments: &[one("name", Kind::RequestField), one_or("value", Kind::FieldTemplate, &["off", "pass"]), super::answer::MODE],
        repeats: true,
        doc: "A field set on every request, in place of one of the same name; `off` without quotes takes it away, `pass` lets \
              through what any client sends, also where it is a field that only proxies send (`X-User`). With `add` \
              it stands beside what the client has sent, with `missing` it is only set where the client has sent none. \
              Placeholders are filled in as in `header`: where nothing comes of them, none is set, and what the client has sent is \
              dropped all the same.",
        example: "request-header \"X-Api-Key\" \"secret\"",
        ..Directive::new("request-header", PROXY)
    },
    Directive {
        arguments: &[one("host", Kind::ToldHost)],
        doc: "The host name for the application, or an address, without a port. Without it that is the one the client asked for.",
        example: "host \"app.internal\"",
        ..Directive::new("host", PROXY)
    },
    Directive {
        arguments: &[one("prefix", Kind::SitePath)],
        doc: "Cuts this off the front of the path.",
        example: "strip-prefix \"/api\"",
        ..Directive::new("strip-prefix", PROXY)
    },
    Directive {
        arguments: &[one("how", Kind::Choice(&["rewrite", "keep"]))],
        default: Some("redirects rewrite"),
        doc: "What becomes of `Location` and `Content-Location` in answers. `rewrite`: an address of the application \
              (its own, or the `host` it was told) becomes a path of this server, the path of the address in front is \
              taken away and what `strip-prefix` cut off is put back. `keep` passes them on as they are.",
        example: "redirects keep",
        ..Directive::new("redirects", PROXY)
    },
    Directive {
        arguments: &[OFF],
        default: Some("encoded-slashes off"),
        doc: "Passes on paths that hold `%2F`, as they were sent: GitLab, npm and RabbitMQ have such addresses. Without \
              it they are answered with 404. The route is looked up twice, with a slash in its place and with a part \
              of a name, and has to be the same: so `/api/a%2F..%2F..%2Fadmin` does not pass as a path below `/api/`, \
              whatever the application takes it for; nor does any path in which `%2F` stands beside a dot segment. `fastcgi`, `scgi` and `cgi` tell it in `REQUEST_URI`, and run the script that \
              `script`, `try`, `index` or `hand-to` name: no such path leads to a script by itself. `PATH_INFO` is left out, since it is \
              decoded and cannot tell `%2F` from a slash, so an application that is mounted gets no such path.",
        example: "encoded-slashes",
        ..Directive::new("encoded-slashes", ALL)
    },
    Directive {
        arguments: &[some_or("networks", Kind::Network, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.trusted_proxies = lower::networks(item).into())),
        default: Some("trusted-proxies off"),
        doc: "Clients that are proxies of one's own. Behind them the client is the last address that is none of them in \
              `X-Forwarded-For`, or, only where a request has no field of that name, in `Forwarded`: access rules, logs, balancing \
              and `REMOTE_ADDR` go by it, and the status page with them. What they say in `X-Forwarded-Proto`, or, only where \
              there is none, in `Forwarded`, is the scheme of the request: \
              `hsts` and `redirect-to-https` go by it, so do `HTTPS` and `REQUEST_SCHEME` of applications and \
              `{scheme}`. A proxy has to set these fields itself on every request, or to drop those of its clients, `Forwarded` as well. A \
              request whose client is no address there (`unknown`, `unix:`) gets 400, since nobody knows whose it is; one \
              that names nobody is the proxy's own. Their connections are not counted in `connections-per-address`. The `Forwarded`, \
              `X-Forwarded-…` and identity fields that they send are passed on to applications, with themselves \
              added; those of anybody else are dropped. A load balancer that speaks the PROXY protocol is named in \
              `listen`; whom it names is then the peer that this is about.",
        example: "trusted-proxies \"10.0.0.0/8\" \"unix\"",
        ..Directive::new("trusted-proxies", EVERYWHERE)
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.bucket = item.texts().into_iter().next();
        })),
        default: Some("bucket \"default-bucket\""),
        doc: "The performance bucket that the requests of these routes are counted in, under \"Performance Counters\" of the \
              status page and as `tidegate_bucket_…` for Prometheus: any routes of any sites may share one. What a route has \
              counted goes with it when it gets another bucket.",
        example: "bucket \"checkout\"",
        ..Directive::new("bucket", EVERYWHERE)
    },
    Directive {
        arguments: &[one_or("time", Kind::Duration { least: 1, most: 24 * HOUR }, &["auto"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.slow_after = (!item.is_word("auto")).then(|| duration(item));
        })),
        default: Some("slow-after auto"),
        doc: "Requests that take longer are shown as slow (`tidegate status slow`). `auto` learns it from the route: what takes \
              longer than 99.9 % of its requests, and 10 ms at least; before there were a thousand, half a second.",
        example: "slow-after \"200ms\"",
        ..Directive::new("slow-after", EVERYWHERE)
    },
    Directive {
        arguments: &[some_or("networks", Kind::Network, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.server_timing = lower::networks(item).into())),
        default: Some("server-timing off"),
        doc: "Clients that are told how long their answers have taken to make, in the field `Server-Timing`, which browsers show \
              beside a request: `queue`, `connect` and `app` where an application was asked, and `total`, in milliseconds, up to the head of the \
              answer. It tells of other people's load, so nobody else gets it, and nobody behind a proxy that is not among the \
              `trusted-proxies`. Files from the cache, which take no time, have none.",
        example: "server-timing \"local\" \"10.0.0.0/8\"",
        ..Directive::new("server-timing", EVERYWHERE)
    },
    Directive {
        arguments: &[OFF],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.has_request_id = !item.is_word("off"))),
        default: Some("request-id off"),
        doc: "Gives each request an id by which it is found again in the logs of all who had to do with it: 32 random \
              hexadecimal digits, or what one of the `trusted-proxies` sends in `X-Request-Id`, where that is of at most 128 \
              letters, digits and `-._~:+/=@`. Applications get it as `X-Request-Id` (`HTTP_X_REQUEST_ID`), in place of what \
              clients send by that name, access logs as `{request-id}`. `header \"X-Request-Id\" \"{request-id}\"` tells it to \
              the client as well.",
        example: "request-id",
        ..Directive::new("request-id", &[Context::Top, Context::Site])
    },
    Directive {
        arguments: &[one("word", Kind::Choice(&["pass", "begin"]))],
        properties: &[Property {
            name: "sample",
            kind: Kind::Share,
            default: Some("1%"),
            doc: "How many of the traces that begin here are sampled: their requests are told of in traces and exemplars.",
        }],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.sampling = lower::sampling(item))),
        default: Some("trace-context pass"),
        doc: "What is done about the fields `traceparent` and `tracestate` ([W3C Trace Context](https://www.w3.org/TR/trace-context/)). \
              `pass` does nothing: applications get what clients send. With `begin` each request belongs to a trace: to that of a valid \
              `traceparent` of one of the `trusted-proxies`, sampled if it says so, with its `tracestate` up to 512 bytes; else to a new \
              one. Applications get `traceparent` (`HTTP_TRACEPARENT`) with the id of the span in which this server asks them, in place of \
              what clients send by these names; access logs have the trace as `{trace-id}`.",
        example: "trace-context begin sample=\"5%\"",
        ..Directive::new("trace-context", &[Context::Top, Context::Site])
    },
    Directive {
        arguments: &[one("folder", Kind::File)],
        properties: &[Property {
            name: "size",
            kind: Kind::Size { least: MIB, most: 64 * TIB },
            default: Some("1GiB"),
            doc: "Most bytes at once, all workers together; what does not fit is answered 507.",
        }],
        default: Some("spill \"/tmp\""),
        doc: "The folder for request bodies that have to be complete before an application can have them: those of \
              unknown length for `fastcgi`, `scgi` and `cgi`. The files have no name and are gone with the request.",
        example: "spill \".\" size=\"256MiB\"",
        ..Directive::new("spill", &[Context::Top])
    },
];
