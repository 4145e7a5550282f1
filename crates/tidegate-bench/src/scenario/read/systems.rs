//! The machines beside the load.

use super::Reader;
use crate::systems::{Before, Place, Probe, Processes, Service, Stopped, System, Watched, plain};
use crate::target::Url;
use std::time::Duration;
use tidegate_config::Environment;
use tidegate_config::language::Item;

/// Systems of a scenario, at most: as many as the pages of a run draw.
const SYSTEMS: usize = 32;
/// Processes and services of one, at most.
const WATCHED: usize = 32;

impl Reader {
    pub(super) fn systems(&mut self, items: &[Item], environment: &dyn Environment) -> Vec<System> {
        let mut systems: Vec<System> = Vec::new();
        for item in items.iter().filter(|item| item.name() == "system") {
            let Some(name) = item.text(0) else { continue };
            // Files and charts have the plain names.
            if systems.iter().any(|known| plain(&known.name) == plain(&name)) {
                let message = format!("`system {name}` is there already");
                self.error(item.error_at(0, message), "give it another name");
                continue;
            }
            if systems.len() >= SYSTEMS {
                self.error(
                    item.error(format!("there are more than {SYSTEMS} systems")),
                    "name fewer of them",
                );
                break;
            }
            let place = self.place_of_system(item);
            let watched = self.watched(item);
            let before = self.before(item, environment);
            self.configured_once(&systems, (&place, &before), item);
            let child = |name: &str| item.block().iter().find(|child| child.name() == name);
            let stop = child("stop").and_then(|stop| {
                Some(Stopped { command: stop.text(0)?, within: stop.duration_of("within")? })
            });
            let collect = child("collect").map(Item::all_texts).unwrap_or_default();
            systems.push(System { name, place, watched, before, stop, collect });
        }
        systems
    }

    fn place_of_system(&mut self, item: &Item) -> Place {
        let Some(ssh) = item.block().iter().find(|child| child.name() == "ssh") else { return Place::Here };
        let Some(host) = ssh.text(0) else { return Place::Here };
        if host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace) {
            let message = format!("`ssh`: `{host}` is no host");
            self.error(ssh.error_at(0, message), "write `user@host`, or a name of the configuration of ssh");
        }
        Place::Ssh { host, program: ssh.text_of("program").unwrap_or_default() }
    }

    /// A file has one content.
    fn configured_once(&mut self, others: &[System], (place, before): (&Place, &[Before]), item: &Item) {
        let path_of = |before: &Before| match before {
            Before::Configure { path, .. } => Some(path.clone()),
            Before::Reset { .. } | Before::Start { .. } => None,
        };
        let there = others.iter().filter(|known| known.place == *place).flat_map(|known| &known.before);
        let mut seen: Vec<String> = there.filter_map(path_of).collect();
        for path in before.iter().filter_map(path_of) {
            if seen.contains(&path) {
                let written = item.block().iter().rfind(|child| child.text(0).as_ref() == Some(&path));
                let message = format!("`configure`: {path} is written twice");
                self.error(written.unwrap_or(item).error_at(0, message), "keep one of the two");
            }
            seen.push(path);
        }
    }

    /// In the order of the file.
    fn before(&mut self, item: &Item, environment: &dyn Environment) -> Vec<Before> {
        let ready = item.block().iter().find(|child| child.name() == "ready");
        let starts = item.block().iter().any(|child| child.name() == "start");
        if let Some(ready) = ready.filter(|_| !starts) {
            self.error(
                ready.error("`ready` stands without `start`"),
                "add `start \"command\"`, or take it out",
            );
        }
        let probe = ready.and_then(|ready| self.probe(ready));
        let patience = ready.and_then(|ready| ready.duration_of("within"));
        let before = item.block().iter().filter_map(|child| match child.name() {
            "configure" => self.configure(child, environment),
            "reset" => Some(Before::Reset { command: child.text(0)?, within: child.duration_of("within")? }),
            "start" => {
                let within = patience.unwrap_or(Duration::from_secs(60));
                Some(Before::Start { command: child.text(0)?, ready: probe.clone(), within })
            }
            _ => None,
        });
        before.collect()
    }

    fn probe(&mut self, item: &Item) -> Option<Probe> {
        match (item.text_of("url"), item.text_of("tcp")) {
            (Some(text), None) => match Url::parse(&text) {
                Ok(url) => Some(Probe::Url(url)),
                Err(fault) => {
                    let help = "write `url=\"http://127.0.0.1:8080/\"`";
                    self.error(item.error_of("url", format!("`ready`: {fault}")), help);
                    None
                }
            },
            (None, Some(address)) => Some(Probe::Tcp(address)),
            _ if item.has_faults() => None,
            _ => {
                self.error(
                    item.error("`ready` needs `url=` or `tcp=`, one of the two"),
                    "write `ready tcp=\"127.0.0.1:8080\"`",
                );
                None
            }
        }
    }

    fn watched(&mut self, item: &Item) -> Option<Watched> {
        let monitors = || item.block().iter().filter(|child| child.name() == "monitor");
        monitors().next()?;
        let interval = monitors().find_map(|monitor| monitor.duration_of("interval"));
        let mut watched = Watched {
            interval: interval.unwrap_or(Duration::from_secs(1)),
            processes: Vec::new(),
            services: Vec::new(),
        };
        for monitor in monitors() {
            watched.processes.extend(monitor.text_of("process").map(|process| Processes::parse(&process)));
            watched.services.extend(monitor.text_of("memcached").map(Service::Memcached));
            watched.services.extend(monitor.text_of("mariadb").map(Service::Mariadb));
            if let Some(text) = monitor.text_of("url") {
                match Url::parse(&text) {
                    Ok(url) => watched.services.push(Service::Url(url)),
                    Err(fault) => self.error(
                        monitor.error_of("url", format!("`monitor`: {fault}")),
                        "write `url=\"http://127.0.0.1/.perf?format=json\"`",
                    ),
                }
            }
        }
        if watched.processes.len() + watched.services.len() > WATCHED {
            let message = format!("more than {WATCHED} processes and services of a system are watched");
            self.error(item.error(message), "name fewer of them");
        }
        Some(watched)
    }
}
