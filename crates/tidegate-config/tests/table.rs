//! The table of directives holds to what it says: examples load, defaults are of their type, the pages that
//! are written from it are up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_config::directive::{Context, Directive};
use tidegate_config::settings::Written;
use tidegate_config::{directives, format, json_schema, load_str, reference};

/// A document that holds the text in a block of a context.
fn within(context: Context, text: &str) -> String {
    let listen = if text.starts_with("cache \"main\"") && context != Context::Top {
        "cache \"main\" { memory \"64MiB\" }\nlisten \"127.0.0.1:1\"\n"
    } else if text.starts_with("login") {
        "users \"staff\" { htpasswd \"staff\" }\nlisten \"127.0.0.1:1\"\n"
    } else if text.starts_with("signed") {
        "url-keys \"downloads\" \"url-keys\"\nlisten \"127.0.0.1:1\"\n"
    } else {
        "listen \"127.0.0.1:1\"\n"
    };
    let site = "site \"example.com\" { respond 200 }\n";
    let uses = "rules \"secure\" { header \"X-A\" \"b\" }\n";
    match context {
        Context::Of(place) => panic!("{} is of no settings", place.place),
        Context::Top if text.starts_with("rules") => {
            format!("{text}\n{listen}site \"example.com\" {{ respond 200; use \"secure\" }}\n")
        }
        Context::Site if text.starts_with("use") => {
            format!("{uses}{listen}site {{ root \".\"\n{text}\n }}\n")
        }
        Context::Route if text.starts_with("use") => {
            format!("{uses}{listen}site {{ root \".\"\n route \"/x/*\" {{ {text} }}\n }}\n")
        }
        Context::Top if text.starts_with("listen") => format!("{text}\n{site}"),
        Context::Top if text.starts_with("site") => format!("{listen}{text}\n"),
        Context::Top => format!("{text}\n{listen}{site}"),
        Context::Listen if ["mode", "owner", "group"].iter().any(|name| text.starts_with(name)) => {
            format!("listen \"unix:/tmp/x\" {{ {text} }}\n{site}")
        }
        Context::Listen => format!("listen \"127.0.0.1:1\" {{ {text} }}\n{site}"),
        Context::Limits => format!("limits {{ {text} }}\n{listen}{site}"),
        Context::RequestLimits => format!(
            "limits {{ head-size \"1MiB\"; target-size \"1MiB\" }}\n{listen}site {{ root \".\"; limits {{ {text} }} }}\n"
        ),
        Context::CacheStore => {
            let memory = if text.starts_with("memory") { "" } else { "memory \"1GiB\"\n" };
            format!(
                "cache \"main\" {{ {memory}{text} }}\n{listen}site {{ proxy \"http://127.0.0.1:2\"; cache \"main\" }}\n"
            )
        }
        Context::Cache => format!(
            "cache \"main\" {{ memory \"64MiB\" }}\n{listen}site {{ proxy \"http://127.0.0.1:2\"; cache \"main\" {{ {text} }} }}\n"
        ),
        Context::FileCache => format!("file-cache {{ {text} }}\n{listen}{site}"),
        Context::Admin => format!("admin {{ {text} }}\n{listen}{site}"),
        Context::Console => format!(
            "users \"staff\" {{ htpasswd \"staff\" }}\nadmin {{ }}\n{listen}site {{ respond 204; login basic \"staff\"\n\
             route \"/c/*\" {{ console {{ {text} }} }} }}\n"
        ),
        Context::Statistics => format!("statistics {{ {text} }}\n{listen}{site}"),
        Context::Site => {
            let is_answer = ["root", "redirect", "respond", "status", "console"]
                .iter()
                .any(|name| text.starts_with(name));
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
        Context::Users => {
            let file = if ["htpasswd", "forward", "tokens", "openid"].iter().any(|own| text.starts_with(own))
            {
                ""
            } else {
                "htpasswd \"staff\"\n"
            };
            format!("{listen}users \"staff\" {{ {file}{text} }}\n{site}")
        }
        Context::Ldap => {
            let base = if text.starts_with("base") { "" } else { "base \"dc=a\"\n" };
            let filter = if text.starts_with("filter") { "" } else { "filter \"(uid={user})\"\n" };
            let ldap = format!("ldap \"ldap://127.0.0.1\" {{ {base}{filter}{text} }}");
            format!("{listen}users \"staff\" {{ {ldap} }}\n{site}")
        }
        Context::Forward => {
            let forward = format!("forward \"https://127.0.0.1:9091/verify\" {{ {text} }}");
            format!("{listen}users \"staff\" {{ {forward} }}\n{site}")
        }
        Context::Tokens => {
            let issuer = if text.starts_with("issuer") { "" } else { "issuer \"i\"\n" };
            let audience = if text.starts_with("audience") { "" } else { "audience \"a\"\n" };
            let keys = if text.starts_with("tls") { "https://id.example.com/keys" } else { "jwks.json" };
            let tokens = format!("tokens \"{keys}\" {{ {issuer}{audience}{text} }}");
            format!("{listen}users \"staff\" {{ {tokens} }}\n{site}")
        }
        Context::Openid => {
            let client = if text.starts_with("client") { "" } else { "client \"a\"\n" };
            let keys = if text.starts_with("session-keys") { "" } else { "session-keys \"session-keys\"\n" };
            let openid = format!("openid \"https://id.example.com\" {{ {client}{keys}{text} }}");
            format!("{listen}users \"staff\" {{ {openid} }}\n{site}")
        }
        Context::Match => {
            let other =
                "match \"own\" { client \"10.0.0.0/8\" }\nvalue \"group\" from=\"{host}\" { \"*\" \"b\" }\n";
            format!("{other}{listen}match \"m\" {{ {text} }}\n{site}")
        }
        Context::Compress => format!("{listen}site {{ root \".\"; compress {{ {text} }} }}\n"),
    }
}

#[track_caller]
fn loads(directive: &Directive, context: Context, text: &str) {
    let mut document = within(context, text);
    if directive.name == "bind" {
        document.insert_str(0, "listen \"127.0.0.1:8080\"\n"); // a site is bound to what there is
    }
    let base = &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example");
    let loaded = load_str("example.kdl", &document, base, &BTreeMap::new());
    // The page of an example need not exist, nor the program that a hook of one runs; nor what stands in other blocks or beside it.
    let absent = [
        "the error page",
        "the program",
        "no `listen` speaks TLS",
        "nobody gets in here",
        "nothing uses",
        "`cache` does nothing here",
        "`encoded-slashes` lets no path",
        "this leads back",
    ];
    let is_absent = |message: &str| absent.iter().any(|what| message.starts_with(what));
    let mut said = loaded.diagnostics.iter().filter(|found| found.is_error() || !is_absent(&found.message));
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
        if context != Context::Top {
            continue;
        }
        let base = &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example");
        let load = |text: &str| {
            let mut settings = load_str("s", text, base, &BTreeMap::new()).settings.expect("it loads");
            // Where things stand differs; what they are must not.
            settings.listeners.clear();
            settings.written = Written::default();
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

/// What stands at the top level, or in a site where it may not, comes down to a route, and changes it.
#[test]
fn every_inheritable_row_changes_a_route() {
    let base = &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example");
    let routes = |top: &str, site: &str| {
        let text = format!(
            "cache \"main\" {{ memory \"64MiB\" }}\nurl-keys \"downloads\" \"url-keys\"\nusers \"staff\" {{ htpasswd \"staff\" }}\nlisten \"127.0.0.1:1\"\n{top}\nsite {{ root \"/\"\n{site}\nroute \"/p/*\" {{ proxy \"http://127.0.0.1:1\" }}\n\
             route \"/x/*\" {{ default-type \"a/b\" }}\n }}\n"
        );
        let loaded = load_str("s", &text, base, &BTreeMap::new());
        let settings = loaded.settings.as_ref().unwrap_or_else(|| panic!("{text}\n{}", loaded.render(false)));
        let mut site = serde_json::to_value(&settings.sites[0]).unwrap();
        forget_origins(&mut site);
        let routes: Vec<_> = site["routes"].as_array().unwrap()[..2].to_vec();
        // Who is believed is said once for a site, and by a route only where it differs; requests have ids in all of it.
        let traced = site["sampling"].clone();
        (routes, [site["trusted_proxies"].clone(), site["has_request_id"].clone(), traced])
    };
    // What does away with others needs others.
    let around = |name: &str| if name == "access" { "deny \"all\"" } else { "" };
    let mut count = 0;
    for directive in directives::all().filter(|directive| directive.inheritance.is_some()) {
        // The site has a root, and the example of `root` is what it is everywhere.
        if ["root", "default-type"].contains(&directive.name) {
            continue;
        }
        let is_in = |context| directive.contexts.contains(&context);
        let found = if is_in(Context::RequestLimits) {
            routes(
                "limits { head-size \"1MiB\"; target-size \"32KiB\" }",
                &format!("limits {{ {} }}", directive.example),
            )
        } else if is_in(Context::Top) {
            routes(directive.example, "")
        } else {
            routes(around(directive.name), directive.example)
        };
        let plain = routes(around(directive.name), "");
        assert_ne!(found, plain, "`{}` changes nothing in a route", directive.name);
        count += 1;
    }
    assert!(count >= 30, "{count}");
}

fn forget_origins(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.remove("origin");
            fields.values_mut().for_each(forget_origins);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(forget_origins),
        _ => {}
    }
}

/// Every directive as its example writes it has the JSON form that the schema describes.
#[test]
fn what_is_in_force_has_the_form_of_the_schema() {
    let folder = std::env::temp_dir().join(format!("tidegate-effective-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    let file = folder.join("example.kdl");
    for directive in directives::all() {
        for context in directive.contexts {
            fs::write(&file, within(*context, directive.example)).unwrap();
            let found = tidegate_config::effective(&file, &BTreeMap::new()).expect("the file is there");
            let found: serde_json::Value = serde_json::from_str(&found).unwrap();
            has_form(&schema, "in-top", &found);
            // What is included stands in the place of `include`, and rules where they are used.
            let name = format!("\"directive\":\"{}\"", directive.name);
            assert!(
                matches!(directive.name, "include" | "rules" | "use") || found.to_string().contains(&name),
                "{found}"
            );
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn has_form(schema: &serde_json::Value, place: &str, list: &serde_json::Value) {
    let known = schema["$defs"][place]["items"]["oneOf"].as_array().unwrap_or_else(|| panic!("no {place}"));
    for found in list.as_array().unwrap() {
        let name = found["directive"].as_str().unwrap();
        let key = known.iter().map(|known| known["$ref"].as_str().unwrap().trim_start_matches("#/$defs/"));
        let key = key.filter(|key| key.ends_with(&format!(".{name}"))).collect::<Vec<_>>();
        let [key] = key.as_slice() else { panic!("{name} in {place}") };
        let form = &schema["$defs"][*key];
        for (field, value) in found.as_object().unwrap() {
            let form = &form["properties"][field];
            assert!(form.is_object(), "{key} has no {field}: {found}");
            if field == "properties" {
                for name in value.as_object().unwrap().keys() {
                    assert!(form["properties"][name].is_object(), "{key} has no {name}=");
                }
            }
            if let Some(place) = form["$ref"].as_str().filter(|_| field == "children") {
                has_form(schema, place.trim_start_matches("#/$defs/"), value);
            }
        }
        for required in form["required"].as_array().unwrap() {
            assert!(found.get(required.as_str().unwrap()).is_some(), "{key} lacks {required}: {found}");
        }
    }
}
