//! Files that are written for a run: a template with the variables of the environment filled in.
//!
//! `${NAME}` and `${NAME:-default}` are filled in where the name is of capital letters, digits and `_`, as variables of the environment
//! are: `$host` and `${request_uri}` of a server's own language stay as they are. `$${NAME}` stands for the characters `${NAME}`.

use super::{Reader, text_of_file};
use crate::systems::Before;
use std::ops::Range;
use std::time::Duration;
use tidegate_config::language::Item;
use tidegate_config::{Diagnostic, Environment, Source};

/// Bytes of a template, at most.
const MOST: u64 = 4 << 20;

impl Reader {
    pub(super) fn configure(&mut self, item: &Item, environment: &dyn Environment) -> Option<Before> {
        let path = item.text(0)?;
        if !path.starts_with('/') {
            self.error(
                item.error_at(0, format!("`configure`: {path} is no whole path")),
                "write it from the `/` on: no folder is that of the other machine",
            );
        }
        let Some(from) = item.path_of("from") else {
            if !item.has_faults() {
                let help = format!("write `configure \"{path}\" from=\"FILE\"`");
                self.error(item.error("`configure` does not say what is to be written"), help);
            }
            return None;
        };
        let text = match text_of_file(&from, MOST) {
            Ok(text) => text,
            Err(fault) => {
                let message = format!("`configure`: {} {fault}", from.display());
                self.error(item.error_of("from", message), "name a file beside the scenario");
                return None;
            }
        };
        let (filled, unset) = fill(&text, environment);
        let source = Source::new(&from.display().to_string(), &text);
        for (range, name) in unset {
            let what = if environment.is_set(&name) { "UTF-8" } else { "set" };
            let message = format!("the environment variable `{name}` is not {what}");
            let help = format!(
                "set it, have `bench queue` set it, write `${{{name}:-default}}`, or `$${{{name}}}` for the characters themselves"
            );
            self.error(Diagnostic::error(message).at(&source, range), help);
        }
        let within = item.duration_of("within").unwrap_or(Duration::from_secs(30));
        Some(Before::Configure { path, text: filled.into(), template: text.into(), within })
    }
}

/// The text with variables filled in, and those that are not set, each with where it stands.
fn fill(text: &str, environment: &dyn Environment) -> (String, Vec<(Range<usize>, String)>) {
    let (mut out, mut unset) = (String::with_capacity(text.len()), Vec::new());
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find("${")) {
        let start = at + found;
        out.push_str(text.get(at..start).unwrap_or_default());
        let inside = text.get(start + 2..).unwrap_or_default();
        let placed = inside.split_once('}').and_then(|(inside, _)| {
            let (name, default) =
                inside.split_once(":-").map_or((inside, None), |(name, text)| (name, Some(text)));
            is_name(name).then_some((inside.len(), name, default))
        });
        let Some((length, name, default)) = placed else {
            out.push_str("${");
            at = start + 2;
            continue;
        };
        at = start + 3 + length;
        let whole = text.get(start..at).unwrap_or_default();
        if out.ends_with('$') {
            out.pop();
            out.push_str(whole);
            continue;
        }
        let value = environment.variable(name);
        // As in the shell, `:-` also stands in for a variable that is set but empty.
        match (value.filter(|value| default.is_none() || !value.is_empty()), default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) if !environment.is_set(name) || environment.variable(name).is_some() => {
                out.push_str(default);
            }
            (None, _) => unset.push((start..at, name.to_owned())),
        }
    }
    out.push_str(text.get(at..).unwrap_or_default());
    (out, unset)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::fill;
    use std::collections::BTreeMap;
    use tidegate_config::Environment;

    /// All is set, and to no text.
    struct Bytes;

    impl Environment for Bytes {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }

        fn is_set(&self, _: &str) -> bool {
            true
        }
    }

    #[test]
    fn what_is_set_to_no_text_is_not_left_to_its_default() {
        assert_eq!(fill("${A:-d}", &Bytes), (String::new(), vec![(0..7, "A".to_owned())]));
    }

    #[test]
    fn variables_are_filled_in_and_all_else_stays() {
        let environment = [("WORKERS", "4"), ("EMPTY", ""), ("ODD", "${WORKERS}")];
        let environment: BTreeMap<String, String> =
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for (text, expected, unset) in [
            ("workers ${WORKERS};", "workers 4;", vec![]),
            ("$host ${host} ${} ${9X} $ ${", "$host ${host} ${} ${9X} $ ${", vec![]),
            ("[${EMPTY}] ${EMPTY:-e} ${NONE:-d}", "[] e d", vec![]),
            ("$${WORKERS} $$${WORKERS}", "${WORKERS} $${WORKERS}", vec![]),
            ("${ODD}", "${WORKERS}", vec![]),
            ("é${NO}\n${WORKERS}${NOT}", "é\n4", vec![(2..7, "NO"), (18..24, "NOT")]),
        ] {
            let unset: Vec<_> = unset.into_iter().map(|(range, name)| (range, name.to_owned())).collect();
            assert_eq!(fill(text, &environment), (expected.to_owned(), unset), "{text}");
        }
    }
}
