//! Files that a script has written: settings that name each other in long chains, and very many of a kind.

use std::fmt::Write as _;
use std::path::Path;

use tidegate_config::{Diagnostic, Loaded, Settings, load_str};

fn load(text: &str) -> Loaded {
    let environment = std::collections::BTreeMap::new();
    load_str("input.kdl", text, Path::new("/"), &environment)
}

/// What a file says, and that it says no more than a few things.
fn few_findings(text: &str) -> String {
    let loaded = load(text);
    assert!(loaded.diagnostics.len() < 4, "{}", loaded.render(false));
    loaded.render(false)
}

/// `match`, each of which names the next; the last of them has a condition.
fn chain_of_match(count: usize, is_upwards: bool) -> String {
    let mut lines: Vec<String> = (1..count)
        .map(|n| format!("match \"m{n}\" {{ match \"m{}\"; method \"GET\" }}\n", n - 1))
        .chain(["match \"m0\" { path \"/x*\" }\n".to_owned()])
        .collect();
    if is_upwards {
        lines.reverse();
    }
    format!(
        "listen \"127.0.0.1:1\"\n{}site {{ route \"/*\" {{ when match \"m{}\"; respond 200 }}; respond 404 }}\n",
        lines.concat(),
        count - 1
    )
}

#[test]
fn match_in_match_ends_at_a_depth() {
    for is_upwards in [false, true] {
        let loaded = load(&chain_of_match(16, is_upwards));
        assert!(!loaded.has_errors(), "{}", loaded.render(false));
        for count in [17, 25, 20_000] {
            let said = few_findings(&chain_of_match(count, is_upwards));
            assert!(said.contains("more than 16 deep in each other here"), "{said}");
            assert!(said.contains("match \"m15\""), "the line that goes too deep: {said}");
        }
    }
}

#[test]
fn a_match_of_a_site_counts_those_around_it() {
    let text = chain_of_match(16, true).replace("site {", "site { match \"own\" { match \"m15\" };");
    assert!(few_findings(&text).contains("more than 16 deep"), "the site is one more");
    let big = (0..6000).fold("match \"big\" {".to_owned(), |text, _| text + " method \"GET\";");
    let site = "site { match \"own\" { match \"big\"; match \"big\" }; respond 200 }";
    let said = few_findings(&format!("listen \"127.0.0.1:1\"\n{big} }}\n{site}\n"));
    assert!(said.contains("more than 10000 conditions"), "{said}");
}

/// JSON is read to a depth of 128.
#[test]
fn the_deepest_settings_travel() {
    let settings: Settings = load(&chain_of_match(16, true)).settings.expect("sound settings");
    let text = serde_json::to_string(&settings).unwrap();
    // What wraps it on the way to a server process takes a few levels as well.
    let wrapped = format!("{}{text}{}", "[".repeat(16), "]".repeat(16));
    let there: serde_json::Value = serde_json::from_str(&wrapped).unwrap();
    assert!(there.is_array());
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
}

fn chain_of_rules(count: usize) -> String {
    let mut text = "listen \"127.0.0.1:1\"\nsite { use \"r0\"; respond 200 }\n".to_owned();
    for n in 1..count {
        let _ = writeln!(text, "rules \"r{}\" {{ use \"r{n}\" }}", n - 1);
    }
    let _ = writeln!(text, "rules \"r{}\" {{ header \"X-A\" \"b\" }}", count - 1);
    text
}

#[test]
fn rules_in_rules_end_at_a_depth() {
    assert!(!load(&chain_of_rules(16)).has_errors());
    for count in [17, 20_000] {
        let said = few_findings(&chain_of_rules(count));
        assert!(said.contains("use each other more than 16 deep here"), "{said}");
        assert!(said.contains("rules \"r15\""), "{said}");
    }
}

#[test]
fn circles_are_said_in_short() {
    let around = |kind: &str, verb: &str| {
        (0..20_000).fold("listen \"127.0.0.1:1\"\n".to_owned(), |mut text, n| {
            let _ = writeln!(text, "{kind} \"m{n}\" {{ {verb} \"m{}\" }}", (n + 1) % 20_000);
            text
        })
    };
    let said = few_findings(&format!("{}site {{ respond 200 }}\n", around("match", "match")));
    assert!(said.contains("is made of itself: `m0` names `m1`"), "{said}");
    assert!(said.len() < 1000, "{said}");
}

/// Each branches where the one before it ends.
#[test]
fn paths_in_paths_are_found_at_any_depth() {
    let mut path = String::from("/");
    let routes = (0..3000).fold(String::new(), |mut routes, _| {
        path.push('a');
        let _ = writeln!(routes, "route \"{path}\" {{ respond 200 }}");
        routes
    });
    let loaded = load(&format!("listen \"127.0.0.1:1\"\nsite {{ {routes} respond 404 }}\n"));
    let settings = loaded.settings.expect("sound settings");
    let patterns = settings.sites[0].routes.iter().map(|route| &route.pattern);
    let index = tidegate_config::settings::RouteIndex::of(patterns).expect("many");
    assert!(index.candidates(b"/aaa").any(|at| at == 2));
}

/// Bytes that are allocated while such a file is read.
fn allocated(text: &str) -> u64 {
    let counted = allocation_counter::measure(|| drop(load(text)));
    counted.bytes_total
}

/// Of four times as many of a kind, four times as much: nothing is copied or looked at for each of the others.
#[test]
fn very_many_of_a_kind_take_their_share() {
    let each = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let value = |n: usize| format!("value \"v{n}\" from=\"{{path}}\" {{ \"/a{n}\" \"b\" }}\n");
    let matches = |n: usize| format!("match \"m{n}\" {{ path \"/a{n}\" }}\n");
    let site = |n: usize, rest: &str| format!("site \"s{n}.test\" {{ {rest}; respond 200 }}\n");
    let files: [(&str, &dyn Fn(usize) -> String); 7] = [
        ("values", &|n| each(n, &value) + "site { respond 200 }\n"),
        ("values that are named", &|n| {
            each(n, &value) + &each(n, &|n| site(n, &format!("header \"X-A\" \"{{value.v{n}}}\"")))
        }),
        ("sites with a value of their own", &|n| {
            let own = "value \"own\" from=\"{host}\" { \"*\" \"x\" }; header \"X-A\" \"{value.own}\"";
            each(n, &value) + &each(n, &|n| site(n, own))
        }),
        ("sites with a match of their own", &|n| {
            let own = "match \"own\" { path \"/x\" }; route \"/y\" { when match \"m5\"; respond 201 }";
            each(n, &matches) + &each(n, &|n| site(n, own))
        }),
        ("rules", &|n| {
            each(n, &|n| format!("rules \"r{n}\" {{ header \"X-A\" \"b\" }}\n"))
                + &each(n, &|n| site(n, &format!("use \"r{n}\"")))
        }),
        ("upstreams", &|n| {
            each(n, &|n| {
                format!("upstream \"u{n}\" {{ member \"127.0.0.1:80\"; member \"127.0.0.2:80\" }}\n")
            }) + &each(n, &|n| format!("site \"s{n}.test\" {{ proxy \"http://u{n}\" }}\n"))
        }),
        ("routes with a name", &|n| {
            let routes = each(n, &|n| {
                format!(
                    "route \"@r{n}\" {{ respond 200 }}; route \"/{n}/*\" {{ root \"/\"; try \"{{path}}\" \"@r{n}\" }}\n"
                )
            });
            format!("site {{ respond 200; {routes} }}\n")
        }),
    ];
    for (name, file) in files {
        let text = |count: usize| format!("listen \"127.0.0.1:1\"\n{}", file(count));
        let loaded = load(&text(100));
        assert!(!loaded.has_errors(), "{name}: {}", loaded.render(false));
        let (few, many) = (allocated(&text(100)), allocated(&text(400)));
        assert!(many < few * 5, "{name}: {few} bytes for 100, {many} for 400");
    }
}

/// However many there are, and whoever finds them: the loader, and those that look at the settings after it.
#[test]
fn no_more_is_said_than_somebody_reads() {
    let routes =
        (0..20_000).fold(String::new(), |text, n| text + &format!("route \"/r{n}\" {{ respond 200 }}\n"));
    let mut loaded =
        load(&format!("listen \":1\"\nsite {{ respond 404; route \"/*\" {{ respond 200 }}\n{routes}}}"));
    let said = |loaded: &Loaded| {
        let told: Vec<String> = loaded.diagnostics.iter().map(|found| found.message.clone()).collect();
        (told.len(), told.last().cloned().unwrap_or_default())
    };
    assert_eq!(said(&loaded), (201, "there are 19800 more findings".into()));
    let warnings = |count: usize| (0..count).map(|n| (None, Diagnostic::warning(format!("warning {n}"))));
    loaded.add(warnings(20_000).collect());
    loaded.add(Vec::new());
    assert_eq!(said(&loaded), (201, "there are 39800 more findings".into()));
    // Errors come first, and are counted with the others.
    loaded.add(vec![(None, Diagnostic::error("this is wrong"))]);
    assert_eq!(said(&loaded), (201, "there are 39801 more findings".into()));
    assert!(loaded.has_errors() && loaded.render(false).contains("this is wrong"));
}
