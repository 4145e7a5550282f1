//! Golden tests: every folder of `tests/cases` holds an `input.kdl` and what loading it says, `expected.txt`.
//! `UPDATE=1 cargo test -p tidegate-config` writes the latter anew; read the difference before committing it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_config::settings::{SocketAccess, once};
use tidegate_config::{Loaded, Settings, load_str};

/// Settings as the master sends them to the server processes.
#[derive(Serialize, Deserialize)]
struct Sent(#[serde(with = "once")] Settings);

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let environment = BTreeMap::from([
        ("ROOT".to_owned(), "www".to_owned()),
        ("PORT".to_owned(), "8080".to_owned()),
        ("EMPTY".to_owned(), String::new()),
        ("NESTED".to_owned(), "${ROOT}".to_owned()),
    ]);
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut wrong = Vec::new();
    for case in &names {
        let text = fs::read_to_string(case.join("input.kdl")).unwrap();
        let loaded = load_str("input.kdl", &text, case, &environment);
        if let Some(settings) = loaded.settings.clone() {
            let json = serde_json::to_string(&Sent(settings)).unwrap();
            let there: Sent = serde_json::from_str(&json).unwrap();
            if Some(&there.0) != loaded.settings.as_ref() {
                wrong.push(format!("{}: server processes would get other settings", case.display()));
            }
        }
        let shown = show(&loaded).replace(&case.display().to_string(), "CASE");
        let shown = shown.replace(&folder.display().to_string(), "CASES");
        let expected = case.join("expected.txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected, &shown).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != shown {
            wrong.push(format!("{}:\n{shown}", case.display()));
        }
    }
    assert!(names.len() >= 40, "only {} cases", names.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The diagnostics, then what is served: server-wide values only where they are not the defaults.
fn show(loaded: &Loaded) -> String {
    let mut out = loaded.render(false);
    if !out.is_empty() {
        out.push('\n');
    }
    for site in &loaded.rejected {
        let origin = &site.origin;
        let _ = writeln!(
            out,
            "rejected {:?} {}:{} whole file: {}",
            site.names, origin.file, origin.line, site.is_whole_file
        );
    }
    let Some(settings) = &loaded.settings else {
        out.push_str("settings: none\n");
        return out;
    };
    let plain = "listen \"127.0.0.1:1\"\nsite { respond 200 }\n";
    let plain = load_str("plain", plain, Path::new("/"), &BTreeMap::new());
    let plain = plain.settings.expect("the plainest settings load");
    let mut line = |name: &str, value: String, default: String| {
        if value != default {
            let _ = writeln!(out, "{name} {value}");
        }
    };
    line("workers", format!("{:?}", settings.workers), format!("{:?}", plain.workers));
    line("processes", settings.processes.to_string(), plain.processes.to_string());
    line("user", format!("{:?}", settings.user), format!("{:?}", plain.user));
    line("sandbox", settings.sandbox.to_string(), plain.sandbox.to_string());
    line("limits", format!("{:#?}", settings.limits), format!("{:#?}", plain.limits));
    line("file-cache", format!("{:#?}", settings.file_cache), format!("{:#?}", plain.file_cache));
    line("access-log", format!("{:?}", settings.access_log), format!("{:?}", plain.access_log));
    line("error-log", format!("{:?}", settings.error_log), format!("{:?}", plain.error_log));
    line("server-field", format!("{:?}", settings.server_field), format!("{:?}", plain.server_field));
    line("pid-file", format!("{:?}", settings.pid_file), format!("{:?}", plain.pid_file));
    line("control", format!("{:?}", settings.control), format!("{:?}", plain.control));
    line("drain-timeout", format!("{:?}", settings.drain_timeout), format!("{:?}", plain.drain_timeout));
    for source in &settings.users {
        let _ = writeln!(out, "users {} {:?} {:?}", source.name, source.accounts, source.cache);
        if let Some(directory) = &source.directory {
            let _ = writeln!(out, "  ldap {directory:#?}");
        }
    }
    for upstream in &settings.upstreams {
        let _ = writeln!(out, "upstream {upstream:#?}");
    }
    for store in &settings.caches {
        let _ = writeln!(out, "cache {store:?}");
    }
    for pool in &settings.pools {
        let _ = writeln!(out, "pool {pool:#?}");
    }
    for listener in &settings.listeners {
        let (address, default) = (&listener.address, &listener.default_site);
        let _ = writeln!(out, "listen {address:?} backlog {} default {default:?}", listener.backlog);
        if let (Some(_), _) | (_, Some(_)) = (listener.send_buffer, listener.receive_buffer) {
            let _ = writeln!(out, "  buffers {:?} {:?}", listener.send_buffer, listener.receive_buffer);
        }
        if let Some(tls) = &listener.tls {
            let _ = writeln!(
                out,
                "  tls {:?}",
                tls.certificate.as_ref().map(|files| (&files.certificate, &files.key))
            );
        }
        if !listener.proxies.is_empty() || listener.redirects_to_https.is_some() {
            let (proxies, https) = (&listener.proxies, listener.redirects_to_https);
            let _ = writeln!(out, "  proxies {proxies:?} https {https:?}");
        }
        if listener.access != SocketAccess::default() {
            let _ = writeln!(out, "  {:?}", listener.access);
        }
    }
    for site in &settings.sites {
        let (origin, log) = (&site.origin, &site.access_log);
        let _ = writeln!(out, "site {:?} ({}:{}) access-log {log:?}", site.names, origin.file, origin.line);
        if site.tls != Default::default() || site.is_https_only {
            let _ = writeln!(out, "  https only: {} {:#?}", site.is_https_only, site.tls);
        }
        for route in &site.routes {
            let _ =
                writeln!(out, "  route {:?} ({}:{})", route.pattern, route.origin.line, route.origin.column);
            for clause in &route.conditions {
                let _ = writeln!(out, "    {clause}");
            }
            let _ = writeln!(out, "    {:?}", route.action);
            if let Some(login) = &route.identification.login {
                let _ = writeln!(out, "    login {} as {:?}", login.users, login.realm);
            }
            for required in &route.identification.certificates {
                let _ = writeln!(out, "    {}", **required);
            }
            for required in &route.identification.requirements {
                let _ = writeln!(out, "    require {:?} {:?}", required.what, required.names);
            }
            if let Some(cache) = &route.cache {
                let _ = writeln!(out, "    {cache:?}");
            }
            for rate in &route.rates {
                let _ = writeln!(
                    out,
                    "    limit {} {} by {:?} keys {} track {}",
                    rate.name, rate.bound, rate.by, rate.keys, rate.is_tracked
                );
            }
            for bandwidth in &route.bandwidths {
                let bandwidth: &tidegate_config::settings::Bandwidth = bandwidth;
                let (burst, after, keys) = (bandwidth.burst, bandwidth.after, bandwidth.keys);
                let _ = writeln!(
                    out,
                    "    {bandwidth} burst {burst} after {after} keys {keys} track {}",
                    bandwidth.is_tracked
                );
            }
            for rules in &route.access.levels {
                let words = rules.iter().map(|rule| rule.to_string().replace('"', ""));
                let _ = writeln!(out, "    access {}", words.collect::<Vec<_>>().join(", "));
            }
            let (fields, cache) = (&route.fields, &route.cache_control);
            let _ = writeln!(out, "    fields {fields:?} cache {cache:?}");
            if !route.removed_fields.is_empty() {
                let _ = writeln!(out, "    without {:?}", route.removed_fields);
            }
            if let Some(proxies) = &route.trusted_proxies {
                let _ = writeln!(out, "    trusted proxies {proxies:?}");
            }
            let (pages, compress) = (&route.error_pages, &route.compress);
            let _ = writeln!(out, "    pages {pages:?} compress {compress:?}");
            if let Some(limits) = &route.limits {
                let _ = writeln!(out, "    limits {}", limits.unlike(&settings.limits.request).join(", "));
            }
            if !route.early_hints.is_empty() {
                let _ = writeln!(out, "    early hints {:?}", route.early_hints);
            }
            if route.access.is_internal {
                out.push_str("    internal\n");
            }
            if route.access.requires_client_certificate {
                out.push_str("    requires a client certificate\n");
            }
        }
    }
    out
}
