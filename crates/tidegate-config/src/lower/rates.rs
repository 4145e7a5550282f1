//! `limit`, `bandwidth` and `ban`: what they say, and that all of one name say the same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::{NonZeroU32, NonZeroU64};

use crate::check::{Checker, Item, Placed};
use crate::diagnostic::Diagnostic;
use crate::directive::Kind;
use crate::settings::pool::Queue;
use crate::settings::{Ban, Bandwidth, Bound, Limit, RequestRate};
use crate::value::{Value, foreign, is_constant, meant_by_constant};

/// What a `limit` may bound; one of them has to be given.
const BOUNDS: [&str; 3] = ["requests", "concurrent", "connections"];

/// What one writes where one count for all is meant.
const FOR_ALL: [&str; 6] = ["all", "everybody", "everyone", "everything", "total", ""];

/// What to do where something is shared and there is no store.
const NO_STORE: &str =
    "say where they count, at the top level: `limit-store \"redis://192.0.2.1\"`; or take `shared` out";

/// What has been said of each name, in all of the files.
#[derive(Debug, Default)]
pub(crate) struct Names {
    limits: HashMap<String, Limit>,
    classes: HashMap<String, Bandwidth>,
    bans: HashMap<String, Ban>,
    /// There is a `limit-store`.
    has_store: bool,
}

impl Names {
    /// Nothing is said as yet. `has_store`: other servers may count with this one.
    pub fn new(has_store: bool) -> Names {
        Names { has_store, ..Names::default() }
    }

    /// Looks at the limits among the directives of a level.
    pub fn check(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        self.check_classes(checker, items);
        self.check_bans(checker, items);
        for item in items.iter().filter(|item| item.directive.name == "limit" && !item.is_word("off")) {
            if item.is_faulty {
                continue;
            }
            constant(checker, item, "all requests share one count", "by");
            let bounds = item.properties.iter().filter(|(name, _)| BOUNDS.contains(name));
            let bounds: Vec<&str> = bounds.map(|(name, _)| *name).collect();
            let problem = match bounds[..] {
                [] => Some(("`limit` does not say what is limited".to_owned(), "say how many".to_owned())),
                [one] => misplaced(item, one),
                [first, second, ..] => {
                    let message = format!("`limit` limits `{first}` and `{second}`");
                    Some((message, "make two of them, each with a name of its own".to_owned()))
                }
            };
            let problem = problem.or_else(|| self.unshared(item));
            if let Some((message, help)) = problem {
                let help = match help.contains('`') {
                    true => help,
                    false => format!("{help}: `{}`", item.directive.example),
                };
                checker.diagnostics.push(item.error(message).help(help));
                continue;
            }
            let Some(limit) = limit(item) else { continue };
            if Limit::is_own(&limit.name) {
                let message = "names that begin with `tidegate:` are the server's own";
                checker.diagnostics.push(item.error_at(0, message).help("give it another name"));
                continue;
            }
            if let Some((message, help)) = too_slow(&limit) {
                checker.diagnostics.push(item.error(message).help(help));
                continue;
            }
            match self.limits.entry(limit.name.clone()) {
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

impl Names {
    /// What keeps a limit from being shared that says that it is.
    fn unshared(&self, item: &Item) -> Option<(String, String)> {
        let has = |wanted: &str| item.properties.iter().any(|(name, _)| *name == wanted);
        match (is_shared(item), self.has_store) {
            (false, _) if has("lease") => Some((
                "`lease` belongs to a limit that is `shared`".into(),
                "write `shared` behind the name".into(),
            )),
            (true, _) if !has("requests") => {
                let help = "take `shared` out: what is under way is counted for this server alone";
                Some(("only `requests` are counted together with other servers".into(), help.into()))
            }
            (true, false) => Some(("this limit is shared with nobody".into(), NO_STORE.into())),
            _ => None,
        }
    }

    fn check_classes(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        for item in items.iter().filter(|item| item.directive.name == "bandwidth" && !item.is_faulty) {
            constant(checker, item, "all requests share one bandwidth", "by");
            let is_class = item.properties.iter().any(|(name, _)| *name == "class");
            let Some(class) = bandwidth(item, "").filter(|_| is_class) else { continue };
            match self.classes.entry(class.name.clone()) {
                Entry::Vacant(place) => drop(place.insert(class)),
                Entry::Occupied(known) if known.get().agrees(&class) => {}
                Entry::Occupied(known) => {
                    let message =
                        format!("the bandwidth of {} is another in {}", class.name, known.get().origin);
                    let help = "all of a class share it, so they have to say the same: give this one another name, or \
                                write it once with `rules`";
                    checker.diagnostics.push(item.error(message).help(help));
                }
            }
        }
    }
}

/// What a limit of `bound` says that only another has.
fn misplaced(item: &Item, bound: &str) -> Option<(String, String)> {
    let has = |wanted: &str| item.properties.iter().any(|(name, _)| *name == wanted);
    let belongs = [("burst", "requests"), ("queue", "concurrent"), ("age", "concurrent")];
    if let Some((property, owner)) = belongs.into_iter().find(|(name, owner)| has(name) && *owner != bound) {
        let message = format!("`{property}` belongs to `{owner}`, and this limits `{bound}`");
        return Some((message, format!("write `{}`", item.written_without(property))));
    }
    let is_alone = has("age") && !has("queue");
    is_alone.then(|| {
        let help = "say how many may wait, with `queue=`, or take `age` out";
        ("`age` is how long a request may wait, and none may".to_owned(), help.to_owned())
    })
}

/// Warns of a key that is the same for everybody and was hardly meant to be.
pub(super) fn constant(checker: &mut Checker<'_>, item: &Item, so: &str, property: &str) {
    let written = item.properties.iter().find(|(name, _)| *name == property);
    let Some((_, Placed { value: Value::Text(text), range })) = written else { return };
    let (message, help) = match meant_by_constant(text) {
        Some(meant) => (
            format!(
                "`{text}` stays as it is written, so that {so}: placeholders are written in curly brackets"
            ),
            format!("write `{property}=\"{{{meant}}}\"`"),
        ),
        None if is_constant(text)
            && !FOR_ALL.contains(&&**text)
            && foreign(Kind::FieldTemplate, "", text).is_none() =>
        {
            (
                format!("`{text}` is the same for every request, so that {so}"),
                format!(
                    "write `{property}=\"{{client}}\"` where each client is counted by itself, `{property}=\"all\"` where one for all is meant"
                ),
            )
        }
        None => return,
    };
    let warning = Diagnostic::warning(message).at(&item.file.source, range.clone());
    checker.diagnostics.push(warning.help(help));
}

/// Whether a burst takes longer to come back than any key is remembered; then it would be a smaller one.
fn too_slow(limit: &Limit) -> Option<(String, String)> {
    let Bound::Requests(RequestRate { count, period, burst }) = limit.bound else { return None };
    let day = 24 * 3600 * 1_000_000_000;
    let whole = period.as_nanos().saturating_mul(u128::from(burst.get())) / u128::from(count.get());
    if whole <= RequestRate::LONGEST.as_nanos() {
        return None;
    }
    let most =
        RequestRate::LONGEST.as_nanos().saturating_mul(u128::from(count.get())) / period.as_nanos().max(1);
    let longest = RequestRate::LONGEST.as_nanos() / day;
    let message = format!(
        "{burst} at once take {} days to come back, and nobody is remembered for more than {longest}",
        whole / day
    );
    let help = match most {
        0 => format!("allow at least one request in {longest} days"),
        most => format!("say `burst={most}` or less, or a higher rate"),
    };
    Some((message, help))
}

impl Names {
    fn check_bans(&mut self, checker: &mut Checker<'_>, items: &[Item]) {
        let items = items.iter().filter(|item| item.directive.name == "ban" && !item.is_word("off"));
        for item in items.filter(|item| !item.is_faulty) {
            let Some(ban) = ban(item) else { continue };
            let is_refusal = |status: &u16| (400..=599).contains(status);
            if ban.statuses.is_empty() || !ban.statuses.iter().all(is_refusal) {
                let message =
                    "`statuses` of `ban` are refusals: numbers from 400 to 599 with spaces between them";
                let help = format!("for example `{}`", item.directive.example);
                checker.diagnostics.push(item.error(message).help(help));
                continue;
            }
            if !ban.answer.as_ref().is_none_or(is_refusal) {
                let message = "`answer` of `ban` is a refusal, from 400 to 599, or `close`";
                let help = format!("for example `{}`", item.directive.example);
                checker.diagnostics.push(item.error(message).help(help));
                continue;
            }
            if ban.is_shared && !self.has_store {
                checker.diagnostics.push(item.error("this ban is shared with nobody").help(NO_STORE));
                continue;
            }
            match self.bans.entry(ban.name.clone()) {
                Entry::Vacant(place) => drop(place.insert(ban)),
                Entry::Occupied(known) if known.get().agrees(&ban) => {}
                Entry::Occupied(known) => {
                    let message =
                        format!("the ban `{}` says something else in {}", ban.name, known.get().origin);
                    let help = "all of one name count together, so they have to say the same: give this one another name";
                    checker.diagnostics.push(item.error_at(0, message).help(help));
                }
            }
        }
    }
}

/// What a `ban` says; `None` where something is wrong with it. A status that is none is 0.
pub(super) fn ban(item: &Item) -> Option<Ban> {
    let name = item.texts().into_iter().next()?;
    let Some(Value::Text(statuses)) = item.property("statuses") else { return None };
    let Some(Value::Text(answer)) = item.property("answer") else { return None };
    let time = |name| match item.property(name) {
        Some(Value::Duration(time)) => Some(time),
        _ => None,
    };
    let number = |name| match item.property(name) {
        Some(Value::Number(number)) => u32::try_from(number).ok(),
        _ => None,
    };
    Some(Ban {
        name,
        statuses: statuses.split_ascii_whitespace().map(|status| status.parse().unwrap_or(0)).collect(),
        count: number("count")?,
        within: time("within")?,
        lasts: time("for")?,
        answer: (answer != "close").then(|| answer.parse().unwrap_or(0)),
        tarpit: time("tarpit"),
        keys: number("keys")?,
        is_tracked: item.arguments.iter().any(|placed| placed.value == Value::Word("track")),
        is_shared: is_shared(item),
        origin: item.origin(),
    })
}

/// What a `bandwidth` of a level says; `None` where something is wrong with it.
pub(super) fn bandwidth(item: &Item, level: &str) -> Option<Bandwidth> {
    let Some(Value::Number(speed)) = item.first() else { return None };
    let size = |name| match item.property(name) {
        Some(Value::Number(size)) => size,
        _ => 0,
    };
    let text = |name| match item.property(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let by = text("by").unwrap_or_default();
    let name = match text("class") {
        Some(class) => format!("the class {class}"),
        None if by.is_empty() => level.to_owned(),
        None => format!("{level} by {by}"),
    };
    Some(Bandwidth {
        name,
        speed: NonZeroU64::new(*speed)?,
        burst: size("burst"),
        after: size("after"),
        by,
        keys: u32::try_from(size("keys")).unwrap_or(u32::MAX),
        is_tracked: item.arguments.iter().any(|placed| placed.value == Value::Word("track")),
        origin: item.origin(),
    })
}

fn is_shared(item: &Item) -> bool {
    item.arguments.iter().any(|placed| placed.value == Value::Word("shared"))
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
            // With 2.5 a second, which is 5 in 2 s, it is 3.
            let in_unit = || {
                let (units, _) = crate::value::rate_units(period);
                NonZeroU64::new(count.get().div_ceil(units.get())).unwrap_or(count)
            };
            Bound::Requests(RequestRate { count, period, burst: number("burst").unwrap_or_else(in_unit) })
        }
        _ => match (small("concurrent"), small("connections")) {
            (Some(most), _) => Bound::Concurrent(most),
            (None, most) => Bound::Connections(most?),
        },
    };
    let Some(Value::Text(by)) = item.property("by") else { return None };
    let keys = number("keys").map_or(1, |keys| u32::try_from(keys.get()).unwrap_or(u32::MAX));
    let is_tracked = item.arguments.iter().any(|placed| placed.value == Value::Word("track"));
    let lease = match bound {
        Bound::Requests(rate) if is_shared(item) => {
            let quarter = NonZeroU32::new(u32::try_from(rate.burst.get() / 4).unwrap_or(u32::MAX));
            small("lease").or(quarter).or(Some(NonZeroU32::MIN))
        }
        _ => None,
    };
    let length = match item.property("queue") {
        Some(Value::Number(length)) => u32::try_from(length).unwrap_or(u32::MAX),
        _ => 0,
    };
    let queue = match (bound, item.property("age")) {
        (Bound::Concurrent(_), Some(Value::Duration(age))) if length > 0 => Some(Queue { length, age }),
        _ => None,
    };
    Some(Limit { name, bound, by, keys, is_tracked, lease, queue, origin: item.origin() })
}
