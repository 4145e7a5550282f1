//! `on`: what is done when a load crosses a threshold (R16), of the server, a site, an upstream or a pool.

use std::num::NonZeroU32;
use std::time::Duration;

use super::pool::missing_program;
use crate::check::{Checker, Item};
use crate::diagnostic::{Diagnostic, Severity};
use crate::disk::Disk;
use crate::settings::pool::{Hook, HookAction, Measure, Threshold};
use crate::settings::{Bound, Limit, Origin, Shared, Site};
use crate::value::Value;

/// What is measured of each.
pub(super) const OF_THE_SERVER: &[&str] = &["queue", "concurrency", "rate", "cpu"];
pub(super) const OF_SITES: &[&str] = &["concurrency", "rate"];
pub(super) const OF_UPSTREAMS: &[&str] = &["queue", "concurrency", "rate"];
pub(super) const OF_POOLS: &[&str] = &["queue", "concurrency"];

/// Those of a level, in source order.
pub(super) fn hooks(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    items: &[Item],
    measures: &[&str],
) -> Vec<Hook> {
    let hooks = items.iter().filter(|item| item.directive.name == "on");
    hooks.filter_map(|item| hook(checker, disk, item, measures)).collect()
}

/// Has the requests of a site counted, where a hook wants to know: by limits that refuse nobody.
pub(super) fn count(site: &mut Site) {
    if site.hooks.is_empty() {
        return;
    }
    let counts = |measure| site.hooks.iter().any(|hook| hook.measure == measure);
    let limit = |name, bound| {
        Shared::from(Limit {
            name,
            bound,
            by: "all".to_owned(),
            keys: 8,
            is_tracked: true,
            lease: None,
            queue: None,
            origin: Origin::default(),
        })
    };
    let label = site.label();
    let under_way = counts(Measure::Concurrency)
        .then(|| limit(Limit::of_load(&label), Bound::Concurrent(NonZeroU32::MAX)));
    let all = counts(Measure::Rate).then(|| limit(Limit::of_requests(&label), Bound::Nothing));
    for limit in under_way.into_iter().chain(all) {
        site.routes.iter_mut().for_each(|route| route.rates.push(limit.clone()));
    }
}

fn hook(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, measures: &[&str]) -> Option<Hook> {
    let number = |name: &str| match item.property(name) {
        Some(Value::Number(number)) => u32::try_from(number).ok(),
        _ => None,
    };
    let threshold = match (number("above"), number("below"), number("rearm")) {
        (Some(limit), None, rearm) => {
            Threshold::Above { limit, rearm: rearm.unwrap_or(limit / 5 * 4).min(limit) }
        }
        (None, Some(limit), rearm) => {
            Threshold::Below { limit, rearm: rearm.unwrap_or(limit.saturating_add(limit / 4)).max(limit) }
        }
        _ => {
            let message = "this needs one threshold, `above=` or `below=`";
            checker
                .diagnostics
                .push(item.error(message).help(format!("for example `{}`", item.directive.example)));
            return None;
        }
    };
    let Some(Value::Word(word)) = item.first() else { return None };
    let measure = match *word {
        "concurrency" => Measure::Concurrency,
        "rate" => Measure::Rate,
        "cpu" => Measure::Cpu,
        _ => Measure::Queue,
    };
    if !measures.contains(word) {
        let message = format!("nobody measures `{word}` here");
        let help = format!(
            "what there is here: `{}`; the server as a whole, at the top level, has all",
            measures.join("`, `")
        );
        checker.diagnostics.push(item.error_at(0, message).help(help));
        return None;
    }
    let what = item.texts();
    let action =
        match item.arguments.get(1).map(|placed| &placed.value) {
            Some(Value::Word("call")) => {
                let url = what.first()?.clone();
                if what.len() > 1
                    || !url.starts_with("http://")
                    || url.contains(|c: char| c.is_control() || c == ' ')
                {
                    let message = "`call` needs one address of scheme `http`";
                    checker.diagnostics.push(item.error_at(2, message).help(
                        "write `\"http://127.0.0.1:8000/grow\"`; a program can do what else is wanted",
                    ));
                    return None;
                }
                HookAction::Call(url)
            }
            _ => {
                let user = match item.property("user") {
                    Some(Value::Text(user)) => Some(user),
                    _ => None,
                };
                if let Some(program) = what.first() {
                    // The server runs without it, and tries again each time.
                    let missing = missing_program(checker, disk, item, 2, program);
                    let warning = |missing| Diagnostic { severity: Severity::Warning, ..missing };
                    checker.diagnostics.extend(missing.map(warning));
                }
                HookAction::Run { command: what, user, group: None, sealed: Default::default() }
            }
        };
    let (every, timeout) = (time(item, "every"), time(item, "timeout"));
    Some(Hook { measure, threshold, action, every, timeout, origin: item.origin() })
}

fn time(item: &Item, property: &str) -> Duration {
    match item.property(property) {
        Some(Value::Duration(time)) => time,
        _ => Duration::ZERO,
    }
}
