//! What the server as a whole is told: listeners, limits, the file cache, logs, its own files.

use super::{DAY, GIB, HOUR, SECOND, TIB, bound};
use crate::directive::{Argument, Children, Context, Count, Directive, Kind, Property, any, one, one_or};
use crate::lower::logs::FACILITIES;

const TOP: &[Context] = &[Context::Top];
const CACHE: &[Context] = &[Context::FileCache];
const STATISTICS: &[Context] = &[Context::Statistics];
const ADMIN: &[Context] = &[Context::Admin];

/// What a daemon that collects logs is told of us.
pub(super) const FACILITY: Property = Property {
    name: "facility",
    kind: Kind::Choice(FACILITIES),
    default: None,
    doc: "For `syslog` and `journald`: as what kind of program the server speaks; `daemon` unless it is set.",
};
pub(super) const TAG: Property = Property {
    name: "tag",
    kind: Kind::Token,
    default: None,
    doc: "For `syslog` and `journald`: the name of the program; `tidegate` unless it is set.",
};
pub(super) const PROTOCOL: Property = Property {
    name: "protocol",
    kind: Kind::Choice(&["rfc5424"]),
    default: None,
    doc: "Of `syslog` by a path: RFC 5424, for a daemon that reads it there. Without it messages are what `syslog(3)` \
          writes; over UDP and TCP they are of RFC 5424 anyway.",
};

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
              the clients. The master stays root, to open ports below 1024, logs and sockets for them; it never touches \
              client traffic. Without it the servers stay root, and a warning says so.",
        example: "user \"www-data\" group=\"www-data\"",
        ..Directive::new("user", TOP)
    },
    Directive {
        arguments: &[one("word", Kind::Choice(&["auto", "off"]))],
        default: Some("sandbox auto"),
        doc: "Confines the server processes by landlock, where the kernel has it: they may read the folders that \
              the roots lie in and a few files of the system, write nothing but content in the `spill` folder, run \
              nothing and open no port. What they need beyond that, the master opens for them. Where the server is not started as root, pools, \
              CGI scripts and hooks are confined as well: they reach neither its keys nor its control socket nor its ports. `off` leaves \
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
        arguments: &[one("size", Kind::Size { least: 4 << 10, most: 1 << 30 })],
        doc: "What the kernel may hold for each TCP connection of what was sent and not acknowledged (`SO_SNDBUF`; the kernel counts \
         twice as much, for what it keeps beside it, and no more than `net.core.wmem_max`). It does not grow by itself any \
         more. Without it the kernel chooses, which is right unless memory is scarce, or clients are far away and fast. In \
         a crowd `unsent-size` bounds it further. Connections that are open keep what they have.",
        example: "send-buffer \"1MiB\"",
        ..Directive::new("send-buffer", &[Context::Listen])
    },
    Directive {
        arguments: &[one("size", Kind::Size { least: 4 << 10, most: 1 << 30 })],
        doc: "What the kernel may hold for each TCP connection of what was received and not read (`SO_RCVBUF`; the kernel counts \
         twice as much, and no more than `net.core.rmem_max`). It does not grow by itself any more. Without it the kernel \
         chooses; a larger one is for uploads from far away. Connections that are open keep what they have.",
        example: "receive-buffer \"256KiB\"",
        ..Directive::new("receive-buffer", &[Context::Listen])
    },
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
    Directive {
        children: Children::Block(Context::Admin),
        doc: "The admin API: a process of its own through which settings are read, checked, changed and put back, and the server is \
              operated, over HTTP. Without it there is no such process. Who is let in is said in the block, and by each route with \
              `console { change }`.",
        example: "admin { socket \"admin.sock\" }",
        ..Directive::new("admin", TOP)
    },
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "A unix socket of the admin API, for the user that starts the server and for root alone (mode 0600).",
        example: "socket \"admin.sock\"",
        ..Directive::new("socket", ADMIN)
    },
    Directive {
        arguments: &[one("name", Kind::Text { most: 64 })],
        doc: "Whom the process of the admin API becomes where the server is started as root, by name or number. Without it, \
              `nobody`. Another than the user of the server processes keeps these apart.",
        example: "user \"tidegate-admin\"",
        ..Directive::new("user", ADMIN)
    },
    Directive {
        arguments: &[one("address", Kind::Address)],
        properties: &[Property {
            name: "token-file",
            kind: Kind::File,
            default: None,
            doc: "A file whose first line is the token that every request has to show (`Authorization: Bearer …`): 32 \
                  characters or more, nothing for others to read.",
        }],
        repeats: true,
        doc: "An address of the admin API, of this machine alone: it speaks no TLS. From elsewhere it is reached through a route \
              with `console { change }`, or a tunnel.",
        example: "listen \"127.0.0.1:9443\" token-file=\"admin.token\"",
        ..Directive::new("listen", ADMIN)
    },
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "A file in which `tidegate stop` leaves who is banned, and for how long, and from which the next start takes it; \
              it is gone while the server runs. Without it all are let in after a stop. A server that is killed leaves \
              nothing there. One that belongs neither to root nor to the user that starts the server, or that others may \
              write to, bans nobody.",
        example: "bans-file \"bans\"",
        ..Directive::new("bans-file", TOP)
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
            FACILITY,
            TAG,
            PROTOCOL,
        ],
        default: Some("access-log off"),
        doc: "Where a line for each request goes: a path, `stderr`, `stdout` or `off`. In a site it takes the \
              place of the server's. `\"journald\"` is the journal of systemd, which gets the figures of a request as fields \
              as well; `\"syslog\"` the daemon of this machine (`\"syslog:/dev/log\"`), `\"syslog:udp://192.0.2.1:514\"` and \
              `\"syslog:tcp://192.0.2.1:601\"` one elsewhere. A file of that name is `\"./syslog\"`.\n\n\
              The placeholders of a pattern; what is not there is `-`, and nothing of a client can break out of \
              its line:\n\n\
              | placeholder | is |\n| --- | --- |\n\
              | `{client}`, `{client-port}` | address and port of the client |\n\
              | `{scheme}`, `{host}` | what was asked, and of whom, as sent |\n\
              | `{tls-version}`, `{tls-cipher}` | of TLS, such as `TLSv1.3` |\n\
              | `{method}`, `{target}`, `{protocol}` | the request line, as sent |\n\
              | `{path}`, `{query}` | the target before and behind its `?` |\n\
              | `{status}` | of the response; 499 where the client left before it, or an operator has cancelled the request |\n\
              | `{bytes}` | of the content of the response: without its head, and without chunks and frames |\n\
              | `{bytes-in}`, `{bytes-out}` | of request and response, heads included |\n\
              | `{duration}`, `{duration-ms}`, `{duration-us}` | from the complete request head to the last byte \
              of the response handed to the kernel: seconds, milliseconds, microseconds |\n\
              | `{time}`, `{time-iso}`, `{time-unix}` | `10/Oct/2000:13:55:36 +0000`, `2000-10-10T13:55:36Z`, \
              `971186136` |\n\
              | `{request-id}` | the id of the request, see `request-id` |\n\
              | `{trace-id}` | the id of its trace, see `trace-context` |\n\
              | `{user}` | who has logged in |\n\
              | `{site}`, `{route}` | the first name of the site, and the pattern of the route that the request came to; `/*` is the site's own, where no other fits |\n\
              | `{upstream}`, `{upstream-status}` | the application that was asked, and the status of its answer; where \
              several were tried, all of them, with `, ` between |\n\
              | `{upstream-connect}`, `{upstream-first-byte}`, `{upstream-duration}` | from when it was chosen until there \
              was a connection, the head of the answer, all of it, in seconds; with `-ms` behind it in milliseconds |\n\
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
        }, FACILITY, TAG, PROTOCOL],
        default: Some("error-log \"stderr\""),
        doc: "Where the server's own messages go: a path, `stderr`, `stdout`, or a daemon that collects them, as for `access-log`. \
              Each has the priority of its level: `error` 3, `warn` 4, `info` 6, `debug` 7. There is no `off`: `\"/dev/null\"` \
              takes them and keeps none.",
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
        arguments: &[one("address", Kind::Text { most: 256 })],
        properties: &[
            Property {
                name: "user",
                kind: Kind::Text { most: 256 },
                default: None,
                doc: "As whom to log in there.",
            },
            Property {
                name: "password-file",
                kind: Kind::File,
                default: None,
                doc: "The file whose first line is the password. It is read by the master, at start and at a reload.",
            },
            Property {
                name: "prefix",
                kind: Kind::Text { most: 64 },
                default: Some("tidegate"),
                doc: "What all keys there begin with. Servers with the same prefix count together.",
            },
            Property {
                name: "nodes",
                kind: Kind::Number { least: 1, most: 10_000 },
                default: Some("1"),
                doc: "How many servers there are, as long as the store has not said.",
            },
        ],
        doc: "A Redis or Valkey, `redis://ADDRESS:PORT/DATABASE`, in which several servers tell each other what they have let \
              in by limits that are `shared`. No request waits for it: each server counts for itself and hears of the others \
              a moment later. While it is away each has an equal part of a limit, by how many servers there were last. Bans that are \
              `shared` go there, too, and are each server's own while it is away.",
        example: "limit-store \"redis://192.0.2.1:6379\" nodes=3",
        ..Directive::new("limit-store", TOP)
    },
    Directive {
        arguments: &[any("servers", Kind::Text { most: 64 })],
        properties: &[
            Property {
                name: "timeout",
                kind: Kind::Duration { least: 10, most: 30_000 },
                default: Some("2s"),
                doc: "How long the name of a client may take, with all that is asked for it; then it counts as not answered, and \
                      is not asked for again for ten seconds.",
            },
            Property {
                name: "lifetime",
                kind: Kind::Duration { least: SECOND, most: DAY },
                default: Some("10m"),
                doc: "How long what was answered about a client is remembered at most; shorter where the records say so, but \
                      ten seconds at least, unless this is less. That a client has no name is remembered for a minute at most.",
            },
            Property {
                name: "entries",
                kind: Kind::Number { least: 16, most: 10_000_000 },
                default: Some("10000"),
                doc: "How many clients are remembered (`cache-size`), in each server process, about 200 bytes each. Beyond it the \
                      oldest is forgotten.",
            },
            Property {
                name: "queries",
                kind: Kind::Number { least: 1, most: 4096 },
                default: Some("256"),
                doc: "How many clients are asked for at once, in each server process, of which those of one IPv6 network of 64 bits \
                      have a sixteenth at most, those of one of 48 bits a quarter. Beyond it a client counts as not answered.",
            },
        ],
        default: None,
        doc: "Who is asked for names: their addresses, with a port where it is not 53. Without any, those of `/etc/resolv.conf`. \
              They are asked for the addresses of `proxy \"http://name\"` and of members of an `upstream`, and for the names of \
              clients, where `allow name=`, `deny name=` or `{client.name}` wants one; else no client is ever looked up. A name \
              of a client counts only where the name has the client's address (forward-confirmed), and where it is one of \
              letters, digits, `-` and `_`. Name servers that are named here take the place of `/etc/hosts` as well.",
        example: "dns \"10.0.0.53\" timeout=\"1s\" lifetime=\"1h\" entries=50000",
        ..Directive::new("dns", TOP)
    },
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
    bound("memory-file-size", CACHE, &[one("size", Kind::Size { least: 0, most: GIB })], "memory-file-size \"32KiB\"",
        "Files up to this are held in memory whole and sent in one piece; larger ones are sent from the page cache \
         with `sendfile`, which was measured to cost less from 48 KiB on.",
        "memory-file-size \"8KiB\""),
    bound("descriptors", CACHE, &[one("count", Kind::Number { least: 0, most: 1_000_000 })], "descriptors 2048",
        "Most larger files held open, for each worker. Those that nobody is being sent are closed where the process \
         runs out of descriptors.",
        "descriptors 8192"),
    bound("max-age", CACHE, &[one("time", Kind::Duration { least: 0, most: 365 * DAY })], "max-age \"30s\"",
        "An entry older than this is compared with the file system before it is used; shorter matters only where \
         changes cannot be watched, such as network file systems.",
        "max-age \"2s\""),
    Directive {
        arguments: &[Argument { name: "off", kind: Kind::Choice(&["off"]), count: Count::Optional, words: &[] }],
        children: Children::Block(Context::Statistics),
        doc: "What is counted beside the figures of the whole server: each site and route, and what there was \
              ([watching](../watching.md)). `statistics off` counts neither: no sites, routes and buckets in reports, no slow \
              requests, no history. The whole server is always counted, since its limits go by that.",
        example: "statistics { history off }",
        ..Directive::new("statistics", TOP)
    },
    bound("history", STATISTICS, &[one("word", Kind::Choice(&["on", "off"]))], "history on",
        "Whether the master looks once a second, and remembers: ten minutes by seconds, six hours by ten seconds, fourteen \
         days by five minutes, and the totals of ten years of days. It takes some 700 KiB, whatever there is to remember.",
        "history off"),
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "A file that keeps the totals of days over a stop; it is written every five minutes, and at the end. It is this \
              server's own: two that name the same one overwrite each other's. Without it, \
              `totals.json` in the folder that the service manager has for such things (`STATE_DIRECTORY`); where there is \
              none, the totals begin anew with each start.",
        example: "totals \"totals.json\"",
        ..Directive::new("totals", STATISTICS)
    },
    Directive {
        arguments: &[one("collector", Kind::Text { most: 512 })],
        properties: &[
            Property {
                name: "interval",
                kind: Kind::Duration { least: SECOND, most: HOUR },
                default: Some("10s"),
                doc: "How often it is told.",
            },
            Property {
                name: "timeout",
                kind: Kind::Duration { least: 100, most: 60 * SECOND },
                default: Some("10s"),
                doc: "How long it may take to answer.",
            },
            Property {
                name: "service",
                kind: Kind::Text { most: 128 },
                default: Some("tidegate"),
                doc: "What the server is called there (`service.name`).",
            },
            Property {
                name: "headers",
                kind: Kind::File,
                default: None,
                doc: "A file of fields to send along, each on a line, such as `authorization: Bearer …`; at most 16. Lines that begin with \
                      `#` are comments. It is read with the settings.",
            },
        ],
        doc: "A collector of OpenTelemetry that is told all metrics, and of the requests that `trace-context` samples, by OTLP over HTTP \
              with protocol buffers: the address that `/v1/metrics` and `/v1/traces` are put behind \
              ([Prometheus and OpenTelemetry](../prometheus.md)). One that does not answer costs \
              nothing but that it is not told.",
        example: "otlp \"http://127.0.0.1:4318\" interval=\"15s\"",
        ..Directive::new("otlp", STATISTICS)
    },
];
