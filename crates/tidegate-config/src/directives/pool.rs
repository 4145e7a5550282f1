//! Applications behind the server: pools of processes, and what stands before them.

use super::server::{FACILITY, PROTOCOL, TAG};
use super::{DAY, HOUR, SECOND};
use crate::directive::{Argument, Children, Context, Count, Directive, Kind, Property, one, one_or, some};

const POOL: &[Context] = &[Context::Pool];

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("name", Kind::Token)],
        children: Children::Block(Context::Pool),
        repeats: true,
        doc: "An application behind the server, under a name that routes refer to. Its block says what it is, \
              by one of `command`, `php`, `cgi-stubs` and `address`, and how it is run. Its processes are started, \
              watched and replaced by the server; a reload leaves them alone as long as the block says the same.",
        example: "pool \"app\" { address \"unix:/run/php/php-fpm.sock\" }",
        ..Directive::new("pool", &[Context::Top])
    },
    Directive {
        arguments: &[some("program", Kind::Text { most: 4096 })],
        doc: "The program that the pool runs, and its arguments. A name without `/` is looked for in `PATH`. `{port}` \
              and `{socket}` in an argument stand for what `socket` gives the process.",
        example: "command \"php-cgi\" \"-d\" \"display_errors=0\"",
        ..Directive::new("command", POOL)
    },
    Directive {
        arguments: &[Argument {
            name: "kind",
            kind: Kind::Choice(&["fpm", "cgi"]),
            count: Count::Optional,
            words: &[],
        }],
        doc: "PHP: php-fpm where it is installed, else php-cgi, or the one that is named. Its processes have one \
              parent and share one cache of compiled scripts. `processes` are PHP's own: `max` of them at most.",
        example: "php",
        ..Directive::new("php", POOL)
    },
    Directive {
        properties: &[Property {
            name: "expiration",
            kind: Kind::Duration { least: SECOND, most: DAY },
            default: Some("5m"),
            doc: "How long a script may run, its output included (`CGIExpirationTimeout`).",
        }],
        doc: "Small processes that start CGI scripts, one script at a time each. `processes` bounds their number \
              (`MinCGIStubs`, `MaxCGIStubs`) and says when an idle one ends (`CGIStubIdleTimeout`). A pool named \
              `cgi` is there without being written, with 2 to 32 of them.",
        example: "cgi-stubs expiration=\"60s\"",
        ..Directive::new("cgi-stubs", POOL)
    },
    Directive {
        arguments: &[one("address", Kind::Address)],
        doc: "An application that runs already and is not ours to watch: `\"unix:/run/php/php-fpm.sock\"`, \
              `\"127.0.0.1:9000\"`. Say with `places` how many requests it takes at once.",
        example: "address \"unix:/run/php/php-fpm.sock\"",
        ..Directive::new("address", POOL)
    },
    Directive {
        arguments: &[one_or("requests", Kind::Number { least: 1, most: 1_000_000 }, &["auto"])],
        default: Some("places auto"),
        doc: "Requests that one process takes at once: more than one for an application with threads or an event \
              loop. `auto` is 1, and 16 for an `address`. For php-fpm behind an `address` it is `pm.max_children`.",
        example: "places 16",
        ..Directive::new("places", POOL)
    },
    Directive {
        properties: &[
            Property {
                name: "min",
                kind: Kind::Number { least: 0, most: 10_000 },
                default: None,
                doc: "How many there always are; 1 without it. With 0 the first is started when somebody asks.",
            },
            Property {
                name: "max",
                kind: Kind::Number { least: 1, most: 10_000 },
                default: None,
                doc: "How many there are at most; without it 8, or `min` where that is more.",
            },
            Property {
                name: "idle",
                kind: Kind::Duration { least: 100, most: DAY },
                default: Some("60s"),
                doc: "A process above `min` that was not needed for so long ends.",
            },
            Property {
                name: "grow-after",
                kind: Kind::Duration { least: 0, most: HOUR },
                default: Some("100ms"),
                doc: "Another process is started once a request has waited so long.",
            },
        ],
        doc: "How many processes there are. Between `min` and `max` their number follows what is asked of them.",
        example: "processes min=2 max=64 idle=\"60s\"",
        ..Directive::new("processes", POOL)
    },
    Directive {
        arguments: &[one_or("folder", Kind::File, &["auto", "memory", "off"])],
        properties: &[Property {
            name: "size",
            kind: Kind::Size { least: 1 << 20, most: 1 << 44 },
            default: Some("1GiB"),
            doc: "Bytes of all files together, looked at every ten seconds. The oldest sessions beyond it are removed, then \
                  the oldest uploads, and it is said.",
        }],
        default: Some("temporary auto size=\"1GiB\""),
        doc: "Where PHP puts uploads and sessions (`upload_tmp_dir`, `session.save_path`): a folder for the pool's user \
              alone. `auto` is one in the state folder of the service, or in that for temporary files; `memory` one in \
              `/dev/shm` or `/run`, which spares the disk and is empty after a restart of the machine; a path one in \
              that folder; `off` leaves it to PHP's settings. Uploads that were left behind are removed after an hour.",
        example: "temporary memory size=\"256MiB\"",
        ..Directive::new("temporary", POOL)
    },
    Directive {
        arguments: &[one_or("address", Kind::Address, &["auto"])],
        properties: &[Property {
            name: "pass",
            kind: Kind::Choice(&["stdin", "descriptor", "port", "path"]),
            default: Some("stdin"),
            doc: "How a process is told: the listening socket as standard input (FastCGI), as descriptor 3 in the \
                  manner of systemd (gunicorn, Puma, uvicorn with `--fd 3`), or a number in `PORT` or a path in \
                  `SOCKET` that it binds itself.",
        }],
        default: Some("socket auto pass=stdin"),
        doc: "What the processes listen on. `auto` gives each one a socket of its own, so that one can be replaced \
              without a request noticing; an address is one socket that they share.",
        example: "socket auto pass=port",
        ..Directive::new("socket", POOL)
    },
    Directive {
        properties: &[
            Property {
                name: "length",
                kind: Kind::Number { least: 0, most: 1_000_000 },
                default: Some("128"),
                doc: "Requests that may wait; one more is answered 503 with `Retry-After`.",
            },
            Property {
                name: "age",
                kind: Kind::Duration { least: 1, most: HOUR },
                default: Some("2s"),
                doc: "How long one may wait before it is answered so.",
            },
        ],
        default: Some("queue length=128 age=\"2s\""),
        doc: "The queue before the application: first come, first served. A client that goes away frees its place.",
        example: "queue length=1000 age=\"5s\"",
        ..Directive::new("queue", &[Context::Pool, Context::Upstream])
    },
    Directive {
        arguments: &[one_or("target", Kind::LogTarget, &["error-log"])],
        properties: &[
            Property {
                name: "limit",
                kind: Kind::Size { least: 1 << 10, most: 1 << 30 },
                default: Some("1MiB"),
                doc: "Bytes that are written in a second, for each process of the server. Lines beyond that are left out, and \
                  how many they were, and of how many bytes, is said in the same log.",
            },
            FACILITY,
            TAG,
            PROTOCOL,
        ],
        default: Some("output error-log limit=\"1MiB\""),
        doc: "Where each line goes that the application writes to its standard error, and a process to its standard \
              output: a path, `stderr`, `stdout`, `\"journald\"`, `\"syslog\"` (see `access-log`), or the `error-log`, which leaves out what is below its level. A line \
              keeps the level that it begins with (`PHP Warning:`, `[error]`, `INFO`), those of a trace that of its \
              first line; others are `warn`.",
        example: "output \"php.log\"",
        ..Directive::new("output", POOL)
    },
    Directive {
        arguments: &[one_or("requests", Kind::Number { least: 1, most: 1_000_000_000 }, &["unlimited"])],
        default: Some("requests unlimited"),
        doc: "Requests after which a process is replaced, against memory that it loses. Set it below the \
              application's own limit, so that it never ends in the middle of things.",
        example: "requests 10000",
        ..Directive::new("requests", POOL)
    },
    Directive {
        arguments: &[some("path", Kind::Text { most: 4096 })],
        properties: &[
            Property {
                name: "root",
                kind: Kind::File,
                default: None,
                doc: "The folder that the scripts lie in; `php` needs it.",
            },
            Property {
                name: "host",
                kind: Kind::Host,
                default: Some("localhost"),
                doc: "The host that is asked for.",
            },
            Property {
                name: "protocol",
                kind: Kind::Choice(&["fastcgi", "scgi", "http"]),
                default: None,
                doc: "What the processes speak. Without it FastCGI, and HTTP where `socket` says `pass=descriptor`, \
                      `port` or `path`.",
            },
            Property {
                name: "timeout",
                kind: Kind::Duration { least: 100, most: 55 * SECOND },
                default: Some("30s"),
                doc: "How long all of them may take together; then the process takes work all the same.",
            },
        ],
        doc: "Requests, one after the other, that each process gets after its start and before it takes work: what \
              is slow the first time is done by then. A path from its `/`, with a query perhaps; sent as `GET`. PHP's \
              processes share what they have compiled, so that their parent gets them once. What fails is said in the \
              log, and holds up nothing.",
        example: "warm-up \"/index.php\" \"/shop.php?page=1\" root=\"/srv/www\" host=\"example.com\"",
        ..Directive::new("warm-up", POOL)
    },
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "The folder that a process starts in; `/` without it.",
        example: "folder \".\"",
        ..Directive::new("folder", POOL)
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        doc: "The user that processes run as, where the server is started as root; without it the server's `user`, and \
              without that www-data or what the system has in its place. Processes are root only where `user \"root\"` \
              stands here. A server that is not started as root runs them as itself, and a warning says so. `tidegate \
              check` and the error log say which user each pool has.",
        example: "user \"www-data\"",
        ..Directive::new("user", POOL)
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        doc: "The group that processes run as, where the server is started as root; without it that of `user`.",
        example: "group \"www-data\"",
        ..Directive::new("group", POOL)
    },
    Directive {
        arguments: &[one("mask", Kind::Text { most: 4 })],
        doc: "The file mode mask of processes, in octal digits.",
        example: "umask \"027\"",
        ..Directive::new("umask", POOL)
    },
    Directive {
        children: Children::Pairs { name: Kind::Text { most: 255 }, value: Kind::Text { most: 65536 } },
        doc: "Variables of the environment, a name and a value in each line. Processes get these and `PATH`, and \
              nothing else of the server's own; `\"${NAME}\"` hands one on.",
        example: "environment { APP_ENV \"production\" }",
        ..Directive::new("environment", POOL)
    },
    Directive {
        properties: &[
            Property {
                name: "descriptors",
                kind: Kind::Number { least: 16, most: 10_000_000 },
                default: None,
                doc: "Open descriptors of a process.",
            },
            Property {
                name: "memory",
                kind: Kind::Size { least: 1 << 20, most: 1 << 44 },
                default: None,
                doc: "Address space of a process.",
            },
            Property {
                name: "core",
                kind: Kind::Size { least: 0, most: 1 << 44 },
                default: None,
                doc: "The largest core dump; `\"0B\"` writes none.",
            },
            Property {
                name: "nice",
                kind: Kind::Number { least: 1, most: 19 },
                default: None,
                doc: "Priority for the processor; a larger number gives way to others.",
            },
            Property {
                name: "io",
                kind: Kind::Choice(&["low", "idle"]),
                default: None,
                doc: "Priority for disks: behind all others, or only when nobody else wants them.",
            },
        ],
        doc: "What a process may use. What is not named is as it is for the server.",
        example: "resources descriptors=1024 memory=\"512MiB\" nice=5",
        ..Directive::new("resources", POOL)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: SECOND, most: DAY })],
        default: Some("start-timeout \"1m\""),
        doc: "How long a process may take after its start until it accepts connections; then it is ended, and another is \
              started. One that is passed its socket is held to this only where it takes the place of another.",
        example: "start-timeout \"5m\"",
        ..Directive::new("start-timeout", POOL)
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 0, most: HOUR })],
        default: Some("stop-timeout \"10s\""),
        doc: "How long a process may take to end when told to (`SIGTERM`); then it and all that it has started are \
              killed.",
        example: "stop-timeout \"30s\"",
        ..Directive::new("stop-timeout", POOL)
    },
    Directive {
        arguments: &[
            one("measure", Kind::Choice(&["queue", "concurrency", "rate", "cpu"])),
            one("do", Kind::Choice(&["run", "call"])),
            some("what", Kind::Text { most: 4096 }),
        ],
        properties: &[
            Property {
                name: "above",
                kind: Kind::Number { least: 0, most: 1_000_000 },
                default: None,
                doc: "Does it when the number rises above this.",
            },
            Property {
                name: "below",
                kind: Kind::Number { least: 1, most: 1_000_000 },
                default: None,
                doc: "Does it when the number falls below this.",
            },
            Property {
                name: "rearm",
                kind: Kind::Number { least: 0, most: 1_000_000 },
                default: None,
                doc: "Having done it, waits until the number has come back to this: without it four fifths of \
                      `above`, or five quarters of `below`.",
            },
            Property {
                name: "every",
                kind: Kind::Duration { least: 0, most: DAY },
                default: Some("10s"),
                doc: "Does it at most once in so long.",
            },
            Property {
                name: "timeout",
                kind: Kind::Duration { least: 100, most: DAY },
                default: Some("1m"),
                doc: "How long a program may take: then it is killed with its process group. An address has five seconds for each step.",
            },
            Property {
                name: "user",
                kind: Kind::Text { most: 64 },
                default: None,
                doc: "The user that the program of `run` is run as, where the server is started as root; without it \
                      that of the pool's processes, or the server's for an `address`.",
            },
        ],
        repeats: true,
        doc: "Runs a program, or sends a `POST` to an `http:` address, when a load crosses a threshold (`HighThreshold`, \
              `LowThreshold`): the number of requests that wait (`queue`) or are under way (`concurrency`), the requests of a \
              second (`rate`), or how much of the processors the workers use, of 100 (`cpu`). At the top level it is the load of \
              the whole server, in a `site` that of the site (`concurrency` and `rate`), in an `upstream` that of all its \
              members (not `cpu`), in a `pool` that of the pool (`queue` and `concurrency`). Pools look when something \
              changes, all others once a second. The program finds `TIDEGATE_OF` (`server`, `site`, `upstream` or `pool`), \
              `TIDEGATE_NAME` (which; of a pool also `TIDEGATE_POOL`), `TIDEGATE_MEASURE`, `TIDEGATE_EVENT` (`above` or `below`), \
              `TIDEGATE_THRESHOLD` and `TIDEGATE_VALUE` in its environment, and beside them only `PATH`, `HOME`, `USER` and `LOGNAME`; the address gets them as JSON. It runs as `user`. A line of the error log says \
              when it begins and when it fails. One hook runs once at a time, eight of them at once. What a program writes \
              goes to the log of the pool (`output`), else to the error log.",
        example: "on concurrency above=100 run \"/usr/local/bin/more-servers\"",
        ..Directive::new("on", &[Context::Top, Context::Site, Context::Upstream, Context::Pool])
    },
];
