//! The directives of scenario files: the one place that says their names, values, bounds, meaning and examples. Checking, the
//! reference page and the words of mistakes derive from it.

use tidegate_config::directive::{
    Argument, Children, Context, Count, Directive, Kind, Place, Property, any, one, optional, some,
};
use tidegate_config::language::Language;

const TOP: Context = Context::Of(&Place { place: "at the top level", key: "scenario" });
const USERS: Context = Context::Of(&Place { place: "in `users`", key: "users" });
const RATE: Context = Context::Of(&Place { place: "in `rate`", key: "rate" });
const OPERATION: Context = Context::Of(&Place { place: "in `op`", key: "op" });
const FLOW: Context = Context::Of(&Place { place: "in `flow`", key: "flow" });
const SYSTEM: Context = Context::Of(&Place { place: "in `system`", key: "system" });
const STEP: Context = Context::Of(&Place { place: "in a step", key: "step" });

/// The place of the outermost directives.
pub(super) const OUTERMOST: Context = TOP;

const SECOND: u64 = 1_000;
const DAY: u64 = 86_400 * SECOND;
const TIME: Kind = Kind::Duration { least: 0, most: DAY };
const SOME_TIME: Kind = Kind::Duration { least: 1, most: DAY };
const TEXT: Kind = Kind::Text { most: 65_536 };
const MANY: Kind = Kind::Decimal { most: 1_000_000 };

/// The language of scenarios.
pub static LANGUAGE: Language =
    Language::new(&[SCENARIO, PHASES, STEPS, STEPS_OF_FLOWS, CALLS, PARTS, SYSTEMS]);

const fn property(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    doc: &'static str,
) -> Property {
    Property { name, kind, default, doc }
}

const CLOCK: &[Argument] =
    &[one("kind", Kind::Choice(&["fixed", "uniform", "exponential"])), optional("time", SOME_TIME)];
const CLOCK_PROPERTIES: &[Property] = &[
    property("min", TIME, None, "Of `uniform`: the shortest."),
    property(
        "max",
        SOME_TIME,
        None,
        "Of `uniform`: the longest. Of `exponential`: what is longer is this long.",
    ),
    property("mean", SOME_TIME, None, "Of `exponential`: the mean before it is clipped."),
];

const TARGETS: &[Property] = &[
    property(
        "p90",
        SOME_TIME,
        None,
        "90 % of the operations, and of those that ended well, take at most this; missed is FAIL.",
    ),
    property("p95", SOME_TIME, None, "The same for 95 %."),
    property("p99", SOME_TIME, None, "The same for 99 %."),
    property("min-cycle", TIME, Some("0s"), "The least time from its start to the next operation's."),
    property(
        "conforming",
        Kind::Share,
        None,
        "The share of the answers of its steps with `min-bitrate` that keep it, at least; missed is FAIL. With it an answer \
         that is too slow does not fail the operation. One that is not right does not conform either; one that has not \
         changed (304) counts for nothing.",
    ),
];

#[rustfmt::skip]
const SCENARIO: &[Directive] = &[
    Directive {
        arguments: &[one("name", Kind::Text { most: 100 })],
        doc: "What reports call it. Without it that is the name of the file.",
        example: "scenario \"events\"",
        ..Directive::new("scenario", &[TOP])
    },
    Directive {
        arguments: &[one("url", Kind::Text { most: 2_000 })],
        doc: "The server under test: scheme (`http` unless said), host and port. All requests go there; `--target` puts another in its place.",
        example: "target \"http://127.0.0.1:8080\"",
        ..Directive::new("target", &[TOP])
    },
    Directive {
        arguments: &[one("count", Kind::Number { least: 1, most: 1_000_000 })],
        children: Children::Block(USERS),
        doc: "How many users there are, and the phases of a run: they come in the ramp-up, what starts in the steady \
              time is measured, they go in the ramp-down.",
        example: "users 2250 { ramp-up \"60s\"; steady \"180s\"; ramp-down \"30s\" }",
        ..Directive::new("users", &[TOP])
    },
    Directive {
        arguments: &[one("visits", Kind::Rate)],
        properties: &[
            property("operations", Kind::Number { least: 1, most: 1_000 }, None,
                "Operations of a visit, after which its user goes: one, of `sequence` and `flow` all of them once, unless said."),
            property("arrivals", Kind::Choice(&["poisson", "constant"]), Some("poisson"),
                "`poisson`: at random, as independent people come (exponential gaps); `constant`: at equal distances."),
            property("most-users", Kind::Number { least: 1, most: 1_000_000 }, Some("1000"),
                "Visits at once at most. One that comes when so many are there waits for one of them to end; the wait counts as \
                response time, and how many had to is said."),
        ],
        children: Children::Block(RATE),
        doc: "How many visits begin in a time, in place of `users`: an open load. Each is a new user, with a number, cookies, \
              a cache and connections of its own, who walks through the mix by the clock of the scenario (without `cycle` and \
              `think` without a pause) and goes. They come on a schedule that the server cannot slow down, and response times \
              count from that schedule. The rate rises in the ramp-up from nothing and falls in the ramp-down to nothing.",
        example: "rate \"50/s\" operations=5 { ramp-up \"60s\"; steady \"180s\"; ramp-down \"30s\" }",
        ..Directive::new("rate", &[TOP])
    },
    Directive {
        arguments: CLOCK,
        properties: CLOCK_PROPERTIES,
        doc: "When operations start, counted from the intended start of the one before, as Faban has it. The server \
              cannot slow a user down: an operation that overruns its cycle makes the next one late, which counts as \
              response time. In `op` it holds for what follows that operation.",
        example: "cycle exponential mean=\"5s\" max=\"25s\"",
        ..Directive::new("cycle", &[TOP, OPERATION])
    },
    Directive {
        arguments: CLOCK,
        properties: CLOCK_PROPERTIES,
        doc: "When operations start, counted from the end of the one before: a user that reads, and then goes on.",
        example: "think uniform min=\"2s\" max=\"8s\"",
        ..Directive::new("think", &[TOP, OPERATION])
    },
    Directive {
        arguments: &[Argument { name: "h2", kind: Kind::Choice(&["h2"]), count: Count::Optional, words: &[] }],
        properties: &[
            property("connections", Kind::Number { least: 1, most: 32 }, None,
                "Connections of one user at most, 6 unless said; assets of a page are loaded over all of them. With `h2` there is one."),
            property("streams", Kind::Number { least: 1, most: 1_000 }, None,
                "With `h2`: requests at once on the connection, 100 unless said, and no more than the server takes."),
            property("cold", Kind::Share, Some("0%"), "Users that remember nothing and load every page in full."),
            property("timeout", SOME_TIME, Some("30s"),
                "The longest silence of a request: it fails when for so long no byte of its answer has come and none of its content has gone. \
                Each byte begins it anew, so an answer that drips is ended by `answer-timeout=` alone. A connect may take as long."),
            property("answer-timeout", SOME_TIME, Some("5m"),
                "The longest time of a request as a whole, from its start to the last byte of its answer, however well that comes: whichever of \
                the two is over first fails it. Longer downloads want more."),
        ],
        doc: "The browser of each user. With `h2` it speaks HTTP/2 over one connection: with an `https` target by ALPN, with an \
              `http` target from the first byte on (h2c).",
        example: "client cold=\"40%\" connections=6",
        ..Directive::new("client", &[TOP])
    },
    Directive {
        arguments: &[one("name", Kind::Token), any("values", TEXT)],
        properties: &[
            property("file", Kind::File, None,
                "Comma-separated values, the first line names the columns: `{name.column}` in place of `{name}`."),
            property("pick", Kind::Choice(&["random", "sequence", "user"]), Some("random"),
                "`random`: any row for each operation; `sequence`: the next one, each user from a place of its own; `user`: one for \
                each user, for ever."),
        ],
        repeats: true,
        doc: "Values that operations draw from: `{name}` in a path, a form, a body or a field.",
        example: "data tag \"music\" \"art\" \"sport\"",
        ..Directive::new("data", &[TOP])
    },
    Directive {
        arguments: &[one("file", Kind::File)],
        properties: &[
            property("within", SOME_TIME, Some("100ms"), "Processor time that one call may take. A call that takes more is ended, and fails its operation; a single function of the language, such as `reverse` of a list of billions, cannot be ended, and makes the run INVALID where it goes on beyond its end."),
        ],
        doc: "A module of JavaScript for what is not declarative. `call`, `check` and `next` name functions that it exports; each gets an \
              object with `vars`, `user`, `operation` and, with an answer, `response`. There is nothing to import, and no file or \
              network; each thread of the generator has an engine of its own.",
        example: "script \"shop.js\"",
        ..Directive::new("script", &[TOP])
    },
    Directive {
        properties: &[property("start", Kind::Token, None, "What a user begins with; else the first row.")],
        children: Children::Rows { name: Kind::Token, value: Kind::Number { least: 0, most: 1_000_000 } },
        doc: "Which operation follows. With names behind an operation it is a matrix: from `home` a user goes to \
              `tags` in 52 of 100 cases, and each row adds up to 100. With one number behind each it is a flat mix, \
              drawn anew each time.",
        example: "mix start=home { home tags=60 event=40; tags home=100; event home=100 }",
        ..Directive::new("mix", &[TOP])
    },
    Directive {
        arguments: &[some("operations", Kind::Token)],
        doc: "Operations in a fixed order that repeats, in place of `mix`.",
        example: "sequence home tags home event",
        ..Directive::new("sequence", &[TOP])
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        properties: TARGETS,
        children: Children::Block(OPERATION),
        repeats: true,
        doc: "An operation: steps in order. Its response time counts from its intended start to the last byte of its \
              last step, assets included.",
        example: "op home p90=\"1s\" { get \"/\" { assets } }",
        ..Directive::new("op", &[TOP])
    },
    Directive {
        children: Children::Block(FLOW),
        doc: "A fixed sequence of which each step is an operation of its own, in place of `mix` and `op`.",
        example: "flow { get \"/\"; get \"/about\" p95=\"300ms\" }",
        ..Directive::new("flow", &[TOP])
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        children: Children::Block(SYSTEM),
        repeats: true,
        doc: "A machine beside the load: without `ssh` it is this one. What `monitor` sees of it is in the pages of the run, on the \
              same axis of time.",
        example: "system web { ssh \"bench@web.test\"; monitor process=\"tidegate\" }",
        ..Directive::new("system", &[TOP])
    },
];

const CALLED: &[Argument] = &[one("function", Kind::Token), any("variables", Kind::Token)];

#[rustfmt::skip]
const CALLS: &[Directive] = &[
    Directive {
        arguments: CALLED,
        repeats: true,
        doc: "Calls a function of the script before the step that follows. What it returns fills the variables that are named here: an object \
              all of them by their names, a text or a number the only one. An exception, or a variable without a value, fails the operation.",
        example: "call sign signature stamp",
        ..Directive::new("call", &[OPERATION, FLOW])
    },
    Directive {
        arguments: CALLED,
        repeats: true,
        doc: "The same with the answer of the step, as `response`: `status`, `headers` with names in small letters, and `body`, the first \
              4 MiB as text. It comes behind all `take`.",
        example: "call pick item",
        ..Directive::new("call", &[STEP])
    },
    Directive {
        arguments: &[one("function", Kind::Token)],
        repeats: true,
        doc: "A function that gets the answer as with `call` and returns true, false, or a text that says what is wrong; then the operation has \
              failed.",
        example: "check isRight",
        ..Directive::new("check", &[STEP])
    },
    Directive {
        arguments: &[one("function", Kind::Token)],
        doc: "A function that chooses what its user does next, when the operation has ended well: it returns the name of an operation, or \
              nothing, and then the mix decides. The shares of the mix are not judged where there is one.",
        example: "next choose",
        ..Directive::new("next", &[OPERATION])
    },
];

#[rustfmt::skip]
const SYSTEMS: &[Directive] = &[
    Directive {
        arguments: &[one("host", Kind::Text { most: 300 })],
        properties: &[
            property("program", Kind::Text { most: 1_000 }, Some("tidegate"), "Tidegate on that machine; only monitors need it."),
        ],
        doc: "How the machine is reached: as `ssh` takes it, `user@host` or a name of its configuration. It must let this user in \
              without a question (`BatchMode`).",
        example: "ssh \"bench@web.test\" program=\"/opt/tidegate/bin/tidegate\"",
        ..Directive::new("ssh", &[SYSTEM])
    },
    Directive {
        properties: &[
            property("interval", Kind::Duration { least: 100, most: 60 * SECOND }, None,
                "From one line to the next; 1s unless one `monitor` of the system says otherwise."),
            property("process", Kind::Text { most: 60 }, None,
                "Processes whose figures are told as well: all of a name, or a process id with all that it has started."),
            property("url", Kind::Text { most: 2_000 }, None,
                "The status page of Tidegate (`?format=json`) or of php-fpm (`?json`), asked for on that machine; of `https` with any certificate."),
            property("memcached", Kind::Text { most: 300 }, None, "Host and port of memcached, asked for `stats`."),
            property("mariadb", Kind::Text { most: 1_000 }, None,
                "MariaDB or MySQL, asked by the client `mariadb` with these options: `\"--defaults-file=/etc/bench.cnf\"`."),
        ],
        repeats: true,
        doc: "Watches the machine during the run by `/proc`, without privileges: processors, run queue, pressure, memory, network, TCP, \
              disks, interrupts; and what its properties name. One that ends or hangs is a note of the report, and no more.",
        example: "monitor process=\"php-fpm\" url=\"http://127.0.0.1:9001/status?json\"",
        ..Directive::new("monitor", &[SYSTEM])
    },
    Directive {
        arguments: &[one("path", Kind::Text { most: 1_000 })],
        properties: &[
            property("from", Kind::File, None, "A file beside the scenario: what is written, with `${NAME}` filled in where the name is of capital letters, digits and `_`."),
            property("within", SOME_TIME, Some("30s"), "How long it may take."),
        ],
        repeats: true,
        doc: "Writes a file of that machine for the time of the run: settings of what is measured. Its old content is kept beside it, as \
              `PATH.tidegate-before`, and put back after `stop`, whatever became of the run; what could not be put back, as a link that leads \
              to no file, is not written. What was written is in `settings/<system>/` of the run.",
        example: "configure \"/etc/nginx/nginx.conf\" from=\"nginx.conf.template\"",
        ..Directive::new("configure", &[SYSTEM])
    },
    Directive {
        arguments: &[one("command", TEXT)],
        properties: &[property("within", SOME_TIME, Some("10m"), "How long it may take.")],
        repeats: true,
        doc: "A command for `sh` on that machine before the run, to put data back as they were. `configure`, `reset` and `start` of a scenario are done \
              in the order in which they stand. One that fails or takes too long is said in a sentence, and no load is put on.",
        example: "reset \"mariadb events < /srv/events.sql\"",
        ..Directive::new("reset", &[SYSTEM])
    },
    Directive {
        arguments: &[one("command", TEXT)],
        doc: "A command for `sh` on that machine before the run, to start what is measured. With `ready` it may stay in the foreground: \
              then it is ended after the run, with all that it has started; by ssh with its process group. Without, it has to end within a minute.",
        example: "start \"tidegate serve /srv/site\"",
        ..Directive::new("start", &[SYSTEM])
    },
    Directive {
        properties: &[
            property("url", Kind::Text { most: 2_000 }, None, "A page that answers with a status below 400; of `https` with any certificate."),
            property("tcp", Kind::Text { most: 300 }, None, "Host and port that take a connection."),
            property("within", SOME_TIME, Some("30s"), "How long that may take."),
        ],
        doc: "What answers, asked from this machine, when what `start` has started can be used.",
        example: "ready url=\"http://web.test/\" within=\"1m\"",
        ..Directive::new("ready", &[SYSTEM])
    },
    Directive {
        arguments: &[one("command", TEXT)],
        properties: &[property("within", SOME_TIME, Some("30s"), "How long it may take.")],
        doc: "A command for `sh` on that machine after the run, whatever became of it, an interrupt included. The last system is stopped \
              first.",
        example: "stop \"systemctl stop php-fpm\"",
        ..Directive::new("stop", &[SYSTEM])
    },
    Directive {
        arguments: &[some("files", Kind::Text { most: 1_000 })],
        doc: "Files of that machine whose last 16 MiB are copied into `logs/<system>/` of the run, after `stop`.",
        example: "collect \"/var/log/php-fpm/slow.log\" \"/var/log/tidegate/error.log\"",
        ..Directive::new("collect", &[SYSTEM])
    },
];

#[rustfmt::skip]
const PHASES: &[Directive] = &[
    Directive {
        arguments: &[one("time", TIME)],
        default: Some("ramp-up \"0s\""),
        doc: "The first operations of the users are spread over this time; a rate rises over it from nothing.",
        example: "ramp-up \"60s\"",
        ..Directive::new("ramp-up", &[USERS, RATE])
    },
    Directive {
        arguments: &[one("time", Kind::Duration { least: 100, most: 7 * DAY })],
        doc: "What is due in this time is measured; all else is not.",
        example: "steady \"180s\"",
        ..Directive::new("steady", &[USERS, RATE])
    },
    Directive {
        arguments: &[one("time", TIME)],
        default: Some("ramp-down \"0s\""),
        doc: "Users go, spread over this time; a rate falls over it to nothing.",
        example: "ramp-down \"30s\"",
        ..Directive::new("ramp-down", &[USERS, RATE])
    },
    Directive {
        arguments: &[one("time", TIME)],
        doc: "Time between the first operations of two users, in place of the even spread over the ramp-up.",
        example: "stagger \"20ms\"",
        ..Directive::new("stagger", &[USERS])
    },
];

const PATH: &[Argument] = &[one("path", Kind::Text { most: 8_000 })];
const CONTENT: [Property; 3] = [
    property(
        "form",
        TEXT,
        None,
        "The content as a form: `id={item}&count=1`; what variables hold is encoded.",
    ),
    property(
        "body",
        TEXT,
        None,
        "The content as it is; with a `type` of JSON what variables hold is escaped between quotation marks.",
    ),
    property("type", Kind::MediaType, None, "The media type of `body`; `text/plain` unless said."),
];

const CONTENT_AND_TARGETS: &[Property] =
    &[CONTENT[0], CONTENT[1], CONTENT[2], TARGETS[0], TARGETS[1], TARGETS[2], TARGETS[3], TARGETS[4]];

const fn step(
    name: &'static str,
    contexts: &'static [Context],
    properties: &'static [Property],
    doc: &'static str,
    example: &'static str,
) -> Directive {
    let mut directive = Directive::new(name, contexts);
    directive.arguments = PATH;
    directive.properties = properties;
    directive.children = Children::Block(STEP);
    directive.repeats = true;
    directive.doc = doc;
    directive.example = example;
    directive
}

const GET: &str =
    "Asks for a path, with its query. Redirects are followed, up to five, unless one is what `expect` names.";
const HEAD: &str = "The same with HEAD.";
const POST: &str = "Sends content: of `form=`, `body=`, or of `part` and `upload` in its block.";
const OTHER: &str = "The same with this method.";

#[rustfmt::skip]
const STEPS: &[Directive] = &[
    step("get", &[OPERATION], &[], GET, "get \"/events/{event}\""),
    step("head", &[OPERATION], &[], HEAD, "head \"/\""),
    step("post", &[OPERATION], &CONTENT, POST, "post \"/login\" form=\"user={user}&password=secret\""),
    step("put", &[OPERATION], &CONTENT, OTHER, "put \"/items/1\" body=\"{{}\" type=\"application/json\""),
    step("patch", &[OPERATION], &CONTENT, OTHER, "patch \"/items/1\" body=\"{{}\" type=\"application/json\""),
    step("delete", &[OPERATION], &CONTENT, OTHER, "delete \"/items/1\""),
];

#[rustfmt::skip]
const STEPS_OF_FLOWS: &[Directive] = &[
    step("get", &[FLOW], TARGETS, GET, "get \"/about\" p95=\"300ms\""),
    step("head", &[FLOW], TARGETS, HEAD, "head \"/\""),
    step("post", &[FLOW], CONTENT_AND_TARGETS, POST, "post \"/cart\" form=\"id={item}\""),
    step("put", &[FLOW], CONTENT_AND_TARGETS, OTHER, "put \"/items/1\" body=\"{{}\" type=\"application/json\""),
    step("patch", &[FLOW], CONTENT_AND_TARGETS, OTHER, "patch \"/items/1\" body=\"{{}\" type=\"application/json\""),
    step("delete", &[FLOW], CONTENT_AND_TARGETS, OTHER, "delete \"/items/1\""),
];

const OPTIONAL: Argument =
    Argument { name: "optional", kind: Kind::Choice(&["optional"]), count: Count::Optional, words: &[] };

#[rustfmt::skip]
const PARTS: &[Directive] = &[
    Directive {
        doc: "Loads what a browser loads with the page: images, scripts, style sheets and icons of the same server, \
              each once, over all connections of the user. One that fails fails the operation; the others are loaded all the same.",
        example: "assets",
        ..Directive::new("assets", &[STEP])
    },
    Directive {
        doc: "The answer is kept in the cache of the user, who asks next time whether it has changed (RFC 9110 section \
              13.1). Assets always are. What a page loads is asked for where it has not changed, too.",
        example: "cached",
        ..Directive::new("cached", &[STEP])
    },
    Directive {
        arguments: &[one("name", Kind::Token), OPTIONAL],
        properties: &[
            property("css", Kind::Text { most: 1_000 }, None,
                "A selector: `a.event`, `.list a`, `[href^=\"/e\"]`. Without `attribute=` it is the text behind the start tag."),
            property("attribute", Kind::Token, None, "Of what `css=` finds; links are made paths of the server, to be asked for with `get \"{name}\"`."),
            property("regex", Kind::Text { most: 4_000 }, None, "An expression; the first group, else all of it."),
            property("json", Kind::Text { most: 1_000 }, None, "A place in JSON: `/items/0/id` (RFC 6901)."),
            property("header", Kind::Token, None, "A field of the head."),
            property("pick", Kind::Choice(&["random", "first", "last"]), Some("random"), "Which of several."),
        ],
        repeats: true,
        doc: "Takes a value out of the answer; `{name}` stands for it in later steps and operations of the same user. \
              Without one the operation fails, unless it is `optional`.",
        example: "take event css=\".event a\" attribute=href",
        ..Directive::new("take", &[STEP])
    },
    Directive {
        properties: &[
            property("status", Kind::Statuses, None, "`200`, `\"2xx\"`, `\"200-299|404\"`. Below 400 unless said."),
            property("contains", Kind::Text { most: 4_000 }, None, "A text that stands in the body."),
            property("header", Kind::Text { most: 4_000 }, None, "`\"Name: part of its value\"`."),
        ],
        repeats: true,
        doc: "What a right answer is. An answer that is not fails the operation; the first ones are in the report.",
        example: "expect status=200 contains=\"Welcome\"",
        ..Directive::new("expect", &[STEP])
    },
    Directive {
        arguments: &[one("css", Kind::Text { most: 1_000 })],
        properties: &[
            property("mean", MANY, None, "How many elements there should be in a page."),
            property("within", MANY, Some("0"), "By how much the mean may be off, either way."),
        ],
        repeats: true,
        doc: "How many elements that a selector finds a page holds, in the mean of all right answers of the step in the steady \
              time. Another mean is FAIL: the pages were not those that were to be measured. An answer that has not changed \
              (304) counts for nothing.",
        example: "count \"img.thumb\" mean=10 within=0.5",
        ..Directive::new("count", &[STEP])
    },
    Directive {
        arguments: &[one("speed", Kind::Speed { least: 1, most: 1 << 40 })],
        doc: "The least bytes of the body a second, from the start of the request to its last byte. A slower answer fails the \
              operation, or counts as one that does not conform where the operation says `conforming=`. `hit --min-bitrate` counts bits, of which eight \
              are a byte: 320 kbit/s, as SPECweb99 has it, are \"40000B/s\".",
        example: "min-bitrate \"40000B/s\"",
        ..Directive::new("min-bitrate", &[STEP])
    },
    Directive {
        arguments: &[one("name", Kind::Token), one("value", TEXT)],
        repeats: true,
        doc: "A field of the request.",
        example: "header \"Accept-Language\" \"de\"",
        ..Directive::new("header", &[STEP])
    },
    Directive {
        arguments: &[one("name", Kind::Token), one("value", TEXT)],
        repeats: true,
        doc: "A field of a form with files (`multipart/form-data`).",
        example: "part title \"Concert of {user}\"",
        ..Directive::new("part", &[STEP])
    },
    Directive {
        arguments: &[one("name", Kind::Token)],
        properties: &[
            property("file", Kind::FileName, Some("upload.bin"), "What the file is called."),
            property("size", Kind::Size { least: 0, most: 64 << 20 }, Some("32KiB"), "Its bytes, made up before the run."),
            property("type", Kind::MediaType, Some("application/octet-stream"), "Its media type."),
        ],
        repeats: true,
        doc: "A file in such a form. Its content is made up and shared by all users.",
        example: "upload image file=\"event.jpg\" size=\"48KiB\" type=\"image/jpeg\"",
        ..Directive::new("upload", &[STEP])
    },
];

/// `docs/reference/scenarios.schema.json`, written from the table.
pub fn json_schema() -> String {
    let description = "The JSON form of a scenario of `tidegate bench run`: its directives, in order.";
    LANGUAGE.json_schema(
        "Tidegate scenarios",
        description,
        &[TOP, USERS, RATE, OPERATION, FLOW, STEP, SYSTEM],
    )
}

/// `docs/reference/scenarios.md`, written from the tables of scenarios and of queues.
pub fn reference() -> String {
    let scenarios = LANGUAGE.reference(
        INTRODUCTION,
        &[
            ("Top level", TOP, "What stands outside every block."),
            ("In `users`", USERS, "The phases of a run."),
            ("In `rate`", RATE, "The phases of a run."),
            ("In `op`", OPERATION, "Steps in order, and where it is not that of the scenario a clock."),
            ("In `flow`", FLOW, "Steps in order, each with targets of its own."),
            ("In `system`", SYSTEM, "A machine beside the load."),
            ("In a step", STEP, "`get \"/\" { assets; take event css=\"a.event\" attribute=href }`"),
        ],
    );
    scenarios + &crate::queue::reference()
}

const INTRODUCTION: &str = "\
<!-- Written from crates/tidegate-bench/src/scenario/language.rs; `UPDATE=1 cargo test -p tidegate-bench` writes it anew. -->
# Scenarios

What `tidegate bench run` reads: [KDL 2](https://kdl.dev), written as the [settings](settings.md) are, with the same types,
units and `${NAME}` of the environment. `tidegate bench run --check` says all that is wrong with a file, `tidegate bench fmt`
writes it the one way, and [bench.md](../bench.md#scenarios) says what the figures mean. The JSON form that programs write is
described by [scenarios.schema.json](scenarios.schema.json).

**Variables.** `{name}` stands for what `take` has taken from an answer, what a function of the script has returned to `call`, what
`data` has drawn for the operation, and `{user}` for the number of the user, from 0. `{{` is the bracket itself. A variable that a
path begins with is a link, `get \"{link}\"`, and is sent as a browser sends it, with its query; elsewhere what a variable holds is data:
in a path percent-encoded but for `/`, in a query and in a form altogether (`%` as well, so nothing that is encoded already). In a `body` of a JSON
type it is escaped between quotation marks, in any other content it stands as it is, and in a `header` the end of a line, as every control character, is sent as a space.
What was taken from an answer goes back byte for byte, UTF-8 or not, and cookies do; only within JSON, which is UTF-8, and in functions
of the script what is none is U+FFFD.
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Each place that a block leads to is one of the schema, and each directive is defined.
    #[test]
    fn the_schema_knows_every_directive() {
        let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
        assert_eq!(schema["$ref"], "#/$defs/in-scenario");
        for directive in LANGUAGE.all() {
            let key = format!("{}.{}", directive.contexts[0].key(), directive.name);
            let definition = &schema["$defs"][&key];
            assert_eq!(definition["properties"]["directive"]["const"], directive.name, "{key}");
            if let Some(place) = definition.pointer("/properties/children/$ref") {
                let place = place.as_str().unwrap().trim_start_matches("#/$defs/");
                assert!(schema["$defs"][place]["items"]["oneOf"].is_array(), "{key}: {place}");
            }
        }
    }

    #[test]
    fn every_row_is_complete_and_the_page_up_to_date() {
        for directive in LANGUAGE.all() {
            assert!(!directive.doc.is_empty(), "{}", directive.name);
            assert!(directive.example.starts_with(directive.name), "{}", directive.name);
            let formatted = tidegate_config::format(directive.example);
            assert_eq!(formatted.as_deref(), Ok(format!("{}\n", directive.example).as_str()));
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        for (name, text) in [("scenarios.md", reference()), ("scenarios.schema.json", json_schema())] {
            let path = folder.join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == text, "docs/reference/{name} is out of date: UPDATE=1 writes it anew");
        }
    }
}
