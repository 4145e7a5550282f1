//! `limit`: what it says, and that all of one name say the same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::{NonZeroU32, NonZeroU64};

use crate::check::{Checker, Item};
use crate::settings::{Bound, Limit, RequestRate};
use crate::value::Value;

/// What a `limit` may bound; one of them has to be given.
const BOUNDS: [&str; 3] = ["requests", "concurrent", "connections"];

/// What has been said of each name, in all of the files.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, Limit>);

impl Names {
    /// Looks at the limits among the directives of a level.
    pub fn check(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        for item in items.iter().filter(|item| item.directive.name == "limit" && !item.is_word("off")) {
            if item.is_faulty {
                continue;
            }
            let bounds = item.properties.iter().filter(|(name, _)| BOUNDS.contains(name));
            let bounds: Vec<&str> = bounds.map(|(name, _)| *name).collect();
            let problem = match bounds[..] {
                [] => Some(("`limit` does not say what is limited".to_owned(), "say how many".to_owned())),
                [one] => {
                    let has_burst = item.properties.iter().any(|(name, _)| *name == "burst");
                    (has_burst && one != "requests").then(|| {
                        let message = format!("`burst` belongs to `requests`, and this limits `{one}`");
                        (message, "take `burst` out".to_owned())
                    })
                }
                [first, second, ..] => {
                    let message = format!("`limit` limits `{first}` and `{second}`");
                    Some((message, "make two of them, each with a name of its own".to_owned()))
                }
            };
            if let Some((message, help)) = problem {
                let help = format!("{help}: `{}`", item.directive.example);
                checker.diagnostics.push(item.error(message).help(help));
                continue;
            }
            let Some(limit) = limit(item) else { continue };
            match self.0.entry(limit.name.clone()) {
                Entry::Vacant(place) => drop(place.insert(limit)),
                Entry::Occupied(known) if known.get().agrees(&limit) => {}
                Entry::Occupied(known) => {
                    let message =
                        format!("the limit `{}` says something else in {}", limit.name, known.get().origin);
                    let help = "all of one name count together, so they have to say the same: give this one another name";
                    checker.diagnostics.push(item.error_at(0, message).help(help));
                }
            }
        }
    }
}

/// What a `limit` says; `None` where something is wrong with it.
pub(super) fn limit(item: &Item) -> Option<Limit> {
    let name = item.texts().into_iter().next()?;
    let number = |name| match item.property(name) {
        Some(Value::Number(number)) => NonZeroU64::new(number),
        _ => None,
    };
    let small = |name| number(name).and_then(|number| NonZeroU32::try_from(number).ok());
    let bound = match item.property("requests") {
        Some(Value::Rate(count, period)) => {
            Bound::Requests(RequestRate { count, period, burst: number("burst").unwrap_or(count) })
        }
        _ => match (small("concurrent"), small("connections")) {
            (Some(most), _) => Bound::Concurrent(most),
            (None, most) => Bound::Connections(most?),
        },
    };
    let Some(Value::Text(by)) = item.property("by") else { return None };
    let keys = number("keys").map_or(1, |keys| u32::try_from(keys.get()).unwrap_or(u32::MAX));
    let is_tracked = item.arguments.iter().any(|placed| placed.value == Value::Word("track"));
    Some(Limit { name, bound, by, keys, is_tracked, origin: item.origin() })
}
