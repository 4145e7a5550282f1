//! The table of directives holds to what it says: examples load, defaults are of their type, the pages that
//! are written from it are up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_config::directive::{Context, Directive, Inheritance};
use tidegate_config::{directives, format, json_schema, load_str, reference};

/// A document that holds the text in a block of a context.
fn within(context: Context, text: &str) -> String {
    let listen = "listen \"127.0.0.1:1\"\n";
    let site = "site \"example.com\" { respond 200 }\n";
    match context {
        Context::Top if text.starts_with("listen") => format!("{text}\n{site}"),
        Context::Top if text.starts_with("site") => format!("{listen}{text}\n"),
        Context::Top => format!("{text}\n{listen}{site}"),
        Context::Listen if ["mode", "owner", "group"].iter().any(|name| text.starts_with(name)) => {
            format!("listen \"unix:/tmp/x\" {{ {text} }}\n{site}")
        }
        Context::Listen => format!("listen \"127.0.0.1:1\" {{ {text} }}\n{site}"),
        Context::Limits => format!("limits {{ {text} }}\n{listen}{site}"),
        Context::FileCache => format!("file-cache {{ {text} }}\n{listen}{site}"),
        Context::Site => {
            let is_answer =
                ["root", "redirect", "respond", "status"].iter().any(|name| text.starts_with(name));
            let root = if is_answer { "" } else { "root \".\"" };
            format!("{listen}site {{ {root}\n{text}\n }}\n")
        }
        Context::Route => {
            format!("{listen}site {{ root \".\"\n route \"/x/*\" {{ {text} }}\n }}\n")
        }
        Context::Listing => format!("{listen}site {{ root \".\"; listing {{ {text} }} }}\n"),
        Context::Upstream => {
            let member = if text.starts_with("member") { "" } else { "member \"127.0.0.1:3000\"\n" };
            format!("{listen}upstream \"app\" {{ {member}{text} }}\n{site}")
        }
        Context::Acme => format!("acme {{ {text} }}\n{listen}{site}"),
        Context::Tls => format!("{listen}site {{ root \".\"; tls {{ {text} }} }}\n"),
        Context::Pool => {
            let is_kind =
                ["command", "php", "cgi-stubs", "address"].iter().any(|name| text.starts_with(name));
            let kind = match text {
                _ if is_kind => "",
                _ if text.starts_with("temporary") => "php\n",
                _ => "command \"/bin/sh\"\n",
            };
            format!("{listen}pool \"app\" {{ {kind}{text} }}\n{site}")
        }
        Context::Cgi => format!("{listen}site {{ root \".\"; route \"/c/*\" {{ cgi {{ {text} }} }} }}\n"),
        Context::Fastcgi => format!("{listen}site {{ root \".\"; fastcgi \"127.0.0.1:1\" {{ {text} }} }}\n"),
        Context::Scgi => format!("{listen}site {{ root \".\"; scgi \"127.0.0.1:1\" {{ {text} }} }}\n"),
        Context::Proxy => {
            let scheme = if text.starts_with("tls") { "https" } else { "http" };
            format!("{listen}site {{ proxy \"{scheme}://127.0.0.1:1\" {{ {text} }} }}\n")
        }
        Context::Compress => format!("{listen}site {{ root \".\"; compress {{ {text} }} }}\n"),
    }
}

#[track_caller]
fn loads(directive: &Directive, context: Context, text: &str) {
    let document = within(context, text);
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let loaded = load_str("example.kdl", &document, base, &BTreeMap::new());
    // The page of an example need not exist.
    let mut said = loaded.diagnostics.iter().filter(|found| !found.message.starts_with("the error page"));
    assert!(said.next().is_none(), "{}: {document}\n{}", directive.name, loaded.render(false));
    assert!(loaded.settings.is_some());
}

#[test]
fn every_example_loads_wherever_it_may_stand() {
    for directive in directives::all() {
        for context in directive.contexts {
            loads(directive, *context, directive.example);
        }
    }
}

#[test]
fn every_default_loads_and_changes_nothing() {
    for directive in directives::all() {
        let Some(default) = directive.default else { continue };
        let context = directive.contexts[0];
        loads(directive, context, default);
        if directive.inheritance == Inheritance::None && context != Context::Top {
            continue;
        }
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        let load = |text: &str| {
            let mut settings = load_str("s", text, base, &BTreeMap::new()).settings.expect("it loads");
            // Where things stand differs; what they are must not.
            settings.listeners.clear();
            let sites: Vec<_> = settings.sites.drain(..).collect();
            let actions: Vec<_> =
                sites.iter().flat_map(|site| &site.routes).map(|route| route.action.clone()).collect();
            (settings, actions)
        };
        let tail = "listen \"127.0.0.1:1\"\nsite { root \".\" }\n";
        assert_eq!(load(&format!("{default}\n{tail}")), load(tail), "{}", directive.name);
    }
}

#[test]
fn every_row_is_complete() {
    for directive in directives::all() {
        assert!(!directive.doc.is_empty() && !directive.example.is_empty(), "{}", directive.name);
        assert!(directive.example.starts_with(directive.name), "{}", directive.name);
        assert!(!directive.contexts.is_empty(), "{}", directive.name);
        assert_eq!(format(directive.example).as_deref(), Ok(format!("{}\n", directive.example).as_str()));
        for context in directive.contexts {
            let same = directives::in_context(*context).filter(|other| other.name == directive.name).count();
            assert_eq!(same, 1, "{} stands once {}", directive.name, context.place());
        }
    }
}

#[test]
fn the_pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages: [(PathBuf, String); 2] =
        [(folder.join("settings.md"), reference()), (folder.join("settings.schema.json"), json_schema())];
    for (path, text) in pages {
        if std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, text).unwrap();
        } else {
            let written = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                written == text,
                "{} is out of date: run `UPDATE=1 cargo test -p tidegate-config`",
                path.display()
            );
        }
    }
}
