//! Functions in JavaScript that a scenario calls.

use super::peers::{Folder, Outcome, bench, command};
use super::scenarios::{Application, Asked, Reply, ok, scenario};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Stdio;
use tidegate_testkit::{InTime, wait_for};

const SHOP: &str = r#"
const KEY = "secret";
export function pick({ response }) {
    const items = JSON.parse(response.body).items;
    return items.filter((item) => item.stock > 0).at(-1).id;
}
export function order({ vars, user, operation }) {
    const body = JSON.stringify({ item: vars.item, by: user, in: operation, note: "two\nlines" });
    return { body, signature: tidegate.hmacSha256(KEY, body) };
}
export function isRight({ response, vars }) {
    const answer = JSON.parse(response.body);
    if (answer.item !== vars.item) return `the item is ${answer.item}, not ${vars.item}`;
    return response.headers["x-kind"] === "order";
}
export const choose = ({ vars }) => (vars.item === "b" ? "order" : undefined);
"#;

/// Lists what there is, and takes orders that are signed.
fn shop(asked: &Asked) -> Reply {
    if asked.line.starts_with("GET /items") {
        return ok("", r#"{"items":[{"id":"a","stock":0},{"id":"b","stock":2},{"id":"c","stock":0}]}"#);
    }
    let body = String::from_utf8_lossy(asked.body()).into_owned();
    let is_whole = body.contains("two\\nlines") && body.contains("\"in\":\"order\"");
    if asked.field("x-signature").is_none_or(|signature| signature.len() != 64) || !is_whole {
        return ("403 Forbidden", String::new(), String::new());
    }
    ok("X-Kind: order\r\n", "{\"item\":\"b\"}")
}

const REST: &str = "users 3 { steady \"1s\" }\nthink fixed \"1ms\"\nscript \"shop.js\"\n\
    op list { get \"/items\" { call pick item }; next choose }\n\
    op order { call order body signature; post \"/orders\" body=\"{body}\" type=\"application/json\" {\n\
    header \"X-Signature\" \"{signature}\"; check isRight } }\n";

fn run(ground: &Folder, target: &str, rest: &str, script: &str) -> Outcome {
    ground.write("shop.js", script);
    let file = scenario(ground, target, rest);
    let kept = ground.0.join("run").display().to_string();
    bench(&["run", &file, "--json", "--no-host", "--out", &kept])
}

#[test]
fn a_script_picks_signs_checks_and_chooses() {
    let ground = Folder::new();
    let application = Application::new(shop);
    // Without `next` nobody would order: its share is nothing.
    let rest = format!("{REST}mix {{ list 1; order 0 }}");
    let outcome = run(&ground, &application.url, &rest, SHOP);
    let report = outcome.json();
    assert_eq!(report["failed_operations"], serde_json::json!([]), "{report:#}");
    assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
    let asked = application.asked();
    let orders = asked.iter().filter(|asked| asked.line == "POST /orders").count();
    let lists = asked.len() - orders;
    assert!(orders > 3 && orders.abs_diff(lists) <= 3, "{orders} orders, {lists} lists");
    assert!(!outcome.stderr.contains("points off"), "{}", outcome.stderr);
    assert_eq!(fs::read_to_string(ground.0.join("run/scenario.script.js")).unwrap(), SHOP);
}

#[test]
fn whatever_a_script_does_fails_operations_and_is_told_with_its_place() {
    let ground = Folder::new();
    let application = Application::new(shop);
    let script = "export function bad({ vars }) {\n    return vars.item.length;\n}\n\
         export const spin = () => { for (;;); };\nexport const no = () => 'it is old';\n\
         export const other = () => ({ x: 1, y: 2 });\nexport const nowhere = () => 'elsewhere';";
    let rest = "users 1 { steady \"1s\" }\nthink fixed \"1ms\"\nscript \"shop.js\" within=\"20ms\"\n\
        op a { call bad item; get \"/items\" }\nop b { get \"/items\" { call spin } }\nop c { get \"/items\" { check no } }\n\
        op d { get \"/items\" { call other x } }\nop e { get \"/items\"; next nowhere }\nop f { get \"/items?{item}\" }\n\
        sequence a b c d e f";
    let outcome = run(&ground, &application.url, rest, script);
    assert!(matches!(outcome.code, 98 | 99), "{}", outcome.stderr);
    let report = outcome.json();
    let failed = report["failed_operations"].as_array().unwrap();
    for (operation, failure, part) in [
        ("a", "script", "`bad` (shop.js:2:"),
        ("b", "script", "`spin` (shop.js:4:"),
        ("b", "script", "took more than 20.0 ms of the processor"),
        ("c", "check", "`no`: it is old"),
        ("d", "script", "`other` (shop.js:6:"),
        ("d", "script", "returned `y`, which its `call` does not name"),
        ("e", "script", "`nowhere` (shop.js:7:"),
        ("e", "script", "returned `elsewhere`, which is no operation"),
        ("f", "check", "`{item}` holds nothing yet"),
    ] {
        let of = failed.iter().find(|failed| failed["operation"] == operation);
        let of = of.unwrap_or_else(|| panic!("{operation} has not failed: {report:#}"));
        let reason = of["reason"].as_str().unwrap();
        assert!(of["failure"] == failure && reason.contains(part), "{operation}: {of:#}");
    }
}

/// The engine cannot end a function of the language in the middle, and nobody can end a thread: the run ends without it.
#[test]
fn a_call_that_cannot_be_ended_ends_no_run() {
    let (ground, application) = (Folder::new(), Application::new(shop));
    let script = "export const hang = ({ user }) => {\n    const all = [];\n    if (user === 1) all.length = 4294967295;\n    all.reverse();\n};";
    ground.write("shop.js", script);
    let run = |steady: &str| {
        let rest = format!(
            "users 2 {{ steady \"{steady}\" }}\nthink fixed \"10ms\"\nscript \"shop.js\"\nop a {{ call hang; get \"/items\" }}"
        );
        let file = scenario(&ground, &application.url, &rest);
        let mut command = command();
        command.args([
            "run",
            &file,
            "--threads",
            "2",
            "--no-host",
            "--no-keep",
            "--json",
            "--grace",
            "100ms",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for is_interrupted in [false, true] {
        let before = application.asked().len();
        let child = run(if is_interrupted { "1h" } else { "1500ms" });
        if is_interrupted {
            // The other user goes on.
            wait_for(|| (application.asked().len() > before + 3).then_some(()), "requests");
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        let output = child.output_in_time();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let code = if is_interrupted { 130 } else { 98 };
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        for part in
            ["a call of `hang` (shop.js:1:", " s and cannot be ended; what its users did since is not in the"]
        {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["operations"][0]["succeeded"].as_u64().is_some_and(|count| count > 2), "{report:#}");
    }
}

#[test]
fn mistakes_of_a_script_have_their_places_and_come_all_at_once() {
    let ground = Folder::new();
    ground.write("shop.js", "export const one = () => 1;\nexport const table = {};\n");
    let rest = "users 1 { steady \"1s\" }\nthink fixed \"1ms\"\nscript \"shop.js\"\n\
        op a { call ones item; get \"/{itme}\" { check table }; next none; call one }";
    let check = |file: &str| bench(&["run", file, "--check"]).stderr;
    let told = check(&scenario(&ground, "http://127.0.0.1:1", rest));
    for part in [
        ":5:13: error: shop.js exports no `ones`",
        "did you mean `one`?",
        "did you mean `{item}`?",
        "`table` of shop.js is no function",
        "shop.js exports no `none`",
        "`call` stands behind the last step",
    ] {
        assert!(told.contains(part), "no {part}: {told}");
    }
    ground.write("shop.js", "export const one = () => 1;\nexport function two( {\n");
    let told = check(&scenario(&ground, "http://127.0.0.1:1", rest));
    let place = format!("{}:", ground.0.join("shop.js").display());
    assert!(told.contains(&place) && told.contains("SyntaxError"), "{told}");
    assert!(told.contains("line 4 of the scenario names this file"), "{told}");
    assert!(!told.contains("exports no"), "what cannot be known is not said: {told}");
    for (script, at, part) in [
        ("\nimport { x } from './x.js';", ":2:19: error: ", "`x.js` is imported; a script is one file"),
        (
            "\n\nfor (;;) Math.abs(1);",
            ":3:15: error: ",
            "what stands outside of its functions took more than 2 s",
        ),
        ("const a = 1;\na.b.c;", ":2:1: error: ", "TypeError: cannot read property 'c' of undefined"),
    ] {
        ground.write("shop.js", script);
        let told = check(&scenario(&ground, "http://127.0.0.1:1", rest));
        let place = format!("{}{at}{part}", ground.0.join("shop.js").display());
        assert!(
            told.starts_with(&place) && told.contains("line 4 of the scenario names this file"),
            "{told}"
        );
    }
    for (line, part) in [
        ("script \"none.js\"", "none.js cannot be read"),
        ("script \"/dev/zero\"", "/dev/zero is no file"),
        ("op b { call f; get \"/\" }", "`call f`: the scenario has no script"),
    ] {
        let rest = format!("users 1 {{ steady \"1s\" }}\nthink fixed \"1ms\"\n{line}\n");
        let told = check(&scenario(&ground, "http://127.0.0.1:1", &rest));
        assert!(told.contains(part), "{line}: {told}");
    }
}

/// Exactly as it stands there, but for less time.
#[test]
fn the_example_of_the_documents_passes() {
    let page = include_str!("../../../../docs/bench.md");
    let block = |begin: &str| {
        let start = page.find(begin).unwrap_or_else(|| panic!("the page has no {begin}"));
        page[start..].split("```").next().unwrap()
    };
    let ground = Folder::new();
    ground.write("shop.js", block("// shop.js"));
    let written = block("scenario \"orders\"");
    let (users, think) = ("users 20 { ramp-up \"5s\"; steady \"1m\" }", "min=\"1s\" max=\"3s\"");
    assert!(written.contains(users) && written.contains(think), "{written}");
    let shorter = written.replace(users, "users 5 { steady \"1s\" }").replace(think, "max=\"20ms\"");
    let (file, shorter) = (ground.write("orders.kdl", written), ground.write("shorter.kdl", shorter));
    let told = bench(&["run", &file, "--check"]);
    assert!(told.code == 0 && told.stdout.contains("is in order"), "{}{}", told.stdout, told.stderr);
    let application = Application::new(|asked| {
        if asked.line == "GET /items" {
            return ok("", r#"{"items":[{"id":"a","stock":0},{"id":"b","stock":2}]}"#);
        }
        let order: serde_json::Value = serde_json::from_slice(asked.body()).unwrap_or_default();
        let is_signed = asked.field("x-signature").is_some_and(|signature| signature.len() == 64);
        match order["item"].as_str().filter(|_| is_signed && order["by"].is_number()) {
            Some(item) => ok("", &serde_json::json!({ "item": item }).to_string()),
            None => ("400 Bad Request", String::new(), String::new()),
        }
    });
    let run = bench(&["run", &shorter, "--target", &application.url, "--json", "--no-host", "--no-keep"]);
    let report = run.json();
    assert_eq!(report["failed_operations"], serde_json::json!([]), "{report:#}");
    for operation in report["operations"].as_array().unwrap() {
        assert!(operation["succeeded"].as_u64().unwrap() > 0, "{operation:#}");
    }
    // A machine that is too busy to keep the users' clocks says so; nothing else may be wrong.
    assert!(matches!(run.code, 0 | 98), "{}", run.stderr);
}

/// Where a script takes the time, and nothing is asked of any server, none is blamed.
#[test]
fn who_held_users_up_is_told() {
    let ground = Folder::new();
    let application = Application::new(shop);
    let script = "export const spin = () => { for (;;); };";
    let rest = "users 2 { steady \"1s\" }\ncycle fixed \"5ms\"\nscript \"shop.js\" within=\"50ms\"\n\
        op a { call spin; get \"/items\" }";
    let outcome = run(&ground, &application.url, rest, script);
    assert_eq!(outcome.code, 98, "{}", outcome.stderr);
    let whose = "users were held up by calls of the script, and not by the server";
    assert!(outcome.stderr.contains(whose), "{}", outcome.stderr);
    assert!(application.asked().is_empty());
}
