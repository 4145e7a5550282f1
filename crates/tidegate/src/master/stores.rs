//! Orders to the stores of responses: each server process has its own, and their answers are put together. Figures are those of the
//! status report, which outlive the process that has counted them.

use super::status_registry::StatusRegistry;
use crate::link::{Answer, Question, ToServer};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tidegate_core::log;
use tidegate_modules::cache_desk::{self, CacheOrder, CacheReply};

/// What is said where there is none.
pub const NO_STORE: &str =
    "the settings of this server define no store: `cache \"main\" { memory \"64MiB\" }`";
/// How long server processes may take: some of it is done on disks.
const PATIENCE: Duration = Duration::from_secs(20);

/// Has the stores of all processes carry out an order. Whether all did, and the answer as JSON, or why not.
pub fn carry_out(status_registry: &StatusRegistry, order: &CacheOrder) -> (bool, String) {
    let (stores, links) = status_registry.stores();
    if stores.is_empty() {
        return (false, format!("{NO_STORE}\n"));
    }
    if let Some(name) = order.store().filter(|name| !stores.iter().any(|store| store == name)) {
        let known: Vec<String> = stores.iter().map(|store| format!("`{store}`")).collect();
        return (false, format!("no cache is named {name:?}; there are {}\n", known.join(", ")));
    }
    if let Err(why) = order.check() {
        return (false, why + "\n");
    }
    if let CacheOrder::Figures { store } = order {
        let mut figures = status_registry.store_figures();
        figures.retain(|figures| store.as_ref().is_none_or(|store| *store == figures.store));
        return as_json(&CacheReply::Figures(figures));
    }
    let (sender, answers) = channel();
    let asked = links.len();
    for link in links {
        let sender = sender.clone();
        link.ask(ToServer::Question, Question::Stores(order.clone()), move |answer| {
            let _ = sender.send(answer);
        });
    }
    drop(sender);
    let (mut all, mut heard) = (order.nothing(), 0);
    let deadline = Instant::now() + PATIENCE;
    // Ends early where a process goes: its end of the channel is dropped.
    while heard < asked
        && let Ok(answer) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        if let Answer::Stores(reply) = answer {
            cache_desk::merge(&mut all, reply);
            heard += 1;
        }
    }
    if let CacheOrder::Purge(wanted) = order {
        log::info(format_args!("an operator has purged {}", wanted.told()));
    }
    if heard < asked {
        let still = match order {
            CacheOrder::Purge(_) => ", and may still use what is to go",
            _ => "",
        };
        let silent = asked - heard;
        return (false, format!("{silent} of {asked} server processes do not answer{still}: try again\n"));
    }
    order.arrange(&mut all);
    as_json(&all)
}

fn as_json(reply: &CacheReply) -> (bool, String) {
    match serde_json::to_string(reply) {
        Ok(json) => (true, json + "\n"),
        Err(error) => (false, format!("{error}\n")),
    }
}
