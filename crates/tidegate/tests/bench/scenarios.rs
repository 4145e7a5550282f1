//! `tidegate bench run`: users of a scenario against Tidegate and against applications by script.

use super::peers::{BINARY, Folder, answer, bench, command, peer, request};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use tidegate_testkit::{InTime, wait_for};

/// A request as the application got it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub line: String,
    pub fields: HashMap<String, String>,
    body: Vec<u8>,
}

impl Asked {
    /// The value of a field; its name in small letters.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// Its content.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// What the application answers: status and reason, field lines, body.
pub type Reply = (&'static str, String, String);

/// An application by script, and all that it was asked.
pub struct Application {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Application {
    pub fn new(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, reply) = (asked.clone(), Arc::new(reply));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, reply) = (seen.clone(), reply.clone());
                std::thread::spawn(move || serve(stream, &seen, &*reply));
            }
        });
        Application { url, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Asked>>, reply: &dyn Fn(&Asked) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut fields = HashMap::new();
        loop {
            let mut field = String::new();
            if reader.read_line(&mut field).unwrap_or(0) <= 2 {
                break;
            }
            let (name, value) = field.trim_end().split_once(": ").unwrap_or((field.trim_end(), ""));
            fields.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = fields.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let asked = Asked { line: line.trim_end_matches(" HTTP/1.1\r\n").to_owned(), fields, body };
        let (status, lines, text) = reply(&asked);
        seen.lock().unwrap().push(asked);
        let length = text.len();
        let answer = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {length}\r\n\r\n{text}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

pub fn scenario(folder: &Folder, target: &str, rest: &str) -> String {
    folder.write("scenario.kdl", format!("target \"{target}\"\n{rest}\n"))
}

const SHOP: &str = r#"
users 1 { steady "1s" }
think fixed "1ms"
client connections=2
data word "a b" "c&d"
flow {
    get "/login" { take csrf css="input[name=csrf]" attribute=value }
    post "/login" form="user={user}&csrf={csrf}" { expect contains="Welcome" }
    get "/items?q={word}" { assets; cached; take item optional css=".item" attribute=href pick=first }
    get "{item}" { expect header="X-Kind: item"; take price json="/price" }
    post "/cart" { part note "price {price}"; upload picture file="p.png" size="1KiB" type="image/png" }
}
"#;

/// A shop that forgets nothing: who logs in gets a cookie, who has the list is told that it has not changed.
fn shop(asked: &Asked) -> Reply {
    let is_known = asked.fields.contains_key("if-none-match");
    match asked.line.split('?').next().unwrap_or_default() {
        "GET /login" => ok("Set-Cookie: s=1; Path=/\r\n", "<form><input name=csrf value='t&amp;k'></form>"),
        "POST /login" => {
            ("303 See Other", "Location: home\r\nSet-Cookie: who=me\r\n".to_owned(), String::new())
        }
        "GET /home" => ok("", "<h1>Welcome</h1>"),
        "GET /items" if is_known => ("304 Not Modified", "ETag: \"i\"\r\n".to_owned(), String::new()),
        "GET /items" => ok(
            "ETag: \"i\"\r\n",
            "<link rel=stylesheet href=/s.css><img src=/p.png><img src=/p.png><img src=http://other.test/x.png>\
             <a class=item href=item/7>7</a><a class=item href=item/8>8</a>",
        ),
        "GET /s.css" | "GET /p.png" if is_known => {
            ("304 Not Modified", "ETag: \"f\"\r\n".to_owned(), String::new())
        }
        "GET /s.css" | "GET /p.png" => ok("ETag: \"f\"\r\n", "content"),
        "GET /item/7" => ok("X-Kind: an item\r\n", "{\"price\": 12}"),
        "POST /cart" => ok("", "in the cart"),
        _ => ("404 Not Found", String::new(), String::new()),
    }
}

pub fn ok(lines: &str, text: &str) -> Reply {
    ("200 OK", lines.to_owned(), text.to_owned())
}

#[test]
fn a_status_that_a_step_expects_is_no_failed_request() {
    let folder = Folder::new();
    let refusing = Application::new(|_| ("405 Method Not Allowed", String::new(), String::new()));
    let steps = "users 1 { steady \"300ms\" }\nthink fixed \"1ms\"\n\
        op a { put \"/\" body=\"x\" { expect status=405 } }";
    let file = scenario(&folder, &refusing.url, steps);
    let report = bench(&["run", &file, "--json", "--no-host", "--no-keep"]).json();
    assert!(report["operations"][0]["succeeded"].as_u64().unwrap() > 0, "{report:#}");
    let requests = &report["requests"];
    assert_eq!((&requests["failed"], &requests["errors"]), (&0.into(), &serde_json::json!({})), "{report:#}");
}

#[test]
fn a_user_is_what_a_browser_is() {
    let folder = Folder::new();
    let shop = Application::new(shop);
    let file = scenario(&folder, &shop.url, SHOP);
    let outcome = bench(&["run", &file, "--json", "--no-host"]);
    let report = outcome.json();
    assert_eq!(report["failed_operations"], serde_json::json!([]), "{report:#}");
    assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
    let asked = shop.asked();
    let first = |line: &str| asked.iter().find(|asked| asked.line.starts_with(line)).cloned();
    let all =
        |line: &str| asked.iter().filter(|asked| asked.line.starts_with(line)).cloned().collect::<Vec<_>>();

    // The form has what the page has, encoded; cookies are those of both answers.
    let login = first("POST /login").unwrap();
    assert_eq!(login.body, b"user=0&csrf=t%26k");
    assert_eq!(login.fields["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(login.fields["cookie"], "s=1");
    assert_eq!(first("GET /home").unwrap().fields["cookie"], "s=1; who=me");
    // Values of data sets stand in paths percent-encoded, and a raw ampersand would part the query.
    assert!(asked.iter().any(|asked| asked.line == "GET /items?q=a%20b"), "{asked:?}");
    // What a page loads it loads once, of the target alone; what is held is asked about.
    let pictures = all("GET /p.png");
    assert!(pictures.len() >= 2 && !pictures[0].fields.contains_key("if-none-match"));
    assert_eq!(pictures[1].fields["if-none-match"], "\"f\"");
    assert!(!asked.iter().any(|asked| asked.line.contains("x.png")));
    // The list is one resource for each of its queries.
    let lists = all("GET /items?q=a");
    assert!(lists.len() < 2 || lists[1].fields["if-none-match"] == "\"i\"");
    // A page that has not changed is taken from the cache, and what it loads is asked about all the same.
    let (pages, loaded) = (all("GET /items").len(), all("GET /p.png").len());
    assert!(pages > 4 && loaded + 1 >= pages, "{pages} pages, and pictures of {loaded}");
    // A link is a path of the page it stands on; the first one was to be taken.
    assert!(first("GET /item/7").is_some() && first("GET /item/8").is_none());
    let cart = first("POST /cart").unwrap();
    let text = String::from_utf8_lossy(&cart.body).into_owned();
    assert!(text.contains("name=\"note\"\r\n\r\nprice 12\r\n"), "{text}");
    assert!(
        text.contains("name=\"picture\"; filename=\"p.png\"\r\nContent-Type: image/png\r\n\r\n"),
        "{text}"
    );
    assert!(cart.fields["content-type"].starts_with("multipart/form-data; boundary="));
    assert!(cart.body.len() > 1_024);
    // Operations are counted once each, and in their order.
    let counts: Vec<u64> =
        report["operations"].as_array().unwrap().iter().map(|one| one["ended"].as_u64().unwrap()).collect();
    assert!(
        counts[0] > 1 && counts.windows(2).all(|pair| pair[0] >= pair[1] && pair[0] <= pair[1] + 1),
        "{counts:?}"
    );
}

#[test]
fn what_fails_is_told_with_a_sample() {
    let folder = Folder::new();
    let application = Application::new(|asked| match asked.line.as_str() {
        "GET /broken" => ("500 Internal Server Error", String::new(), "the database is gone".to_owned()),
        "GET /around" => ("302 Found", "Location: /around\r\n".to_owned(), String::new()),
        _ => ok("", "<a href=/x>x</a>"),
    });
    let steps = "users 2 { steady \"1s\" }; think fixed \"20ms\"
        mix { broken 1; wrong 1; nothing 1; around 1; fine 4 }
        op broken { get \"/broken\" }
        op wrong { get \"/\" { expect contains=\"Welcome\" } }
        op nothing { get \"/\" { take id css=\"#id\" } }
        op around { get \"/around\" }
        op fine p90=\"30s\" { get \"/\" }";
    let file = scenario(&folder, &application.url, steps);
    let outcome = bench(&["run", &file, "--no-host"]);
    assert!(matches!(outcome.code, 98 | 99), "{}\n{}", outcome.stdout, outcome.stderr);
    for part in [
        "GET /broken: the status is 500",
        "the database is gone",
        "the body does not contain `Welcome`",
        "no `id` on the page: nothing is found by ",
        "more than 5 redirects",
        "operations failed, and 99 % must succeed",
    ] {
        assert!(outcome.stdout.contains(part), "{part}:\n{}", outcome.stdout);
    }
}

#[test]
fn mistakes_are_all_told_and_nothing_is_run() {
    let folder = Folder::new();
    let text = "users 0 { steady \"1m\" }\ncycle exponential mean=\"5s\"\nmix start=home { home tgas=60 home=30 }\n\
        op home p90=\"1s\" { gte \"/\" }\nop tags { get \"/tags/{tag}\" }";
    let file = scenario(&folder, "ftp://a/", text);
    let outcome = bench(&["run", &file, "--check"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""));
    for place in
        [":1:8: error", ":2:7: error", ":4:23: error", ":5:20: error", ":6:15: error", "has 5 mistakes"]
    {
        assert!(outcome.stderr.contains(place), "{place}:\n{}", outcome.stderr);
    }
    let good = scenario(
        &folder,
        "http://127.0.0.1:1",
        "users 3 { steady \"1m\" }; think fixed \"1s\"; flow { get \"/\" }",
    );
    let outcome = bench(&["run", &good, "--check"]);
    assert_eq!((outcome.code, outcome.stdout.contains("is in order")), (0, true));
    let outcome = bench(&["run", &good, "--plan"]);
    assert!(outcome.code == 0 && outcome.stdout.contains("3.00, 1.0000 of each user"), "{}", outcome.stdout);
    // Nobody is there: one sentence.
    let outcome = bench(&["run", &good]);
    assert!(outcome.code == 1 && outcome.stderr.contains("refuses connections"), "{}", outcome.stderr);
}

/// A recording of Chromium becomes a scenario that asks what the browser has asked.
#[test]
fn a_recording_becomes_a_scenario_that_runs() {
    let folder = Folder::new();
    let har = concat!(env!("CARGO_MANIFEST_DIR"), "/../tidegate-bench/src/scenario/har/shop.har");
    let made = bench(&["har", har]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for part in [
        "6 operations of 7 requests to http://127.0.0.1:18480, and 7 resources of pages",
        "left out: 1 requests to http://127.0.0.2:18481, 5 that no page of a scenario loads (fonts,",
        "1 requests or files have content that is not in the recording",
    ] {
        assert!(made.stderr.contains(part), "{part}: {}", made.stderr);
    }
    let users = "users 10 { ramp-up \"10s\"; steady \"1m\" }";
    assert!(made.stdout.contains(users), "{}", made.stdout);
    let mut text = made.stdout.replace(users, "users 1 { steady \"1s\" }");
    for pause in ["1540ms", "1910ms", "2110ms", "1350ms", "1720ms", "610ms"] {
        text = text.replace(&format!("think fixed \"{pause}\""), "think fixed \"1ms\"");
    }
    let application = Application::new(|asked| match asked.line.as_str() {
        "GET /" => ok("", "<img src=/p.png>"),
        "POST /api/like" => ("409 Conflict", String::new(), String::new()),
        "POST /cart" => ("303 See Other", "Location: /done\r\n".to_owned(), String::new()),
        _ => ok("", "<h1>done</h1>"),
    });
    let file = folder.write("shop.kdl", text);
    let run = bench(&["run", &file, "--target", &application.url, "--json", "--no-host", "--no-keep"]);
    assert_eq!(run.json()["failed_operations"], serde_json::json!([]), "{}", run.stdout);
    let asked = application.asked();
    let lines: Vec<&str> = asked.iter().take(9).map(|asked| asked.line.as_str()).collect();
    let expected = [
        "GET /",
        "GET /p.png",
        "GET /api/hello?q=a%26b",
        "GET /items/7?from=home%20page&x={1}",
        "POST /api/like",
        "POST /cart",
        "GET /done",
        "GET /items/7?from=home%20page&x={1}",
        "POST /photo",
    ];
    assert_eq!(lines, expected);
    assert_eq!(asked[2].field("x-requested-with"), Some("fetch"));
    assert_eq!(
        (asked[4].body(), asked[4].field("authorization")),
        (&b"{\"a\":\"{x}\"}"[..], Some("Bearer t"))
    );
    assert_eq!(asked[5].body(), b"id=7+%26+%7B8%7D&note=say+%22%24%7BHOME%7D%22");
    let none = bench(&["har", &file]);
    assert!(none.code == 1 && none.stderr.contains("it is no HAR"), "{}", none.stderr);
}

/// The server of the example, on a port of its own.
struct Events {
    folder: Folder,
    child: Child,
    url: String,
}

impl Events {
    fn new() -> Events {
        let folder = Folder::new();
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bench/events-server.kdl");
        let mut child = Command::new(BINARY)
            .args(["serve", "--config", examples, "--control"])
            .arg(folder.0.join("control"))
            .env("PORT", "0")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Events { folder, child, url }
    }

    /// The scenario of the example, faster.
    fn scenario(&self, users: &str) -> String {
        let text = include_str!("../../../../examples/bench/events.kdl");
        let text = text.replace("users 2250 { ramp-up \"60s\"; steady \"180s\"; ramp-down \"30s\" }", users);
        let text = text.replace("mean=\"5s\" max=\"25s\"", "mean=\"200ms\" max=\"1s\"");
        assert!(text.contains(users) && text.contains("200ms"));
        self.folder.write("events.kdl", text)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_mix_of_the_documents_runs_against_its_stand_in() {
    let events = Events::new();
    let file = events.scenario("users 40 { ramp-up \"500ms\"; steady \"4s\"; ramp-down \"500ms\" }");
    let out = events.folder.0.join("run").display().to_string();
    let outcome = bench(&["run", &file, "--target", &events.url, "--out", &out, "--seed", "3"]);
    // A busy machine makes the generator late, and holds users up; nothing else may be wrong.
    assert!(matches!(outcome.code, 0 | 98), "{}\n{}", outcome.stdout, outcome.stderr);
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(format!("{out}/summary.json")).unwrap()).unwrap();
    let operations = summary["operations"].as_array().unwrap();
    let ended: u64 = operations.iter().map(|one| one["ended"].as_u64().unwrap()).sum();
    assert!(ended > 100, "{summary:#}");
    for one in operations {
        assert_eq!(one["failed"], 0, "{one:#}");
        let off = (one["share"].as_f64().unwrap() - one["share_due"].as_f64().unwrap()).abs() * 100.0;
        assert!(off <= one["share_allowed_points"].as_f64().unwrap(), "{one:#}");
    }
    assert!(summary["requests"]["statuses"]["304"].as_u64().is_some_and(|count| count > 0), "{summary:#}");
    for (name, part) in [
        ("scenario.kdl", "start=home"),
        ("plan.txt", "33.45 %"),
        ("environment.json", "kernel"),
        ("seconds.csv", "add-event"),
        ("operations.hlog", "Tag=home"),
        ("report.txt", "Verdict: "),
        ("report.html", "Operations over time"),
    ] {
        let text = fs::read_to_string(format!("{out}/{name}")).unwrap();
        assert!(text.contains(part), "{name}: {text}");
    }
}

#[test]
fn a_target_that_dies_is_a_clear_verdict() {
    let mut events = Events::new();
    let file = events.scenario("users 20 { steady \"1m\" }");
    let mut command = command();
    command.args(["run", &file, "--target", &events.url, "--give-up", "1s", "--no-host", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(|| (open_connections(child.id()) > 10).then_some(()), "connections of users");
    events.child.kill().unwrap();
    events.child.wait().unwrap();
    let output = child.output_in_time();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the target accepted no more connections"), "{stderr}");
    assert!(matches!(output.status.code(), Some(98 | 99)), "{:?}", output.status);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        summary["requests"]["errors"].as_object().is_some_and(|errors| !errors.is_empty()),
        "{summary:#}"
    );
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let events = Events::new();
    let file = events.scenario("users 20 { steady \"1m\" }");
    let mut command = command();
    let out = events.folder.0.join("interrupted");
    command.args(["run", &file, "--target", &events.url, "--no-host", "--json", "--out"]).arg(&out);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| (open_connections(child.id()) > 10).then_some(()), "connections of users");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.output_in_time();
    assert_eq!(output.status.code(), Some(130));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["requests"]["answered"].as_u64().is_some_and(|count| count > 0), "{summary:#}");
    assert!(summary["notes"].to_string().contains("interrupted"), "{summary:#}");
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(kept["requests"], summary["requests"]);
    assert!(!out.join("running").exists());
}

/// Whatever is wrong with an answer is told; nothing of it is taken for success.
#[test]
fn what_servers_get_wrong_is_no_success() {
    let folder = Folder::new();
    let application = Application::new(|asked| match asked.line.as_str() {
        "GET /unasked" => ("304 Not Modified", String::new(), String::new()),
        "POST /moved" => ("308 Permanent Redirect", "Location: /here\r\n".to_owned(), String::new()),
        "POST /here" if asked.body == b"a=1" => ok("", "arrived"),
        "GET /moved.png" => ("302 Found", "Location: /p.png\r\n".to_owned(), String::new()),
        "GET /page" => ok("", "<img class=thumb src=/moved.png><img class=thumb src=/p.png>"),
        "GET /p.png" => ok("", "x"),
        "GET /own" if asked.fields["user-agent"] == "me" && asked.fields["accept"] == "text/plain" => {
            ok("", "")
        }
        "GET /bell" => ok("", "{\"bell\": \"a\\u001bb\"}"),
        _ => ("404 Not Found", String::new(), String::new()),
    });
    let steps = "users 2 { steady \"1s\" }; think fixed \"10ms\"
        sequence unasked moved page own bell slow
        op unasked { get \"/unasked\" { expect contains=\"zebra\" } }
        op moved { post \"/moved\" form=\"a=1\" { expect contains=\"arrived\" } }
        op page { get \"/page\" { assets; count \"img.thumb\" mean=10 within=0.5 } }
        op own { get \"/own\" { header \"User-Agent\" \"me\"; header \"Accept\" \"text/plain\" } }
        op bell { get \"/bell\" { take bell json=\"/bell\" }; get \"/p.png\" { expect contains=\"{bell}\" } }
        op slow { get \"/p.png\" { min-bitrate \"1GiB/s\" } }";
    let file = scenario(&folder, &application.url, steps);
    let outcome = bench(&["run", &file, "--no-host", "--json"]);
    let report = outcome.json();
    let of = |name: &str| {
        let operations = report["operations"].as_array().unwrap();
        operations.iter().find(|one| one["name"] == name).unwrap().clone()
    };
    for (name, is_good) in
        [("unasked", false), ("moved", true), ("page", true), ("own", true), ("bell", false), ("slow", false)]
    {
        let of = of(name);
        let (ended, failed) = (of["ended"].as_u64().unwrap(), of["failed"].as_u64().unwrap());
        assert!(ended > 0 && failed == if is_good { 0 } else { ended }, "{name}: {report:#}");
    }
    let count = &of("page")["counts"][0];
    assert_eq!((count["css"].as_str(), count["mean"].as_f64()), (Some("img.thumb"), Some(2.0)), "{count}");
    let reasons = report["reasons"].to_string();
    assert!(
        reasons.contains("page: a page of GET /page holds 2.000 `img.thumb` in the mean of "),
        "{reasons}"
    );
    let failed = report["failed_operations"].to_string();
    for part in ["did not ask whether anything had changed", "it came at ", "does not contain `a\\\\u{1b}b`"]
    {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    // What a terminal would obey is written out.
    assert!(!failed.contains("u001b"), "{failed}");
}

/// A server that lets its answer drip is never silent, and holds nobody all the same.
#[test]
fn an_answer_that_drips_ends_in_time() {
    let folder = Folder::new();
    let dripping = peer(|_, mut stream| {
        if request(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            // Until the other side has had enough.
            while stream.write_all(b".").is_ok() {
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
        }
    });
    let steps = "users 1 { steady \"1s\" }; think fixed \"10ms\"
        client timeout=\"10m\" answer-timeout=\"300ms\"; op a { get \"/\" }";
    let file = scenario(&folder, dripping.trim_end_matches('/'), steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1m"]).json();
    let of = &report["operations"][0];
    assert!(
        of["ended"].as_u64().is_some_and(|count| count >= 2) && of["failed"] == of["ended"],
        "{report:#}"
    );
    assert_eq!(report["requests"]["errors"]["timeout"], of["ended"], "{report:#}");
}

/// What a server has sent comes back byte for byte, though it is no UTF-8.
#[test]
fn bytes_go_back_as_they_came() {
    let folder = Folder::new();
    let (told, asked) = std::sync::mpsc::channel();
    let server = peer(move |_, mut stream| {
        let mut stream_in = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if stream_in.read_until(b'\n', &mut head).is_ok_and(|count| count > 0) {
                    continue;
                }
                return;
            }
            let answer: &[u8] = if head.starts_with(b"GET /first ") {
                b"HTTP/1.1 302 Found\r\nSet-Cookie: a=\xe9\x80 b\r\nLocation: /\xe9?\xff=%41\r\nContent-Length: 0\r\n\r\n"
            } else {
                b"HTTP/1.1 200 OK\r\nX-Token: t\xff\xc3\r\nETag: \"\xe4\"\r\nContent-Length: 8\r\n\r\n<i>\xf6</i>"
            };
            let _ = told.send(head);
            let _ = stream.write_all(answer);
        }
    });
    let steps = "users 1 { steady \"2s\" }; think fixed \"3s\"
        op a {
            get \"/first\" { take token header=\"x-token\"; take word css=i; take part regex=\"<i>(?-u:(.))\" }
            get \"/next/{token}\" { cached; header \"X-Back\" \"{token}\" }
            get \"/next/{token}\" { cached; expect header=\"X-Token: {token}\" contains=\">{word}<\" }
            post \"/\" form=\"w={word}&p={part}\"
        }";
    let file = scenario(&folder, server.trim_end_matches('/'), steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep"]).json();
    assert_eq!(report["operations"][0]["failed"], 0, "{report:#}");
    let asked: Vec<Vec<u8>> = asked.try_iter().collect();
    let shown = |head: &[u8]| head.escape_ascii().to_string();
    let is_asked = |parts: &[&[u8]]| {
        let holds =
            |head: &Vec<u8>| parts.iter().all(|part| head.windows(part.len()).any(|piece| piece == *part));
        assert!(asked.iter().any(holds), "{:#?}", asked.iter().map(|head| shown(head)).collect::<Vec<_>>());
    };
    let cookie = b"\r\nCookie: a=\xe9\x80 b\r\n";
    is_asked(&[b"GET /%E9?%FF=%41 HTTP/1.1\r\n", cookie]);
    is_asked(&[b"GET /next/t%FF%C3 HTTP/1.1\r\n", cookie, b"\r\nX-Back: t\xff\xc3\r\n"]);
    is_asked(&[b"GET /next/t%FF%C3 HTTP/1.1\r\n", b"\r\nIf-None-Match: \"\xe4\"\r\n"]);
    is_asked(&[b"POST / HTTP/1.1\r\n", cookie, b"\r\nContent-Length: 11\r\n"]);
}

/// A server that takes an upload slowly is not silent; one that takes none of it is.
#[test]
fn an_upload_that_moves_on_is_no_silence() {
    let folder = Folder::new();
    let slow = peer(|number, mut stream| {
        if !request(&mut stream) {
            return;
        }
        if number > 1 {
            return std::thread::park();
        }
        let mut left = 40 << 20;
        let mut piece = vec![0; 256 << 10];
        while left > 0 {
            left -= stream.read(&mut piece).unwrap().min(left);
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        answer(&mut stream, "200 OK", "");
    });
    let steps = "users 1 { steady \"100ms\" }; think fixed \"1s\"; client timeout=\"1s\"
        op a { post \"/\" { upload f size=\"40MiB\" } }";
    let file = scenario(&folder, slow.trim_end_matches('/'), steps);
    for is_taken in [true, false] {
        // Connection 0 is the look before the run.
        let report = bench(&["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1m"]).json();
        let of = &report["operations"][0];
        assert_eq!(
            (of["ended"].as_u64(), of["failed"].as_u64()),
            (Some(1), Some(u64::from(!is_taken))),
            "{report:#}"
        );
    }
}

/// With a share that has to conform, a slow answer is one that does not, and no failure.
#[test]
fn a_share_of_answers_keeps_its_bit_rate() {
    let folder = Folder::new();
    let application = Application::new(|_| ok("", "a page"));
    let steps = |due: &str| {
        format!(
            "users 2 {{ steady \"500ms\" }}; think fixed \"10ms\"; sequence fast slow
            op fast conforming=\"50%\" {{ get \"/\" {{ min-bitrate \"1B/s\" }} }}
            op slow conforming=\"{due}\" {{ get \"/\" {{ min-bitrate \"1TiB/s\" }} }}"
        )
    };
    for (due, is_met) in [("0%", true), ("99.5%", false)] {
        let file = scenario(&folder, &application.url, &steps(due));
        let outcome = bench(&["run", &file, "--no-host", "--json", "--no-keep"]);
        let report = outcome.json();
        for (place, share) in [(0, 1.0), (1, 0.0)] {
            let of = &report["operations"][place];
            assert_eq!(
                (of["failed"].as_u64(), of["conforming"]["share"].as_f64()),
                (Some(0), Some(share)),
                "{of}"
            );
            assert_eq!(of["conforming"]["answers"], of["ended"], "{of}");
        }
        let missed = report["reasons"].to_string();
        let part = "slow: 0.00 % of ";
        assert_eq!(
            missed.contains(part) && missed.contains("under the target of 99.5 %"),
            !is_met,
            "{missed}"
        );
    }
}

/// A second answer behind the first is not the answer to what is asked next.
#[test]
fn bytes_behind_an_answer_fail_the_run() {
    let folder = Folder::new();
    // The head of another answer stands where the body of the first has ended.
    let application = Application::new(|_| {
        ("200 OK", "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nX: ".to_owned(), "wrong".to_owned())
    });
    let steps = "users 2 { steady \"1s\" }; think fixed \"10ms\"; op a { get \"/two\"; get \"/\" { expect contains=\"ok\" } }";
    let file = scenario(&folder, &application.url, steps);
    let outcome = bench(&["run", &file, "--no-host", "--json"]);
    let report = outcome.json();
    assert_eq!(report["operations"][0]["failed"], 0, "{report:#}");
    assert!(report["requests"]["surplus"].as_u64().is_some_and(|count| count > 1), "{report:#}");
    assert!(report["reasons"].to_string().contains("bytes came behind a complete answer"), "{report:#}");
    assert!(matches!(outcome.code, 98 | 99), "{}", outcome.stderr);
}

/// What an application has answered.
#[derive(Default)]
struct Answered {
    statuses: BTreeMap<String, u64>,
    bytes: u64,
    /// Resources that were held, and those that were missing.
    held: u64,
    missing: u64,
}

impl Answered {
    fn count(&mut self, (status, lines, text): &Reply) {
        let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n", text.len());
        *self.statuses.entry(status[..3].to_owned()).or_default() += 1;
        self.bytes += (head.len() + text.len()) as u64;
    }
}

/// Where a resource of a page fails, the operation fails; the others are answered all the same, count, and come over the same
/// connections.
#[test]
fn figures_equal_the_servers_where_a_resource_fails() {
    let counted = Arc::new((Mutex::new(Answered::default()), Condvar::new()));
    let (folder, of_server) = (Folder::new(), counted.clone());
    let application = Application::new(move |asked| {
        let (counted, changed) = &*of_server;
        let mut counted = counted.lock().unwrap();
        let reply = match asked.line.as_str() {
            "GET /" => ok("", "<img src=/a><img src=/b><img src=/missing><img src=/c>"),
            "GET /missing" => {
                counted.missing += 1;
                changed.notify_all();
                ("404 Not Found", String::new(), "not here".to_owned())
            }
            // Under way until one of each page before them is known to be missing.
            "GET /a" | "GET /b" => {
                counted.held += 1;
                let until = counted.held.div_ceil(2);
                counted = changed.wait_while(counted, |counted| counted.missing < until).unwrap();
                ok("", "held")
            }
            _ => ok("", "picture"),
        };
        counted.count(&reply);
        reply
    });
    let steps = "users 2 { steady \"500ms\" }; think fixed \"10ms\"; client connections=3; op a { get \"/\" { assets } }";
    let file = scenario(&folder, &application.url, steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1m"]).json();
    let (of, requests) = (&report["operations"][0], &report["requests"]);
    let counted = counted.0.lock().unwrap();
    let pages = counted.missing;
    assert!(pages > 2 && of["ended"] == pages && of["failed"] == pages, "{pages} pages: {report:#}");
    assert_eq!(requests["statuses"], serde_json::json!({ "200": 4 * pages, "404": pages }));
    assert_eq!(requests["statuses"], serde_json::json!(counted.statuses));
    assert_eq!((&requests["answered"], &requests["failed"]), (&(5 * pages).into(), &pages.into()));
    assert_eq!((&requests["unmeasured"], &requests["bytes"]), (&0.into(), &counted.bytes.into()));
    assert_eq!(requests["connects"], 6, "{requests:#}");
    let reason = &report["failed_operations"][0]["reason"];
    assert!(reason.as_str().is_some_and(|reason| reason.contains("/missing")), "{reason}");
}

/// What is under way at the end, and when somebody interrupts, is counted: the server has it in its log.
#[test]
fn what_is_under_way_at_the_end_is_counted() {
    for is_interrupted in [false, true] {
        let (folder, held) = (Folder::new(), Arc::new(Mutex::new(0)));
        let of_server = held.clone();
        let silent = peer(move |_, mut stream| {
            while request(&mut stream) {
                let mut held = of_server.lock().unwrap();
                *held += 1;
                // The page, and none of its resources.
                if *held == 1 {
                    answer(&mut stream, "200 OK", "<img src=/a><img src=/b><img src=/c>");
                }
            }
        });
        let steady = if is_interrupted { "1m" } else { "300ms" };
        let steps = format!(
            "users 1 {{ steady \"{steady}\" }}; think fixed \"1s\"; client connections=3; op a {{ get \"/\" {{ assets }} }}"
        );
        let file = scenario(&folder, silent.trim_end_matches('/'), &steps);
        let mut command = command();
        command.args(["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1s"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        if is_interrupted {
            wait_for(|| (*held.lock().unwrap() == 4).then_some(()), "requests that are under way");
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        let report: serde_json::Value = serde_json::from_slice(&child.output_in_time().stdout).unwrap();
        let requests = &report["requests"];
        // What somebody has interrupted has not failed, and took nobody knows how long.
        let (failed, interrupted) = if is_interrupted { (0, 3) } else { (3, 0) };
        assert_eq!((&requests["answered"], &requests["failed"]), (&1.into(), &failed.into()), "{report:#}");
        assert_eq!(requests["interrupted"], interrupted, "{report:#}");
        assert_eq!(
            (&requests["without_answer"], &requests["response"]["count"]),
            (&failed.into(), &(1 + failed).into())
        );
        assert_eq!(requests["errors"].as_object().unwrap().contains_key("unanswered"), !is_interrupted);
        assert_eq!(report["operations"][0]["failed"], u64::from(!is_interrupted), "{report:#}");
    }
}

#[test]
fn files_are_written_the_one_way() {
    let folder = Folder::new();
    let file = folder.write("draft.kdl", "target   \"http://a\"\nusers 2 {\nsteady \"1m\"\n}\n");
    let outcome = bench(&["fmt", "--check", &file]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.stdout.contains(&format!("not formatted; run `tidegate bench fmt {file}`")),
        "{}",
        outcome.stdout
    );
    assert_eq!(bench(&["fmt", &file]).code, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "target \"http://a\"\nusers 2 {\n    steady \"1m\"\n}\n");
    assert_eq!(bench(&["fmt", "--check", &file]).code, 0);
    let broken = folder.write("broken.kdl", "users 2 {\n");
    let outcome = bench(&["fmt", &broken]);
    assert!(outcome.code == 1 && outcome.stderr.contains(":1:9: error"), "{}", outcome.stderr);
    assert_eq!(bench(&["fmt"]).code, 2);
}

/// Sockets that a process has open.
fn open_connections(pid: u32) -> usize {
    let entries =
        fs::read_dir(format!("/proc/{pid}/fd")).map(|entries| entries.filter_map(Result::ok).collect());
    let entries: Vec<fs::DirEntry> = entries.unwrap_or_default();
    let is_socket = |entry: &&fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    };
    entries.iter().filter(is_socket).count()
}
