//! `limit`: what it says, and that all of one name say the same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU64;

use crate::check::{Checker, Item};
use crate::settings::RequestRate;
use crate::value::Value;

/// What has been said of each name, in all of the files.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, RequestRate>);

impl Names {
    /// Looks at the limits among the directives of a level.
    pub fn check(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        for item in items.iter().filter(|item| item.directive.name == "limit" && !item.is_word("off")) {
            if item.is_faulty {
                continue;
            }
            if !item.properties.iter().any(|(name, _)| *name == "requests") {
                let help = format!("say how many: `{}`", item.directive.example);
                checker.diagnostics.push(item.error("`limit` does not say what is limited").help(help));
                continue;
            }
            let Some(rate) = rate(item) else { continue };
            match self.0.entry(rate.name.clone()) {
                Entry::Vacant(place) => drop(place.insert(rate)),
                Entry::Occupied(known) if known.get().agrees(&rate) => {}
                Entry::Occupied(known) => {
                    let message =
                        format!("the limit `{}` says something else in {}", rate.name, known.get().origin);
                    let help = "all of one name count together, so they have to say the same: give this one another name";
                    checker.diagnostics.push(item.error_at(0, message).help(help));
                }
            }
        }
    }
}

/// What a `limit` says; `None` where something is wrong with it.
pub(super) fn rate(item: &Item) -> Option<RequestRate> {
    let name = item.texts().into_iter().next()?;
    let Some(Value::Rate(count, period)) = item.property("requests") else { return None };
    let number = |name| match item.property(name) {
        Some(Value::Number(number)) => NonZeroU64::new(number),
        _ => None,
    };
    let Some(Value::Text(by)) = item.property("by") else { return None };
    let keys = number("keys").map_or(1, |keys| u32::try_from(keys.get()).unwrap_or(u32::MAX));
    let burst = number("burst").unwrap_or(count);
    let is_tracked = item.arguments.iter().any(|placed| placed.value == Value::Word("track"));
    Some(RequestRate { name, count, period, burst, by, keys, is_tracked, origin: item.origin() })
}
