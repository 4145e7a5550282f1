//! Who comes and when: `users` or `rate`, and the phases in their block.

use super::Reader;
use crate::quantity::show_duration;
use crate::scenario::{Absence, Load, Mix, Phases, Scenario, Users, Visits};
use crate::schedule::Arrivals;
use std::time::Duration;
use tidegate_config::language::Item;

impl Reader {
    /// The phases of the run, which stand with who comes.
    pub(super) fn phases(&mut self, items: &[Item]) -> Option<Phases> {
        let mut loads = items.iter().filter(|item| matches!(item.name(), "users" | "rate"));
        let Some(item) = loads.next() else {
            self.missing(
                &["users", "rate"],
                "nothing says who comes",
                "write `users 100 { ramp-up \"10s\"; steady \"1m\" }`, or at a rate `rate \"50/s\" { steady \"1m\" }`",
            );
            return None;
        };
        // A second of the same has been said.
        if let Some(second) = loads.find(|second| second.name() != item.name()) {
            let message = format!("`{}` stands beside `{}`", second.name(), item.name());
            let help = "`users` stay, and wait for the server; at a `rate` they come whatever it does; keep one of the two";
            self.error(second.error(message), help);
        }
        let phase = |name: &str| item.block().iter().find(|phase| phase.name() == name);
        let time = |name: &str| phase(name).and_then(|phase| phase.duration(0));
        if phase("steady").is_none() && !item.may_have_lost(&["steady"]) {
            self.error(
                item.error(format!("`{}` says nothing of the time to measure", item.name())),
                "add `steady \"3m\"` in its block",
            );
        }
        Some(Phases {
            ramp_up: time("ramp-up").unwrap_or_default(),
            steady: time("steady")?,
            ramp_down: time("ramp-down").unwrap_or_default(),
        })
    }

    /// Who comes.
    pub(super) fn load(
        &mut self,
        items: &[Item],
        phases: Option<&Phases>,
        mix: Option<&Mix>,
    ) -> Option<Load> {
        let item = items.iter().find(|item| matches!(item.name(), "users" | "rate"))?;
        if item.name() == "rate" {
            let whole = match mix {
                Some(Mix::Sequence(order)) => order.len() as u64,
                _ => 1,
            };
            let number = |name: &str, other: u64| {
                u32::try_from(item.number_of(name).unwrap_or(other)).unwrap_or(u32::MAX)
            };
            return Some(Load::Visits(Visits {
                rate: item.rate(0)?,
                arrivals: match item.text_of("arrivals").as_deref() {
                    Some("constant") => Arrivals::Constant,
                    _ => Arrivals::Poisson,
                },
                operations: number("operations", whole).max(1),
                most_users: number("most-users", 1_000),
            }));
        }
        let staggered = item.block().iter().find(|phase| phase.name() == "stagger");
        let stagger = staggered.and_then(|phase| phase.duration(0));
        let users = Users { count: item.number(0).and_then(|count| u32::try_from(count).ok())?, stagger };
        if let (Some((stagger, said)), Some(phases)) = (stagger.zip(staggered), phases)
            && stagger.saturating_mul(users.count - 1) > phases.ramp_up
        {
            let message = format!("the last of {} users would come after the ramp-up", users.count);
            let help =
                "make `ramp-up` longer, or `stagger` shorter; all users must be there when measuring begins";
            self.error(said.error(message), help);
        }
        Some(Load::Users(users))
    }

    /// Visits that are too short for the mix, and a ramp-up that is too short for visits.
    pub(super) fn warn_of_short_visits(&mut self, items: &[Item], scenario: &Scenario) {
        let Load::Visits(visits) = &scenario.load else { return };
        let Some(item) = items.iter().find(|item| item.name() == "rate") else { return };
        let beyond = Absence::Beyond(visits.operations);
        let absences = scenario.operations.iter().zip(scenario.absences());
        let missed = absences.filter(|(_, absence)| *absence == Some(beyond));
        let missed: Vec<&str> = missed.map(|(operation, _)| operation.name.as_str()).collect();
        if !missed.is_empty() {
            let message = beyond.sentence(&missed.join("`, `"));
            let help = "say how many operations a visit has: `rate \"50/s\" operations=10`";
            self.warn(item.error_of("operations", message), help);
        }
        let length = Duration::try_from_secs_f64(scenario.mean_visit()).unwrap_or(Duration::MAX);
        if length > scenario.phases.ramp_up && length > Duration::from_secs(1) {
            let message = format!(
                "a visit takes {} by the clocks, and the ramp-up is shorter: when measuring begins the first visits are still at \
                 their first operations",
                show_duration(length)
            );
            let ramp_up = item.block().iter().find(|phase| phase.name() == "ramp-up");
            self.warn(
                ramp_up.unwrap_or(item).error(message),
                "make `ramp-up` longer than a visit, or fewer operations than the rate says, and other shares of them, are measured",
            );
        }
    }
}
