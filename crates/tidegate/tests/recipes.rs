//! The settings in `examples/recipes` do what they say: each names its files (`//+`) and requests with a part of what
//! `explain` has to say of them (`//?`). Where that is an answer of the server itself, a server that runs gives it too. What
//! such a server sends holds the text behind a `//<`; a file of `//+` holds its own name.

mod running;

use running::{Folder, Server, WAIT, run};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// Folders outside of the repository that recipes name.
const PLACES: [&str; 4] = ["/srv/", "/run/", "/var/lib/", "/etc/tidegate/"];

fn recipes() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/recipes");
    let mut recipes: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    recipes.sort();
    recipes
}

/// A request of a recipe.
struct Asked<'t> {
    method: &'t str,
    url: &'t str,
    /// Further arguments of `explain`.
    arguments: Vec<String>,
    expected: &'t str,
}

fn asked(line: &str) -> Asked<'_> {
    let (request, expected) = line.split_once(" => ").unwrap_or_else(|| panic!("{line}: no =>"));
    let mut words = request.split_whitespace();
    let (method, url) = (words.next().unwrap(), words.next().unwrap());
    let field = |word: &str| match word.split_once(':') {
        Some((name, value)) => format!("{name}: {value}"),
        None => word.to_owned(),
    };
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        arguments.push(word.to_owned());
        let value = words.next().unwrap();
        arguments.push(if word == "-H" { field(value) } else { value.to_owned() });
    }
    Asked { method, url, arguments, expected }
}

/// The answer of a server that runs.
fn served(server: &str, asked: &Asked<'_>) -> String {
    let (host, path) = asked.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let fields: Vec<_> = asked.arguments.iter().filter(|word| word.contains(": ")).cloned().collect();
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let method = asked.method;
    write!(stream, "{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn every_recipe_does_what_it_says() {
    let recipes = recipes();
    assert!(recipes.len() >= 20, "only {}", recipes.len());
    let mut wrong = Vec::new();
    for recipe in recipes {
        let name = recipe.file_stem().unwrap().to_str().unwrap();
        let folder = Folder::new(name);
        let mut text = fs::read_to_string(&recipe).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for place in PLACES {
            for before in ["\"", "unix:"] {
                let here = format!("{before}{}{place}", folder.0.display());
                text = text.replace(&format!("{before}{place}"), &here);
            }
        }
        for file in lines.iter().filter_map(|line| line.strip_prefix("//+ ")) {
            fs::create_dir_all(folder.path(file).parent().unwrap()).unwrap();
            folder.write(file, file);
        }
        for (file, content) in lines.iter().filter_map(|line| line.strip_prefix("//= ")?.split_once(' ')) {
            fs::create_dir_all(folder.path(file).parent().unwrap()).unwrap();
            folder.write(file, content);
        }
        folder.write("recipe.kdl", &text);
        let checked = run(&folder, &["check", "--config", "recipe.kdl"]);
        if !checked.stdout.contains("0 errors, 0 warnings") {
            wrong.push(format!("{name}: {}{}", checked.stdout, checked.stderr));
            continue;
        }
        let requests: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("//? ")).map(asked).collect();
        assert!(requests.len() > 1, "{name} asks for nothing");
        // What runs applications is not started for the sake of what they are not asked.
        // Nor is an authority asked for certificates.
        let may_run = !text.contains("\npool ") && !text.contains("\nacme ");
        let port_free = text
            .replace("listen \":80\"", "listen \"127.0.0.1:0\"")
            .replace("listen \":9180\"", "listen \"127.0.0.1:0\"");
        let server = may_run.then(|| Server::with_config(&folder, &format!("workers 1\n{port_free}")));
        for asked in lines.iter().filter_map(|line| line.strip_prefix("//< ")).map(asked) {
            let server = server.as_ref().unwrap_or_else(|| panic!("{name}: no server runs"));
            let answer = served(&server.address, &asked);
            if !answer.contains(asked.expected) {
                wrong.push(format!(
                    "{name}: {} {}: no {:?} in\n{answer}",
                    asked.method, asked.url, asked.expected
                ));
            }
        }
        for asked in &requests {
            let mut arguments = vec!["explain", "--config", "recipe.kdl", asked.method, asked.url];
            arguments.extend(asked.arguments.iter().map(String::as_str));
            let explained = run(&folder, &arguments);
            if !explained.stdout.contains(asked.expected) {
                let (method, url, expected) = (asked.method, asked.url, asked.expected);
                wrong.push(format!(
                    "{name}: {method} {url}: no {expected:?} in\n{}{}",
                    explained.stdout, explained.stderr
                ));
            }
            let status = asked.expected.strip_prefix("answer: ");
            let is_local = !asked.arguments.iter().any(|word| word == "--from");
            if let (Some(server), Some(status), true) = (&server, status, is_local) {
                let answer = served(&server.address, asked);
                let found = answer.get(9..12).unwrap_or_default();
                if found != status {
                    wrong.push(format!("{name}: {} {}: served {found}", asked.method, asked.url));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_names_every_recipe() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let page = fs::read_to_string(page).unwrap();
    for recipe in recipes() {
        let name = recipe.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            page.contains(&format!("(../examples/recipes/{name})")),
            "docs/recipes.md does not name {name}"
        );
    }
}
