//! What the server as a whole is told: listeners, limits, the file cache, logs, its own files.

use crate::directive::{Argument, Children, Context, Count, Directive, Kind, Property, one, one_or, some_or};

const TOP: &[Context] = &[Context::Top];
const LIMITS: &[Context] = &[Context::Limits];
const CACHE: &[Context] = &[Context::FileCache];
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;
const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// A bound of `limits` or of `file-cache`: one value, one default.
const fn bound(
    name: &'static str,
    contexts: &'static [Context],
    argument: &'static [Argument],
    default: &'static str,
    doc: &'static str,
    example: &'static str,
) -> Directive {
    let mut directive = Directive::new(name, contexts);
    directive.arguments = argument;
    directive.default = Some(default);
    directive.doc = doc;
    directive.example = example;
    directive
}

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one_or("count", Kind::Number { least: 1, most: 1024 }, &["auto"])],
        default: Some("workers auto"),
        doc: "Worker threads. `auto` is one for each processor this process may run on, which is right unless \
              the machine is shared with something that needs processors of its own.",
        example: "workers 4",
        ..Directive::new("workers", TOP)
    },
    bound("processes", TOP, &[one("count", Kind::Number { least: 1, most: 64 })], "processes 1",
        "Server processes (`MaxProcs`), each with `workers` workers. One is right for most. More hold more \
         connections where a process may not have enough descriptors, and of several only one's connections are \
         lost should it crash. `limits` hold for all of them together, the file cache is each worker's own.",
        "processes 2"),
    Directive {
        arguments: &[one("name", Kind::Text { most: 64 })],
        properties: &[Property {
            name: "group",
            kind: Kind::Text { most: 64 },
            default: None,
            doc: "The group, by name or number, in place of the user's own groups.",
        }],
        doc: "Whom the server processes become, by name or number, when the server is started as root: they serve \
              the clients. The master stays root, to open ports below 1024, logs and sockets for them; it touches \
              no byte of a client. Without it the servers stay root, and a warning says so.",
        example: "user \"www-data\" group=\"www-data\"",
        ..Directive::new("user", TOP)
    },
    Directive {
        arguments: &[one("word", Kind::Choice(&["auto", "off"]))],
        default: Some("sandbox auto"),
        doc: "Confines the server processes by landlock, where the kernel has it: they may read the folders that \
              the roots lie in and a few files of the system, write nothing but content in the `spill` folder, run \
              nothing and open no port. What they need beyond that, the master opens for them. Where the server is not started as root, pools, \
              CGI scripts and hooks are confined as well: they reach neither its keys nor its control socket. `off` leaves \
              it to the permissions of the user.",
        example: "sandbox off",
        ..Directive::new("sandbox", TOP)
    },
    Directive {
        arguments: &[one("address", Kind::Address)],
        children: Children::Block(Context::Listen),
        repeats: true,
        doc: "An address to accept connections on; at least one is needed.\n\n\
              | written | means |\n| --- | --- |\n\
              | `\"127.0.0.1:8080\"` | that IPv4 address |\n\
              | `\"[::1]:8080\"` | that IPv6 address |\n\
              | `\":80\"`, `\"*:80\"`, `\"80\"`, `\"[::]:80\"` | every address of the machine, IPv6 and IPv4 |\n\
              | `\"0.0.0.0:80\"` | every IPv4 address of the machine |\n\
              | `\"unix:/run/tidegate.sock\"` | a unix socket |\n\n\
              Names are not looked up: write the address. Port 0 lets the kernel choose.",
        example: "listen \"127.0.0.1:8080\"",
        ..Directive::new("listen", TOP)
    },
    bound("backlog", &[Context::Listen], &[one("connections", Kind::Number { least: 1, most: 65535 })], "backlog 4096",
        "Connections that wait in the kernel to be accepted, for each worker. The kernel caps it at \
         `net.core.somaxconn`. More absorbs a sharper burst; what does not fit is dropped by the kernel.",
        "backlog 8192"),
    Directive {
        arguments: &[one("name", Kind::Host)],
        doc: "The site that answers on this listener when no site claims the host name. Without it the site \
              without a name answers, else the first site.",
        example: "default-site \"example.com\"",
        ..Directive::new("default-site", &[Context::Listen])
    },
    Directive {
        doc: "Speaks HTTP/2 with clients that begin with it (prior knowledge, h2c), and HTTP/1 with the others. \
              For use behind a balancer that speaks it, for gRPC, and for tests: browsers speak HTTP/2 over TLS only.",
        example: "h2c",
        ..Directive::new("h2c", &[Context::Listen])
    },
    Directive {
        arguments: &[one("bits", Kind::Text { most: 5 })],
        doc: "Permission bits of a unix socket, in octal: who may write to it may connect. Without it the umask \
              decides.",
        example: "mode \"0660\"",
        ..Directive::new("mode", &[Context::Listen])
    },
    Directive {
        arguments: &[one("name", Kind::Text { most: 64 })],
        doc: "Owner of a unix socket, by name or number. Giving it away takes root.",
        example: "owner \"www-data\"",
        ..Directive::new("owner", &[Context::Listen])
    },
    Directive {
        arguments: &[one("name", Kind::Text { most: 64 })],
        doc: "Group of a unix socket, by name or number. Another than one's own takes root.",
        example: "group \"www-data\"",
        ..Directive::new("group", &[Context::Listen])
    },
    Directive {
        arguments: &[one("files", Kind::Glob)],
        repeats: true,
        doc: "Reads other files as if their text stood here. `*` and `?` stand for any characters but `/`; the \
              files come in the order of their names, hidden ones left out. A pattern that finds nothing is fine, \
              a plain path that is not there is an error. A relative path counts from the folder of the file it \
              is written in. A mistake in the sites of one file leaves the other sites serving.",
        example: "include \"sites/*.kdl\"",
        ..Directive::new("include", TOP)
    },
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "A file that holds the process number while the server runs, for service managers that want one.",
        example: "pid-file \"tidegate.pid\"",
        ..Directive::new("pid-file", TOP)
    },
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "The control socket that `tidegate status`, `reload`, `stop` and `upgrade` speak to. Without it, it \
              lies beside the pid file. Who may write to it may control the server.",
        example: "control \"tidegate.sock\"",
        ..Directive::new("control", TOP)
    },
    bound("drain-timeout", TOP, &[one("time", Kind::Duration { least: 0, most: DAY })], "drain-timeout \"30s\"",
        "How long a server that stops waits for the requests in flight. Longer lets slow downloads finish.",
        "drain-timeout \"2m\""),
    Directive {
        arguments: &[one_or("target", Kind::LogTarget, &["off"])],
        properties: &[
            Property {
                name: "format",
                kind: Kind::LogFormat,
                default: Some("combined"),
                doc: "What a line looks like: the common log format (`common`), the same with referrer and user \
                      agent (`combined`), one JSON object (`json`), or a pattern with placeholders.",
            },
            Property {
                name: "only",
                kind: Kind::Choice(&["errors"]),
                default: None,
                doc: "Leaves out the requests that were answered with a status below 400.",
            },
        ],
        default: Some("access-log off"),
        doc: "Where a line for each request goes: a path, `stderr`, `stdout` or `off`. In a site it takes the \
              place of the server's.\n\n\
              The placeholders of a pattern; what is not there is `-`, and nothing of a client can break out of \
              its line:\n\n\
              | placeholder | is |\n| --- | --- |\n\
              | `{client}`, `{client-port}` | address and port of the client |\n\
              | `{scheme}`, `{host}` | what was asked, and of whom, as sent |\n\
              | `{method}`, `{target}`, `{protocol}` | the request line, as sent |\n\
              | `{path}`, `{query}` | the target before and behind its `?` |\n\
              | `{status}` | of the response; 499 where the client left before it |\n\
              | `{bytes}` | of the response, without its head |\n\
              | `{bytes-in}`, `{bytes-out}` | of request and response, heads included |\n\
              | `{duration}`, `{duration-ms}`, `{duration-us}` | from the complete request head to the last byte \
              of the response handed to the kernel: seconds, milliseconds, microseconds |\n\
              | `{time}`, `{time-iso}`, `{time-unix}` | `10/Oct/2000:13:55:36 +0000`, `2000-10-10T13:55:36Z`, \
              `971186136` |\n\
              | `{request.NAME}` | a field of the request, such as `{request.User-Agent}` |\n\
              | `{response.NAME}` | a field of the response, such as `{response.Content-Type}`; not those that \
              every response has by itself (`Date`, `Server`, `Content-Length`, `Connection`) |\n\
              | `{{`, `}}` | a brace |",
        example: "access-log \"access.log\" format=\"{time} {client} {method} {target} {status} {duration-us}\"",
        ..Directive::new("access-log", &[Context::Top, Context::Site])
    },
    Directive {
        arguments: &[one("target", Kind::LogTarget)],
        properties: &[Property {
            name: "level",
            kind: Kind::Choice(&["error", "warn", "info", "debug"]),
            default: Some("info"),
            doc: "The least important messages that are still written.",
        }],
        default: Some("error-log \"stderr\""),
        doc: "Where the server's own messages go: a path, `stderr` or `stdout`.",
        example: "error-log \"stderr\" level=warn",
        ..Directive::new("error-log", TOP)
    },
    Directive {
        arguments: &[one_or("value", Kind::FieldValue, &["off"])],
        default: Some("server-field \"Tidegate\""),
        doc: "The `Server` field of every response. `off` leaves it out.",
        example: "server-field off",
        ..Directive::new("server-field", TOP)
    },
    Directive {
        arguments: &[
            one("status", Kind::Status { only: &[429, 503] }),
            Argument { name: "text", kind: Kind::Text { most: 65536 }, count: Count::Optional, words: &[] },
        ],
        properties: &[
            Property {
                name: "retry-after",
                kind: Kind::Duration { least: SECOND, most: DAY },
                default: Some("1s"),
                doc: "What clients are told to wait (`Retry-After`), in whole seconds.",
            },
            Property {
                name: "file",
                kind: Kind::File,
                default: None,
                doc: "A file of UTF-8 text to send in place of a text; read when the settings are.",
            },
            Property {
                name: "type",
                kind: Kind::MediaType,
                default: None,
                doc: "The media type; `text/plain` for a text, `text/html` for a file where it is left out.",
            },
        ],
        default: Some("busy-answer 503 retry-after=\"1s\""),
        doc: "What those get who are turned away because the server is busy: over `limits connections`, in a full \
              or too slow `queue`, or under overload. Short is better: it is sent when there is least to spare.",
        example: "busy-answer 503 \"Too many visitors, please come back in a minute.\\n\" retry-after=\"60s\"",
        ..Directive::new("busy-answer", TOP)
    },
    Directive {
        children: Children::Block(Context::Limits),
        doc: "Bounds on what a client may do. All are on by default; each is there because without it a few \
              clients could take the server from all others.",
        example: "limits { body-size \"1GiB\"; keep-alive-timeout \"20s\" }",
        ..Directive::new("limits", TOP)
    },
    bound("connections", LIMITS, &[one("count", Kind::Number { least: 1, most: 10_000_000 })], "connections 20000",
        "Open client connections, all workers together. Each needs a descriptor; raise `LimitNOFILE` with it.",
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
         get the `busy-answer`.",
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
         cgroup, else what the machine has. In a cgroup with a bound it is never more than half of that.",
        "memory \"256MiB\""),
    bound("overload-delay", LIMITS, &[one_or("time", Kind::Duration { least: 10, most: 60 * SECOND }, &["off"])],
        "overload-delay \"500ms\"",
        "How long what is ready may wait for its turn on a worker before the server counts as overloaded and turns \
         away idle connections, then new ones, then new requests. A crowd that is served slower than usual is no \
         overload; a queue that does not empty is. `off` never turns away.",
        "overload-delay \"200ms\""),
    bound("head-size", LIMITS, &[one("size", Kind::Size { least: KIB, most: MIB })], "head-size \"32KiB\"",
        "Bytes of a request head, its target included; above it the answer is 431. Large cookies may need more.",
        "head-size \"64KiB\""),
    bound("target-size", LIMITS, &[one("size", Kind::Size { least: 256, most: MIB })], "target-size \"8KiB\"",
        "Bytes of a request target; above it the answer is 414. Not more than `head-size`.",
        "target-size \"16KiB\""),
    bound("fields", LIMITS, &[one("count", Kind::Number { least: 8, most: 256 })], "fields 100",
        "Field lines of a request head; above it the answer is 431.",
        "fields 200"),
    bound("body-size", LIMITS, &[one("size", Kind::Size { least: 0, most: 16 * TIB })], "body-size \"16MiB\"",
        "Bytes of a request body; above it the answer is 413, before the body is read.",
        "body-size \"1GiB\""),
    bound("head-timeout", LIMITS, &[one("time", Kind::Duration { least: 100, most: HOUR })], "head-timeout \"10s\"",
        "Time from the first byte of a request head to its last.",
        "head-timeout \"5s\""),
    bound("handshake-timeout", LIMITS, &[one("time", Kind::Duration { least: 100, most: HOUR })], "handshake-timeout \"10s\"",
        "Time from the beginning of a connection to the end of its TLS handshake, a header of the PROXY protocol \
         included.",
        "handshake-timeout \"5s\""),
    bound("body-rate", LIMITS, &[one("size", Kind::Size { least: 0, most: GIB })], "body-rate \"256B\"",
        "Bytes per second below which a request body is given up with 408, once `rate-grace` has passed. \
         `\"0B\"` waits for ever.",
        "body-rate \"1KiB\""),
    bound("send-rate", LIMITS, &[one("size", Kind::Size { least: 0, most: GIB })], "send-rate \"256B\"",
        "Bytes per second below which a reader is given up and its connection reset, once `rate-grace` has \
         passed. What counts is what the client has acknowledged. `\"0B\"` waits for ever.",
        "send-rate \"1KiB\""),
    bound("streams", LIMITS, &[one("count", Kind::Number { least: 1, most: 1000 })], "streams 128",
        "Requests that a client may have under way at once on one HTTP/2 connection. More are refused, and may be \
         sent again.",
        "streams 64"),
    bound("rate-grace", LIMITS, &[one("time", Kind::Duration { least: SECOND, most: HOUR })], "rate-grace \"30s\"",
        "How long a connection may be slower than `body-rate` or `send-rate`.",
        "rate-grace \"10s\""),
    bound("keep-alive-timeout", LIMITS, &[one("time", Kind::Duration { least: 0, most: DAY })], "keep-alive-timeout \"60s\"",
        "An idle connection is closed after this. Idle ones are cheap here, so longer saves clients a handshake.",
        "keep-alive-timeout \"5m\""),
    bound("keep-alive-connections", LIMITS, &[one("count", Kind::Number { least: 1, most: 10_000_000 })], "keep-alive-connections 16384",
        "Idle connections at the same time, all workers together; each worker has an equal share. When there are \
         more, those that have been idle longest are closed. Less than `connections` leaves room for those that \
         come.",
        "keep-alive-connections 50000"),
    bound("keep-alive-requests", LIMITS, &[one_or("count", Kind::Number { least: 1, most: 4_000_000_000 }, &["unlimited"])], "keep-alive-requests unlimited",
        "Requests served on one connection before it is closed. A number spreads clients anew over several servers.",
        "keep-alive-requests 10000"),
    bound("discard-size", LIMITS, &[one("size", Kind::Size { least: 0, most: GIB })], "discard-size \"64KiB\"",
        "Bytes of a request body nobody reads that are read and dropped to keep the connection; with more left, \
         it is closed.",
        "discard-size \"1MiB\""),
    bound("linger-timeout", LIMITS, &[one("time", Kind::Duration { least: 0, most: HOUR })], "linger-timeout \"2s\"",
        "How long a closing connection waits for the client to stop sending, so that the client sees the answer.",
        "linger-timeout \"5s\""),
    bound("ranges", LIMITS, &[one("count", Kind::Number { least: 1, most: 1000 })], "ranges 64",
        "Ranges of one request; with more the whole file is sent.",
        "ranges 16"),
    bound("unsent-size", LIMITS, &[one("size", Kind::Size { least: 4 * KIB, most: GIB })], "unsent-size \"128KiB\"",
        "Unsent bytes that the kernel may hold for one connection (`TCP_NOTSENT_LOWAT`) once a worker has more than \
         128 of them; below that it is up to 16 times as much, where `memory` allows. Less saves kernel memory with many slow downloads, more saves \
         processor time.",
        "unsent-size \"512KiB\""),
    Directive {
        arguments: &[Argument { name: "off", kind: Kind::Choice(&["off"]), count: Count::Optional, words: &[] }],
        children: Children::Block(Context::FileCache),
        doc: "The file cache of each worker: small files in memory, larger ones as an open descriptor. A changed \
              file is noticed at once, or after `max-age` where the system cannot tell. `file-cache off` looks at \
              the file system for every request.",
        example: "file-cache { entries 50000; memory \"256MiB\" }",
        ..Directive::new("file-cache", TOP)
    },
    bound("entries", CACHE, &[one("count", Kind::Number { least: 1, most: 10_000_000 })], "entries 16384",
        "Most files known at once. Sites with more files that are asked for often gain from more.",
        "entries 100000"),
    bound("memory", CACHE, &[one("size", Kind::Size { least: 0, most: TIB })], "memory \"64MiB\"",
        "Most bytes of file contents held in memory, for each worker.",
        "memory \"512MiB\""),
    bound("memory-file-size", CACHE, &[one("size", Kind::Size { least: 0, most: GIB })], "memory-file-size \"8KiB\"",
        "Files up to this are held in memory whole and sent in one piece; larger ones are sent from the page cache \
         with `sendfile`, which was measured to cost less from 8 KiB on.",
        "memory-file-size \"32KiB\""),
    bound("descriptors", CACHE, &[one("count", Kind::Number { least: 0, most: 1_000_000 })], "descriptors 2048",
        "Most larger files held open, for each worker. Those that nobody is being sent are closed where the process \
         runs out of descriptors.",
        "descriptors 8192"),
    bound("max-age", CACHE, &[one("time", Kind::Duration { least: 0, most: 365 * DAY })], "max-age \"30s\"",
        "An entry older than this is compared with the file system before it is used; shorter matters only where \
         changes cannot be watched, such as network file systems.",
        "max-age \"2s\""),
];
