//! What README.md, ARCHITECTURE.md, `docs/` and `examples/` say: every settings example is free of mistakes,
//! and every link and file they name is there.
//!
//! Paths such as `/srv/www` in an example are made in a folder of the test's own. An example that shows only a
//! part of a file gets the `listen` or `site` that it lacks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tidegate_config::{ProcessEnvironment, load_file, load_str};

/// Folders outside of the repository that examples may name.
const PLACES: [&str; 6] = ["/srv/", "/var/", "/run/", "/etc/", "/usr/local/", "/usr/share/"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The pages written by hand, as paths from the repository.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    for entry in fs::read_dir(repository().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    pages
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The blocks between two marks, each with the number of its first line.
fn blocks<'t>(text: &'t str, begin: &str, end: &str) -> Vec<(usize, &'t str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(begin).map(|start| at + start + begin.len()) {
        let stop = start + text[start..].find(end).expect("the block ends");
        found.push((text[..start].lines().count() + 1, &text[start..stop]));
        at = stop;
    }
    found
}

/// A folder in which the paths of an example exist.
struct Ground(PathBuf);

impl Ground {
    fn new(name: &str) -> Ground {
        let path = std::env::temp_dir().join(format!("tidegate-docs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        for folder in ["srv/private", "var/log/tidegate", "run/tidegate", "etc/tidegate"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        fs::create_dir_all(path.join("srv/www")).unwrap();
        let keys = include_str!("../../tidegate-config/tests/example/jwks.json");
        fs::write(path.join("etc/tidegate/jwks.json"), keys).unwrap();
        fs::write(
            path.join("etc/tidegate/staff"),
            "anna:$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0\nben:$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0\n",
        )
        .unwrap();
        fs::write(path.join("etc/tidegate/groups"), "admins: anna\n").unwrap();
        fs::write(path.join("etc/tidegate/url-keys"), "a2V5IG9mIHNpZ25lZCBVUkxzIGluIHRoaXMgdGVzdCE=\n")
            .unwrap();
        fs::write(path.join("etc/tidegate/ldap-password"), "sesame\n").unwrap();
        fs::write(path.join("etc/tidegate/admin.token"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(path.join("etc/tidegate/openid-secret"), "sesame\n").unwrap();
        let key = include_str!("../../tidegate-config/tests/example/session-keys");
        fs::write(path.join("etc/tidegate/session-keys"), key).unwrap();
        fs::write(path.join("srv/www/busy.html"), "<p>Too many at once.").unwrap();
        Ground(path)
    }

    /// The mistakes and warnings of an example; empty when it is sound.
    fn complaints(&self, name: &str, example: &str) -> String {
        let mut text = example.to_owned();
        for place in PLACES {
            for before in ["\"", "\"unix:", ":-"] {
                let here = format!("{before}{}{place}", self.0.display());
                text = text.replace(&format!("{before}{place}"), &here);
            }
        }
        for directive in ["root \"", "alias \""] {
            for (_, folder) in blocks(&text, directive, "\"") {
                let folder = folder.rsplit(":-").next().unwrap_or_default().trim_end_matches('}');
                fs::create_dir_all(self.0.join(folder)).unwrap();
            }
        }
        // Pages for errors have to be there.
        for (_, folder) in blocks(&text, "root \"", "\"") {
            let folder = self.0.join(folder.rsplit(":-").next().unwrap_or_default().trim_end_matches('}'));
            for (_, page) in text
                .lines()
                .filter(|line| line.contains("error-page "))
                .flat_map(|line| blocks(line, "\"/", "\""))
            {
                let page = folder.join(page);
                fs::create_dir_all(page.parent().unwrap()).unwrap();
                fs::write(page, "").unwrap();
            }
        }
        // Programs of hooks have to be there.
        for line in text.lines().filter(|line| line.trim_start().starts_with("on ")) {
            for (_, program) in blocks(line, " run \"", "\"") {
                fs::create_dir_all(Path::new(program).parent().unwrap()).unwrap();
                fs::write(program, "").unwrap();
                fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        // Scripts that a process gets first have to be there.
        for line in text.lines().filter(|line| line.contains("warm-up ")) {
            for (_, root) in blocks(line, "root=\"", "\"") {
                fs::create_dir_all(root).unwrap();
                let quoted = line.split('"').skip(1).step_by(2);
                for target in quoted.filter(|text| text.split('?').next().unwrap().ends_with(".php")) {
                    let name = target.split('?').next().unwrap().trim_start_matches('/');
                    fs::write(Path::new(root).join(name), "").unwrap();
                }
            }
        }
        let has = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
        let (has_listen, has_site) = (has("listen "), has("site "));
        if !has_listen {
            text.push_str("\nlisten \"127.0.0.1:8080\"\n");
        }
        if !has_site {
            text.push_str("\nsite \"example.com\" { respond 200 }\n");
        }
        let mut loaded = load_str(name, &text, &self.0, &ProcessEnvironment);
        // What uses the names of a part stands elsewhere.
        let is_whole = has_listen && has_site;
        loaded.diagnostics.retain(|said| is_whole || !said.message.starts_with("nothing uses"));
        loaded.render(false)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn settings_in_the_documents_are_sound() {
    let ground = Ground::new("settings");
    let mut count = 0;
    for page in pages() {
        for (line, example) in blocks(&read(&page), "```kdl\n", "```") {
            let complaints = ground.complaints(&format!("{page} from line {line}"), example);
            assert!(complaints.is_empty(), "{complaints}");
            count += 1;
        }
    }
    assert!(count > 10, "only {count} examples were found");
}

/// What the page says of applications behind `try` is what r0981 serves, word for word.
#[test]
fn applications_in_static_files_are_those_of_the_transcript() {
    let plain = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let transcript = plain(&read("tests/transcripts/r0981-examples-of-applications.txt"));
    let page = read("docs/static-files.md");
    let (_, section) = page.split_once("## The file if it exists, else the application").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let examples = blocks(section, "```kdl\n", "```");
    assert_eq!(examples.len(), 3);
    for (line, example) in examples {
        let served = example
            .replace("\"/srv/", "\"${DIR}/srv/")
            .replace("unix:/run/php.sock", "${php}")
            .replace("127.0.0.1:3000", "${rails}")
            .replace("127.0.0.1:3001", "${node}");
        assert!(
            transcript.contains(plain(&served).trim()),
            "line {line} of the section is not in r0981:\n{served}"
        );
    }
}

#[test]
fn settings_in_the_sample_site_are_sound() {
    let ground = Ground::new("site");
    let page = read("examples/site/settings.html");
    for (line, example) in blocks(&page, "<pre><code>", "</code></pre>") {
        if !example.starts_with("tidegate ") {
            let complaints = ground.complaints(&format!("settings.html from line {line}"), example);
            assert!(complaints.is_empty(), "{complaints}");
        }
    }
}

#[test]
fn the_sample_settings_are_sound_and_formatted() {
    let path = repository().join("examples/tidegate.kdl");
    let complaints = load_file(&path, &ProcessEnvironment).render(false);
    assert!(complaints.is_empty(), "{complaints}");
    let text = read("examples/tidegate.kdl");
    assert_eq!(tidegate_config::format(&text), Ok(text.clone()), "`tidegate fmt` would change it");
}

#[test]
fn links_between_documents_lead_somewhere() {
    for page in pages().into_iter().chain(["docs/reference/settings.md".to_owned()]) {
        let folder = repository().join(&page).parent().unwrap().to_owned();
        for (line, target) in blocks(&read(&page), "](", ")") {
            let file = target.split('#').next().unwrap_or_default();
            let is_here = file.is_empty() || file.contains("://") || folder.join(file).exists();
            assert!(is_here, "{page}:{line}: there is no {file}");
        }
    }
}

/// The commands that `tidegate --help` names are those that README.md and the sample site explain, and no others.
#[test]
fn pages_explain_the_commands_that_there_are() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("-h").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let names = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let commands: Vec<String> = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(names)
        .filter(|name| name != "help")
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    let readme = read("README.md");
    let site = read("examples/site/index.html");
    let (_, table) = readme.split_once("\n## The commands\n").unwrap();
    let rows = table.split("\n## ").next().unwrap().lines().filter_map(|line| line.strip_prefix("| `"));
    let explained: Vec<String> =
        rows.filter_map(|row| row.split([' ', '`']).next()).map(str::to_owned).collect();
    let shown: Vec<String> =
        blocks(&site, "<tr><td><code>", "</code>").into_iter().map(|(_, name)| name.to_owned()).collect();
    for (page, found) in [("README.md", explained), ("examples/site/index.html", shown)] {
        let missing: Vec<_> = commands.iter().filter(|name| !found.contains(name)).collect();
        let surplus: Vec<_> = found.iter().filter(|name| !commands.contains(name)).collect();
        assert!(missing.is_empty() && surplus.is_empty(), "{page}: missing {missing:?}, surplus {surplus:?}");
    }
    assert!(!help.contains("tunes") && !help.contains("\\\""), "{help}");
}

#[test]
fn links_of_the_sample_site_lead_somewhere() {
    let site = repository().join("examples/site");
    for page in ["index.html", "settings.html", "request.html", "404.html", "downloads/HEADER.html"] {
        let text = read(&format!("examples/site/{page}"));
        for attribute in [" href=\"", " src=\""] {
            for (line, target) in blocks(&text, attribute, "\"") {
                let path = target.split('?').next().unwrap_or_default();
                // What `cargo xtask site` makes need not have been made yet.
                let is_made = path.ends_with(".pdf") || path.ends_with(".png");
                let is_there = site.join(path.trim_start_matches('/')).exists();
                assert!(is_made || is_there, "{page}:{line}: there is no {path}");
            }
        }
    }
}

/// What a page says that is tested is so: each transcript and each file that it names is there.
#[test]
fn every_test_that_security_names_is_there() {
    let text = read("docs/security.md");
    let transcripts: Vec<String> = fs::read_dir(repository().join("tests/transcripts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let is_number = |word: &&str| word.len() == 5 && word[1..].bytes().all(|byte| byte.is_ascii_digit());
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let numbers: Vec<&str> = words.filter(|word| word.starts_with('r')).filter(is_number).collect();
    assert!(numbers.len() > 100);
    let missing = numbers
        .into_iter()
        .filter(|number| !transcripts.iter().any(|name| name.starts_with(&format!("{number}-"))));
    let paths = blocks(&text, "`crates/", "`");
    assert!(paths.len() > 30);
    let gone = paths.into_iter().filter(|(_, path)| !repository().join("crates").join(path).exists());
    let gone: Vec<String> = missing.map(str::to_owned).chain(gone.map(|(_, path)| path.to_owned())).collect();
    assert!(gone.is_empty(), "docs/security.md names what is not there: {gone:?}");
    let rows =
        |line: &&str| line.starts_with("| ") && !line.starts_with("| case") && !line.starts_with("| ---");
    for row in text.lines().filter(rows) {
        let tested = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap().trim();
        assert!(!tested.is_empty(), "nothing tests: {row}");
    }
}

#[test]
fn every_source_that_architecture_names_is_there() {
    let text = read("ARCHITECTURE.md");
    let places =
        ["core", "wire", "http", "io", "modules", "config", "client", "bench", "tls", "stats", "findings"];
    for (line, name) in text.lines().enumerate().flat_map(|(at, line)| {
        let words = line.split('`').skip(1).step_by(2);
        words.filter(|word| word.ends_with(".rs")).map(move |word| (at + 1, word))
    }) {
        let (first, rest) = name.split_once('/').unwrap_or(("", name));
        let candidates = if places.contains(&first) {
            vec![format!("crates/tidegate-{first}/src/{rest}")]
        } else {
            vec![
                name.to_owned(),
                format!(
                    "crates/{}/src/{rest}",
                    if first.starts_with("tidegate") { first } else { "tidegate" }
                ),
                format!("crates/tidegate/src/{name}"),
                format!("crates/tidegate/src/master/{name}"),
                format!("crates/tidegate-modules/src/{name}"),
                format!("crates/tidegate-modules/src/gateway/{name}"),
                format!("crates/tidegate-cache/src/{name}"),
                format!("crates/tidegate-cache/src/{rest}"),
                format!("crates/tidegate-http/src/cache/{name}"),
                format!("crates/tidegate-core/src/{name}"),
                format!("crates/tidegate-core/src/conn/{name}"),
                format!("crates/tidegate-io/src/{name}"),
                format!("crates/tidegate-tls/src/{name}"),
                format!("crates/tidegate-tls/src/acme/{name}"),
            ]
        };
        assert!(
            candidates.iter().any(|path| repository().join(path).exists()),
            "ARCHITECTURE.md:{line}: there is no {name}"
        );
    }
}
