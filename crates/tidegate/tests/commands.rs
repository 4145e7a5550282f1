//! What the documents have people type is typed: each `tidegate` command in a block of README.md and `docs/` runs, beside a
//! server where it speaks to one, in a folder where what it names is there.
//!
//! Addresses and paths are those of the test, and loads are short. `docs/first-hour.md` is played by `cargo xtask first-hour`.

mod running;

use running::{Folder, Server, command, get, run};
use std::fs;
use std::path::{Path, PathBuf};

/// What is not run here, and why.
const APART: [(&str, &str); 12] = [
    ("docs --serve", "serves until it is ended, and this program is built without the site"),
    ("tidegate tail", "goes on until it is ended: `tests/live.rs` has it"),
    ("tidegate cancel 4711", "wants a request under way: `tests/live.rs` has one"),
    ("bench idle", "15,000 connections: the tests of the bench have fewer"),
    ("https://", "wants a server with TLS: the tests of the bench have one"),
    ("bench urls", "wants an access log: the tests of the bench have one"),
    ("bench har", "wants a recording: the tests of the bench have one"),
    ("bench gate", "wants runs that were kept: the tests of the bench have some"),
    ("--agents ssh:", "wants machines that ssh reaches: the tests of the bench have an ssh that stays here"),
    ("--agents host1", "wants machines: the tests of the bench have agents on this one"),
    ("bench serve", "serves until it is ended: the tests of the bench have it"),
    ("--from urls.txt", "wants a list for the server: `tests/caches.rs` has one"),
];

/// What stands in the folder: the settings by all names that the documents have for them.
const SETTINGS: &str = r#"
listen "127.0.0.1:0" { h2c }
upstream "backends" { member "10.0.0.1:3000"; member "10.0.0.2:3000" }
cache "main" { memory "4MiB" }
pool "php" { command "./app"; processes min=1 max=1 }
site "example.com" { root "site"; route "/.perf" { status }; route "/app/*" { respond 200 } }
site {
    root "site"
    cache "main"
    route "/app/*" { proxy "http://backends" }
    route "*.php" { fastcgi "php" }
}
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands of a page, with their lines.
fn commands(page: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let (mut found, mut is_typed, mut is_block) = (Vec::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim().strip_prefix("```") {
            is_block = !is_block;
            is_typed = is_block && language == "sh";
            continue;
        }
        let line = line.trim();
        let typed = line.strip_prefix("$ ").or(is_typed.then_some(line)).filter(|_| is_block);
        if let Some(typed) = typed.filter(|typed| typed.starts_with("tidegate ")) {
            let typed = typed.split(" #").next().unwrap_or_default().trim();
            found.push((format!("{page}:{}", number + 1), typed.to_owned()));
        }
    }
    found
}

/// What stands for the scenario of the documents: theirs takes minutes.
const SCENARIO: &str = "target \"http://127.0.0.1:8080\"; users 1 { steady \"200ms\" }; think fixed \"10ms\"; flow { get \"/\" }";

/// A folder in which the documents' files are.
fn ground() -> Folder {
    let folder = Folder::new("typed");
    for path in ["site", "srv/wordpress"] {
        fs::create_dir_all(folder.path(path)).unwrap();
    }
    folder.write("site/index.html", "a page");
    folder.write("app", "#!/bin/sh\nexec sleep 1000\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path("app"), mode).unwrap();
    for name in ["tidegate.kdl", "site.kdl", "run.kdl"] {
        folder.write(name, SETTINGS);
    }
    folder.write("shop.kdl", SCENARIO);
    folder.write("visitors.kdl", &SCENARIO.replace("users 1", "rate \"50/s\""));
    folder.write("workers.kdl", "run \"shop.kdl\" { set USERS \"1\" \"2\" }\n");
    for name in ["20261124-042358-shop", "20261124-042413-shop"] {
        fs::create_dir_all(folder.path(&format!("runs/{name}"))).unwrap();
        folder
            .write(&format!("runs/{name}/summary.json"), "{ \"scenario\": \"shop\", \"verdict\": \"PASS\" }");
    }
    fs::create_dir_all(folder.path("examples/recipes")).unwrap();
    for name in ["site", "tidegate.kdl"] {
        let from = repository().join("examples").join(name);
        std::os::unix::fs::symlink(from, folder.path("examples").join(name)).unwrap();
    }
    let recipe = fs::read_to_string(repository().join("examples/recipes/wordpress.kdl")).unwrap();
    let here = recipe.replace("\"/srv/", &format!("\"{}/srv/", folder.0.display()));
    folder.write("examples/recipes/wordpress.kdl", &here);
    folder
}

/// The words of a command as a shell parts them; the documents quote with `'` alone.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A load that is short, at a server of the test.
fn shortened(line: &str, server: &str) -> String {
    let url = format!("http://{server}/");
    let mut words: Vec<String> = words(line)
        .into_iter()
        .map(|word| match word.as_str() {
            "URL" | "URL-BEFORE" | "URL-AFTER" | "http://127.0.0.1:8080/" | "http://127.0.0.1:8081" => {
                url.clone()
            }
            "10s" | "30s" | "5s" | "60s" => "200ms".to_owned(),
            "500:50000:x1.5" => "50:100:x1.5".to_owned(),
            "5000" => "50".to_owned(),
            _ => word,
        })
        .collect();
    if line.contains("bench peak") {
        words.extend(["--from", "20", "--to", "40", "-t", "200ms"].map(str::to_owned));
    }
    let takes_target = line.contains("bench run") || line.contains("bench queue") && line.contains(" -- ");
    if takes_target && !line.contains("--target") {
        words.extend(["--target".to_owned(), url]);
    }
    words.join(" ")
}

/// Runs one; returns what is wrong.
fn tried(line: &str) -> Option<String> {
    let folder = ground();
    let line = line.strip_prefix("tidegate ").unwrap();
    if let Some(arguments) = line.strip_prefix("serve ") {
        let arguments = arguments.replace("/srv/www", "site").replace("0.0.0.0:8080", "127.0.0.1:0");
        let arguments = arguments.replace("/etc/tidegate/", "");
        let server =
            Server::start(&folder, &words(&arguments).iter().map(String::as_str).collect::<Vec<_>>());
        let body = get(&server.address, "/index.html").unwrap();
        return (body != "a page").then(|| format!("served {body:?}"));
    }
    let mut server = Server::spawn(&folder, command(&folder, &["serve", "--config", "run.kdl"]));
    server.control = Some(folder.path("tidegate.sock").display().to_string());
    let is_load = line.starts_with("bench ");
    let line = if is_load { shortened(line, &server.address) } else { line.to_owned() };
    let arguments = words(&line);
    let outcome = run(&folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    // A machine that is busy is no fault of a load; the tests of the bench look at its figures.
    let is_done = outcome.code == Some(0) || is_load && matches!(outcome.code, Some(98 | 99));
    let is_said = !outcome.stdout.is_empty() || line.starts_with("fmt ") || line.starts_with("bench fmt ");
    if is_done && is_said {
        return None;
    }
    Some(format!("{:?}: {}{}", outcome.code, outcome.stdout, outcome.stderr))
}

#[test]
fn what_the_documents_have_people_type_runs() {
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(repository().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "first-hour.md" {
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    let (mut wrong, mut met, mut tried_already) = (Vec::new(), Vec::new(), Vec::new());
    for (place, line) in pages.iter().flat_map(|page| commands(page)) {
        if let Some((part, _)) = APART.iter().find(|(part, _)| line.contains(part)) {
            met.push(*part);
        } else if !tried_already.contains(&line) {
            if let Some(problem) = tried(&line) {
                wrong.push(format!("{place}: {line}\n{problem}"));
            }
            tried_already.push(line);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried_already.len() >= 35, "only {} commands were found", tried_already.len());
    for (part, reason) in APART {
        assert!(met.contains(&part), "no command has `{part}` any more ({reason})");
    }
}
