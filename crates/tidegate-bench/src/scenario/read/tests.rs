//! What files of scenarios come to, and what is said of those with mistakes.

use super::*;
use crate::scenario::{Clock, Load, Visits, estimate};
use crate::schedule::Arrivals;
use std::collections::BTreeMap;

const EVENTS: &str = include_str!("../../../../../examples/bench/events.kdl");

fn loaded(text: &str) -> Loaded {
    load_text("s.kdl", text, Path::new("/nowhere"), &BTreeMap::new())
}

fn sound(text: &str) -> Scenario {
    let loaded = loaded(text);
    let rendered = loaded.render(false);
    loaded.scenario.unwrap_or_else(|| panic!("{rendered}"))
}

#[test]
fn the_mix_of_the_documents_comes_to_what_they_say() {
    let scenario = sound(EVENTS);
    assert_eq!((scenario.load.most_users(), scenario.operations.len()), (2_250, 7));
    let estimate = estimate(&scenario, 2);
    let expected = [26.15, 10.22, 33.45, 24.68, 2.61, 0.84, 2.04];
    for ((operation, share), expected) in scenario.operations.iter().zip(&estimate.shares).zip(expected) {
        assert!((share * 100.0 - expected).abs() < 0.006, "{}: {share}", operation.name);
    }
    assert!((estimate.rate_of_user - 0.2014).abs() < 0.000_05, "{}", estimate.rate_of_user);
    assert!((estimate.rate - 453.0).abs() < 0.5, "{}", estimate.rate);
    let targets: Vec<u64> =
        scenario.operations.iter().map(|operation| operation.targets[0].1.as_secs()).collect();
    assert_eq!(targets, [1, 1, 2, 2, 2, 3, 4]);
    assert!(estimate.screen(&scenario).contains("33.45 %"));
}

#[test]
fn the_example_is_written_the_one_way() {
    assert_eq!(tidegate_config::format(EVENTS).as_deref(), Ok(EVENTS));
}

#[test]
fn five_mistakes_are_five_lines() {
    let text = "target \"ftp://a/\"
users 0 { steady \"1m\" }
cycle exponential mean=\"5s\"
mix start=home { home tgas=60 home=30; tags home=100 }
op home p90=\"1s\" { gte \"/\" }
op tags { get \"/tags/{tag}\" }
";
    let loaded = loaded(text);
    let told: Vec<String> = loaded.diagnostics.iter().map(Diagnostic::in_a_line).collect();
    let expected = [
        ("s.kdl:1:8: ", "not an http URL"),
        ("s.kdl:2:7: ", "`users`: 0 is out of bounds"),
        ("s.kdl:4:23: ", "did you mean `tags`?"),
        ("s.kdl:5:20: ", "did you mean `get`?"),
        ("s.kdl:6:15: ", "`{tag}` is filled by nothing"),
    ];
    assert!(loaded.scenario.is_none());
    for (place, part) in expected {
        assert!(
            told.iter().any(|line| line.starts_with(place) && line.contains(part)),
            "{place}{part}: {told:#?}"
        );
    }
    assert_eq!(told.len(), expected.len(), "{told:#?}");
}

/// What is missing is told beside other mistakes, and not where a mistake may be what it is missing for.
#[test]
fn what_is_missing_is_told_in_the_same_run() {
    let target = "no target is named";
    let (comes, starts, follows) = (
        "nothing says who comes",
        "nothing says when operations start",
        "nothing says which operation follows",
    );
    let all = [target, comes, starts, follows, "says nothing of the time to measure"];
    let table: [(&str, &[&str]); 7] = [
        ("users 2 { steady \"1m\" }; op a { git \"/\" }", &[target, starts]),
        ("targt \"http://a\"; users 2 { ramp-up \"1s\" }; thinc fixed \"1s\"; op a { get \"x\" }", &[all[4]]),
        ("target \"http://a\"; usrs 2 { steady \"1m\" }; op a { get \"/\"; git \"/\" }", &[starts]),
        ("target \"http://a\"; users 2 { stedy \"1m\" }; think fixed 1; mxi { a 1; b 1 }; op a; op b", &[]),
        ("users 0 { steady \"1m\" }; op a { get \"/\" }; op b { get \"/\" }", &[target, starts, follows]),
        ("op a { git \"/\" }", &[target, comes, starts]),
        ("target \"http://a\"; rate \"0/s\" { steady \"1m\" }", &[follows]),
    ];
    for (text, missing) in table {
        let told = loaded(text).render(false);
        for part in all {
            assert_eq!(told.contains(part), missing.contains(&part), "{part}: {text}\n{told}");
        }
    }
    let told = loaded("target \"http://a\n").render(false);
    assert!(!told.contains(target), "{told}");
}

#[test]
fn what_does_not_fit_is_said() {
    let with = |rest: &str| format!("target \"http://a\"; users 2 {{ steady \"1m\" }}; {rest}");
    let op = "op a { get \"/\" }; op b { get \"/\" }";
    let think = "think fixed \"1s\"";
    let at_rate = |rate: &str| format!("target \"http://a\"; {rate}; op a {{ get \"/\" }}");
    let table = [
        (String::new(), "no target is named"),
        ("target \"http://a/b\"".to_owned(), "the path /b stands there"),
        (with(op), "nothing says when operations start"),
        (with(&format!("{think}; {op}")), "nothing says which operation follows"),
        (with(&format!("{think}; {op}; mix {{ a a=50 b=40; b a=100 }}")), "adds up to 90, not 100"),
        (with(&format!("{think}; {op}; mix {{ a b=100 }}")), "`op b` has no row"),
        (with(&format!("{think}; {op}; mix {{ a 1; c 2 }}")), "there is no operation `c`"),
        (with(&format!("{think}; {op}; mix {{ a 0; b 0 }}")), "all shares of `mix` are 0"),
        (with(&format!("{think}; {op}; mix {{ a 1; a 1; b 1 }}")), "`a` has a row already"),
        (
            with(&format!("{think}; {op}; mix {{ a b=50 b=50; b a=100 }}")),
            "`b` stands twice in the row of `a`",
        ),
        (with(&format!("{think}; {op}; mix {{ a 1; b a=1 }}")), "`b` does not have one number"),
        (with(&format!("{think}; {op}; sequence a; mix {{ a 1 }}")), "`mix` stands beside `sequence`"),
        (with(&format!("{think}; cycle fixed \"1s\"; {op}; sequence a b")), "`cycle` stands beside `think`"),
        (
            with(&format!("think uniform max=\"1s\" min=\"2s\"; {op}; sequence a b")),
            "`think uniform` does not have",
        ),
        (with(&format!("{think}; op a {{ }}")), "`op a` does nothing"),
        (with(&format!("{think}; op a {{ get \"x\" }}")), "`x` is no path"),
        (with(&format!("{think}; flow {{ get \"/\" }}; {op}")), "`op` stands beside `flow`"),
        (with(&format!("{think}; flow {{ get \"/\" {{ take x css=\"a > b\" }} }}")), "no simple selector"),
        (with(&format!("{think}; flow {{ get \"/\" {{ take x regex=\"(\" }} }}")), "unclosed group"),
        (with(&format!("{think}; flow {{ get \"/\" {{ take x json=\"a\" }} }}")), "no JSON pointer"),
        (with(&format!("{think}; flow {{ get \"/\" {{ take x css=\"a\" json=\"/a\" }} }}")), "in one way"),
        (with(&format!("{think}; flow {{ get \"/\" {{ expect status=\"2yy\" }} }}")), "`2yy` is no status"),
        (
            with(&format!("{think}; flow {{ get \"/\" {{ expect }} }}")),
            "`expect` says nothing that an answer",
        ),
        (
            with(&format!("{think}; flow {{ get \"/\" {{ header \"Host\" \"x\" }} }}")),
            "set by the user's browser",
        ),
        (
            with(&format!("{think}; flow {{ get \"/\" {{ header \"X-A\" \"x\\r\\ny\" }} }}")),
            "the value of X-A holds a control character",
        ),
        (with(&format!("{think}; flow {{ post \"/\" form=\"a=b\" body=\"c\" }}")), "in two ways"),
        (with(&format!("{think}; data d; flow {{ get \"/\" }}")), "needs values or a file"),
        (with(&format!("{think}; data d file=\"no.csv\"; flow {{ get \"/\" }}")), "cannot be read"),
        (
            with(&format!("rate \"5/s\" {{ steady \"1m\" }}; {think}; {op}; sequence a b")),
            "`rate` stands beside `users`",
        ),
        (at_rate("rate \"5/s\""), "`rate` says nothing of the time to measure"),
        (at_rate("rate \"0/s\" { steady \"1m\" }"), "`0/s` is out of bounds"),
        (at_rate("rate \"5/s\" { steady \"1m\"; stagger \"1s\" }"), "`stagger`"),
        (at_rate("rate \"5/s\" operations=0 { steady \"1m\" }"), "out of bounds"),
        (at_rate("rate \"5/s\" arrivals=often { steady \"1m\" }"), "`often`"),
        (
            with(&format!("{think}; client h2 connections=2; {op}; sequence a b")),
            "each user has one connection",
        ),
        (with(&format!("{think}; client streams=2; {op}; sequence a b")), "`streams=` goes with `h2` alone"),
        (with(&format!("{think}; client h3; {op}; sequence a b")), "`h3`"),
        (with(&format!("{think}; root \"/\"; flow {{ get \"/\" }}")), "unknown directive `root`"),
    ];
    for (text, part) in table {
        let told = loaded(&text).render(false);
        assert!(told.contains(part), "{text}\n{told}");
        assert!(told.contains("help: "), "{text}\n{told}");
    }
}

/// A `data` with a mistake costs one sentence, not another one for each place where its variables stand.
#[test]
fn a_mistake_in_data_is_told_once() {
    let folder = std::env::temp_dir().join(format!("tidegate-data-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("short.csv"), "a,b\n1\n").unwrap();
    std::fs::write(folder.join("sound.csv"), "a,b\n1,2\n").unwrap();
    let rest = "target \"http://a\"\nusers 2 { steady \"1m\" }\nthink fixed \"1s\"\nflow {
        get \"/{d.a}\" { header \"X-A\" \"{d.b}\"; expect contains=\"{d}\" }
        post \"{d.link}\" form=\"a={d.a}\"
    }";
    let mistakes = |data: &str| -> Vec<String> {
        let loaded = load_text("t", &format!("{data}\n{rest}"), &folder, &BTreeMap::new());
        loaded.diagnostics.iter().map(|found| found.message.clone()).collect()
    };
    for (data, part) in [
        ("data d file=\"none.csv\"", "none.csv cannot be read"),
        ("data d file=\"short.csv\"", "1 values in row 2"),
        ("data d file=\".\"", "is no file"),
        ("data d file=\"/dev/zero\"", "/dev/zero is no file"),
        ("data d", "needs values or a file"),
        ("data d \"x\" file=\"sound.csv\"", "needs values or a file"),
        ("data d file=\"sound.csv\"\ndata d file=\"short.csv\"", "is there already"),
        ("data d file=12", "stands where a string is due"),
    ] {
        let told = mistakes(data);
        assert!(told.len() == 1 && told[0].contains(part), "{data}: {told:?}");
    }
    let told = mistakes("data d file=\"none.csv\"\nop c { get \"/{d.a}/{other}\" }");
    assert!(told.iter().any(|told| told.contains("`{other}` is filled by nothing")), "{told:?}");
    // What follows a value that is wrong does not take its place.
    let calls = "op c { get \"/\" { call \"f g\" v; check \"g h\"; header \"a b\" \"v\"; take \"a b\" optional css=\"a\" } }";
    let told = mistakes(&format!("data d \"x\"\ndata \"1 2\" \"x\" \"y\"\n{calls}"));
    let others = ["is filled by nothing", "stands beside"];
    let told: Vec<_> = told.iter().filter(|told| !others.iter().any(|other| told.contains(other))).collect();
    let is_of = |what: &str| told.iter().filter(|told| told.contains(what)).count();
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(is_of("is no name that can stand here"), 4, "{told:?}");
    // The arguments of a call may be several, so that these are taken for an operation and its argument.
    assert_eq!(is_of("`call`: `f g` is one value, and several stand in it"), 1, "{told:?}");
    // What no `data` with a mistake can be meant to fill is a mistake of its own.
    let told = mistakes("data e file=\"none.csv\"");
    assert_eq!(told.iter().filter(|told| told.contains("is filled by nothing")).count(), 5, "{told:?}");
    let told = mistakes("data d file=\"sound.csv\"");
    assert_eq!(told.iter().filter(|told| told.contains("is filled by nothing")).count(), 2, "{told:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What cannot be sent is told where it stands, with what to write.
#[test]
fn a_path_is_one_that_can_be_sent() {
    let rest = "target \"http://a:81\"\nusers 2 { steady \"1m\" }\nthink fixed \"1s\"\ndata d \"x\"\nflow {";
    for (path, part, help) in [
        ("/a b?c={d}", "' ' cannot stand in a path as it is", "write `get \"/a%20b?c={d}\"`"),
        ("/ä/{d}", "'ä' cannot stand in a path as it is", "write `get \"/%C3%A4/{d}\"`"),
        ("/{d}<{{", "'<' cannot stand in a path as it is", "write `get \"/{d}%3C{{\"`"),
        ("/a#b", "what follows `#` is for the browser alone", "write `get \"/a%23b\"` where"),
        ("{d}\\n", "'\\n' cannot stand", "write `get \"{d}%0A\"`"),
        ("http://b/{d}", "http://b/ is not of the target http://a:81/", "write the path alone"),
        ("//b", "//b is not of the target", "write the path alone"),
        ("ftp://a:81/", "is not of the target", "write the path alone"),
    ] {
        let told = loaded(&format!("{rest}\n    get \"{path}\"\n}}")).render(false);
        assert!(told.starts_with("s.kdl:6:9: error: `get`: ") && told.contains(part), "{path}: {told}");
        assert!(told.contains(help) && told.matches("error: ").count() == 1, "{path}: {told}");
    }
    for path in ["/a?b=%20&c={{x}|^", "/{d}", "{d}", "{d}&n={d}", "http://a:81/{d}", "//a:81/", "/%zz"] {
        let loaded = loaded(&format!("{rest} get \"{path}\" }}"));
        assert!(loaded.diagnostics.is_empty(), "{path}: {}", loaded.render(false));
    }
}

#[test]
fn a_body_is_json_by_its_type() {
    let body = |rest: &str| {
        let text = format!(
            "target \"http://a\"; users 2 {{ steady \"1m\" }}; think fixed \"1s\"; flow {{ post \"/\" body=\"x\" {rest} }}"
        );
        matches!(sound(&text).operations[0].steps[0].body, Body::Json(_))
    };
    for (rest, is_json) in [
        ("", false),
        ("type=\"text/html\"", false),
        ("type=\"application/json\"", true),
        ("type=\"application/json; charset=utf-8\"", true),
        ("type=\"application/problem+json\"", true),
        ("{ header \"content-type\" \"application/json\" }", true),
    ] {
        assert_eq!(body(rest), is_json, "{rest}");
    }
}

/// What is given twice is one mistake, of whichever kind.
#[test]
fn what_stands_twice_is_told_once() {
    let lines = [
        ("users 2 { steady \"1m\" }", 2),
        ("think fixed \"1s\"", 3),
        ("mix { a 1 }", 4),
        ("client connections=2", 5),
        ("target \"http://a\"", 6),
        ("scenario \"x\"", 7),
    ];
    let once = lines.map(|(line, _)| line).join("\n");
    for (line, number) in lines {
        let text = format!("op a {{ get \"/\" }}\n{once}\n{line}");
        let told = loaded(&text).render(false);
        let name = line.split(' ').next().unwrap_or_default();
        let place = format!("s.kdl:8:1: error: `{name}` is given twice");
        assert!(told.starts_with(&place) && told.matches("error: ").count() == 1, "{told}");
        assert!(told.contains(&format!("s.kdl:{number}")), "{told}");
    }
    let twice = "op a { get \"/\"; think fixed \"1s\"; think fixed \"2s\" }";
    let told = loaded(&format!("{once}\n{twice}")).render(false);
    assert!(told.contains("`think` is given twice") && told.matches("error: ").count() == 1, "{told}");
}

/// An operation that is never due is told of where it stands, and in the plan.
#[test]
fn operations_that_are_never_due_are_told_of() {
    let text = |mix: &str, targets: &str, load: &str| {
        format!(
            "target \"http://a\"\n{load} {{ steady \"1m\" }}\nthink fixed \"1s\"\nmix {mix}\nop a {{ get \"/\" }}\nop b {targets} {{ get \"/\" }}"
        )
    };
    let (users, left) = ("users 2", "users leave `b` for good: nothing leads back to it");
    let matrix = "start=b { b a=100; a a=100 }";
    for (mix, targets, load, told, planned) in [
        ("{ a 1; b 0 }", "", users, "no user ever comes to `b`", "no user ever comes to `b`"),
        ("start=a { b b=100; a a=100 }", "", users, "no user ever comes to `b`", "no user ever comes to `b`"),
        (matrix, "p95=\"1s\"", users, left, left),
        // One login is no mistake.
        (matrix, "", users, "", left),
        (matrix, "p95=\"1s\"", "rate \"1/s\" operations=2", "", ""),
    ] {
        let loaded = loaded(&text(mix, targets, load));
        let rendered = loaded.render(false);
        let scenario = loaded.scenario.unwrap_or_else(|| panic!("{rendered}"));
        let expected = format!("s.kdl:6:4: warning: {told}\n");
        assert!(
            if told.is_empty() { rendered.is_empty() } else { rendered.starts_with(&expected) },
            "{rendered}"
        );
        let plan = estimate(&scenario, 1).screen(&scenario);
        assert!(plan.contains(planned) && plan.contains("`b`") != planned.is_empty(), "{plan}");
    }
    let told =
        loaded(&text("start=a { a b=50 a=50; b a=100 }", "", "rate \"1/s\" operations=1")).render(false);
    assert!(told.starts_with("s.kdl:2:23: warning: no visit of one operation comes to `b`"), "{told}");
    let told = loaded(&text("{ a a=100 }", "", users)).render(false);
    assert!(told.starts_with("s.kdl:6:4: error: `op b` has no row in `mix`"), "{told}");
}

#[test]
fn a_flow_is_a_sequence_of_operations() {
    let scenario = sound(
        "target \"https://shop.test\"; users 200 { ramp-up \"30s\"; steady \"5m\" }; think uniform min=\"2s\" max=\"8s\"
        flow {
            get \"/\" { assets; take item css=\"a.item\" attribute=href }
            get \"{item}\" p95=\"300ms\" { expect status=200 }
            post \"/cart\" form=\"id={item}\"
            get \"/\"
        }",
    );
    let names: Vec<&str> = scenario.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["get /", "get {item}", "post /cart", "get / (2)"]);
    assert_eq!(scenario.mix, crate::scenario::Mix::Sequence(vec![0, 1, 2, 3]));
    assert_eq!(scenario.operations[1].targets, [(95.0, Duration::from_millis(300))]);
    assert!(matches!(scenario.clock, Clock::Think(_)) && estimate(&scenario, 1).is_upper_bound);
    let Load::Users(users) = scenario.load else { panic!("{:?}", scenario.load) };
    assert_eq!(users.begins(100, &scenario.phases), Duration::from_secs(15));
}

#[test]
fn users_that_come_at_a_rate() {
    let text = |rate: &str, rest: &str| {
        format!(
            "target \"http://a\"; rate {rate} {{ ramp-up \"1m\"; steady \"1m\" }}; {rest}; op a {{ get \"/\" }}; op b {{ get \"/\" }}"
        )
    };
    // Without a clock there is no pause; of a sequence a visit does all.
    let scenario = sound(&text("\"120/m\"", "sequence a b a"));
    let visits = Visits { rate: 2.0, arrivals: Arrivals::Poisson, operations: 3, most_users: 1_000 };
    assert_eq!((scenario.load, scenario.mean_visit()), (Load::Visits(visits), 0.0));
    let coming = estimate(&scenario, 1);
    assert!((coming.rate - 6.0).abs() < 1e-9 && !coming.is_upper_bound, "{coming:?}");
    assert!((coming.shares[0] - 2.0 / 3.0).abs() < 1e-9, "{coming:?}");
    let more = "\"10/s\" operations=4 arrivals=constant most-users=7";
    let mut scenario = sound(&text(more, "mix { a 1; b 1 }; cycle fixed \"2s\""));
    let visits = Visits { rate: 10.0, arrivals: Arrivals::Constant, operations: 4, most_users: 7 };
    assert_eq!((scenario.load, scenario.mean_visit()), (Load::Visits(visits), 6.0));
    let screen = estimate(&scenario, 1).screen(&scenario);
    for part in
        ["10 visits/s (constant) of 4 operations", "40.00, 4 of each visit", "60.0 of visits of 6.00 s"]
    {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(scenario.resize(Some(3), None).is_err() && scenario.resize(None, Some(2.5)).is_ok());
    assert_eq!(scenario.load, Load::Visits(Visits { rate: 2.5, ..visits }));
    assert!(sound(EVENTS).resize(None, Some(2.5)).is_err());

    // What a visit does not come to, and a ramp-up that is shorter than one.
    let matrix = "mix start=a { a b=100; b a=100 }";
    let told = loaded(&text("\"1/s\"", matrix));
    assert!(told.scenario.is_some());
    let line = told.render(false);
    assert!(line.contains("no visit of one operation comes to `b`"), "{line}");
    let told = loaded(&text("\"1/s\" operations=9", &format!("{matrix}; think fixed \"8s\""))).render(false);
    assert!(told.contains("a visit takes 64.0 s by the clocks, and the ramp-up is shorter"), "{told}");
    assert!(loaded(&text("\"1/s\" operations=9", matrix)).diagnostics.is_empty());
}

#[test]
fn scenarios_of_the_documents_are_sound() {
    let text = include_str!("../../../../../docs/bench.md");
    // The one with a script is run by tests of the command.
    let blocks = text.split("\n```\n").filter(|block| block.starts_with("scenario \""));
    let blocks = blocks.filter(|block| !block.contains("\nscript \""));
    let names: Vec<String> = blocks.map(|block| sound(block).name).collect();
    assert_eq!(names, ["shop", "visitors"]);
}

#[test]
fn a_browser_of_http2() {
    let with = |client: &str| {
        let scenario = sound(&format!(
            "target \"http://a\"; users 2 {{ steady \"1m\" }}; think fixed \"1s\"; {client}; flow {{ get \"/\" {{ assets }} }}"
        ));
        let client = scenario.client;
        (
            client.streams,
            client.requests_at_once(),
            client.most_connections(),
            estimate(&scenario, 1).connections,
        )
    };
    assert_eq!(with("client h2"), (Some(100), 100, 2, 2));
    assert_eq!(with("client h2 streams=9"), (Some(9), 9, 2, 2));
    assert_eq!(with("client connections=3"), (None, 3, 3, 6));
    assert_eq!(with("scenario \"x\""), (None, 6, 6, 12));
}

/// Which of the two bounds of time it was is said.
#[test]
fn the_bounds_of_a_request() {
    let client = sound(
        "target \"http://a\"; users 2 { steady \"1m\" }; think fixed \"1s\"; client timeout=\"3s\" answer-timeout=\"5s\"; flow { get \"/\" }",
    )
    .client;
    let second = 1_000_000_000;
    // Silence from 1 s on, and one that drips.
    assert_eq!((client.deadline(0, second), client.deadline(0, 4 * second)), (4 * second, 5 * second));
    assert_eq!(client.timed_out(0, 4 * second), "no byte has come or gone for 3.00 s, which is `timeout=`");
    let whole = "its answer was not whole after 5.00 s, which is `answer-timeout=`";
    assert_eq!(client.timed_out(0, 5 * second), whole);
}

#[test]
fn systems_beside_the_load() {
    use crate::systems::{Before, Place, Probe, Processes, Service, Stopped};
    let rest =
        "target \"http://127.0.0.1\"\nusers 1 { steady \"1s\" }\nthink fixed \"1s\"\nflow { get \"/\" }\n";
    let scenario = sound(&format!(
        "{rest}system web {{ monitor process=\"tidegate\" url=\"http://a/.perf?format=json\"; monitor process=\"12\" interval=\"2s\" }}
        system db {{ ssh \"u@db\" program=\"/x y\"; monitor memcached=\"a:1\" mariadb=\"-u b\" }}\nsystem idle"
    ));
    let [web, db, idle] = scenario.systems.as_slice() else { panic!("{:?}", scenario.systems) };
    let watched = web.watched.as_ref().unwrap();
    assert_eq!((&web.place, watched.interval), (&Place::Here, Duration::from_secs(2)));
    assert_eq!(watched.processes, [Processes::Named("tidegate".into()), Processes::Tree(12)]);
    let expected = ["bench", "monitor", "--stdio", "--interval=2000ms", "--process=tidegate", "--process=12"];
    let arguments = watched.arguments();
    assert_eq!(arguments[..6], expected);
    assert_eq!(arguments[6..], ["--url=http://a/.perf?format=json"]);
    assert_eq!(db.place, Place::Ssh { host: "u@db".into(), program: "/x y".into() });
    let services = [Service::Memcached("a:1".into()), Service::Mariadb("-u b".into())];
    assert_eq!(db.watched.as_ref().unwrap().services, services);
    assert!(idle.watched.is_none() && idle.before.is_empty() && idle.stop.is_none());
    let scenario = sound(&format!(
        "{rest}system web {{ reset \"a\" within=\"5s\"; start \"b\"; ready tcp=\"a:1\"; stop \"c\"; collect \"/d\" \"/e\" }}"
    ));
    let web = &scenario.systems[0];
    let within = |seconds| Duration::from_secs(seconds);
    let ready = Some(Probe::Tcp("a:1".into()));
    let expected = [
        Before::Reset { command: "a".into(), within: within(5) },
        Before::Start { command: "b".into(), ready, within: within(30) },
    ];
    assert_eq!(web.before, expected);
    assert_eq!(web.stop, Some(Stopped { command: "c".into(), within: within(30) }));
    assert_eq!(web.collect, ["/d", "/e"]);
    for (wrong, part) in [
        ("system web; system web", "there already"),
        ("system web { ssh \"-oProxyCommand=x\" }", "is no host"),
        ("system web { ssh \"a b\" }", "is no host"),
        ("system web { monitor url=\"ftp://a/\" }", "not an http URL"),
        ("system web { monitor url=\"ftp://a/\" }", "not an http URL"),
        ("system web { monitr }", "did you mean `monitor`?"),
        ("system web { ready tcp=\"a:1\" }", "without `start`"),
        ("system web { start \"x\"; ready }", "one of the two"),
        ("system web { start \"x\"; ready url=\"ftp://a/\" }", "not an http URL"),
        ("system web { monitor interval=\"1ms\" }", "out of bounds"),
    ] {
        let told = loaded(&format!("{rest}{wrong}")).render(false);
        assert!(told.contains(part), "{wrong}: {told}");
    }
}

/// What people write, with classes and switches of ASCII, as in settings.
#[test]
fn usual_expressions_are_taken() {
    for regex in [r"id=(\d+)", r"\bItem\s+\w+", "(?i)ITEM", "[[:alpha:]]+", "(?s)a.b"] {
        let text = format!(
            "target \"http://127.0.0.1:1\"\nusers 1 {{ steady \"1s\" }}\nthink fixed \"1s\"\n\
             flow {{ get \"/\" {{ take x regex=#\"{regex}\"# }} }}\n"
        );
        let loaded = load_text("s.kdl", &text, Path::new("."), &BTreeMap::new());
        assert!(loaded.scenario.is_some(), "{regex}: {}", loaded.render(false));
    }
}
