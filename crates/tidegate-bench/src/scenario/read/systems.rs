//! The machines beside the load.

use super::Reader;
use crate::systems::{Place, Processes, Service, System, Watched, plain};
use crate::target::Url;
use std::time::Duration;
use tidegate_config::language::Item;

/// Systems of a scenario, at most: as many as the pages of a run draw.
const SYSTEMS: usize = 32;
/// Processes and services of one, at most.
const WATCHED: usize = 32;

impl Reader {
    pub(super) fn systems(&mut self, items: &[Item]) -> Vec<System> {
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
            systems.push(System { name, place, watched });
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
                    Ok(url) if !url.is_tls => watched.services.push(Service::Url(url)),
                    Ok(_) => self.error(
                        monitor.error_of("url", "`monitor`: a status page is asked for by http"),
                        "name a listener of that machine without TLS",
                    ),
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
