//! Which operation follows: `mix`, `sequence` or `flow`.

use super::Reader;
use crate::scenario::{Absence, Mix, Operation, Scenario};
use std::ops::Range;
use tidegate_config::language::{Item, RowView};
use tidegate_config::{Diagnostic, nearest};

/// The rows of a matrix.
struct Rows {
    /// The operation that the first one is of.
    first: Option<usize>,
    /// In the order of operations.
    shares: Vec<Vec<f64>>,
}

/// An error that points at the `op` of a name.
fn at_operation(items: &[Item], name: &str, message: String) -> Diagnostic {
    let written = items.iter().find(|item| item.name() == "op" && item.text(0).as_deref() == Some(name));
    match written {
        Some(item) => item.error_at(0, message),
        None => Diagnostic::error(message),
    }
}

impl Reader {
    /// Operations and their mix.
    pub(super) fn operations(&mut self, items: &[Item]) -> (Vec<Operation>, Option<Mix>) {
        let mut ways = items.iter().filter(|item| matches!(item.name(), "mix" | "sequence" | "flow"));
        let way = ways.next();
        // A second of the same has been said.
        if let Some(first) = way
            && let Some(second) = ways.find(|second| second.name() != first.name())
        {
            let message = format!("`{}` stands beside `{}`", second.name(), first.name());
            self.error(second.error(message), "which operation follows is said once; keep one of the two");
        }
        let mut operations: Vec<Operation> = Vec::new();
        for item in items.iter().filter(|item| item.name() == "op") {
            let Some(operation) = self.operation(item) else { continue };
            if operations.iter().any(|known| known.name == operation.name) {
                let message = format!("`op {}` is there already", operation.name);
                self.error(item.error_at(0, message), "give it another name");
                continue;
            }
            operations.push(operation);
        }
        let mix = match way {
            Some(item) if item.name() == "flow" => {
                if let Some(operation) = items.iter().find(|item| item.name() == "op") {
                    let help = "put its steps into `flow`, or name operations in `mix` or `sequence`";
                    self.error(operation.error("`op` stands beside `flow`, which has no place for it"), help);
                }
                operations = self.flow(item);
                Some(Mix::Sequence((0..operations.len()).collect())).filter(|_| !operations.is_empty())
            }
            Some(item) if item.name() == "sequence" => self.sequence(item, &operations),
            Some(item) => self.mix(item, &operations, items),
            None if items.iter().filter(|item| item.name() == "op").count() == 1 => {
                Some(Mix::Flat(vec![1.0]))
            }
            None => {
                self.missing(
                    &["mix", "sequence", "flow", "op"],
                    "nothing says which operation follows",
                    "write `mix { home 60; search 40 }`, `sequence home search`, or `flow { get \"/\" }`",
                );
                None
            }
        };
        (operations, mix)
    }

    /// The place of an operation; says so where there is none.
    fn known(
        &mut self,
        operations: &[Operation],
        name: &str,
        at: impl FnOnce(String) -> Diagnostic,
    ) -> Option<usize> {
        let place = operations.iter().position(|operation| operation.name == name);
        if place.is_none() {
            let near = nearest(name, operations.iter().map(|operation| operation.name.as_str()));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add `op {name} {{ get \"/\" }}`"),
            };
            self.error(at(format!("there is no operation `{name}`")), help);
        }
        place
    }

    fn sequence(&mut self, item: &Item, operations: &[Operation]) -> Option<Mix> {
        let names = item.all_texts();
        let places: Vec<Option<usize>> = names
            .iter()
            .enumerate()
            .map(|(argument, name)| self.known(operations, name, |message| item.error_at(argument, message)))
            .collect();
        let places: Option<Vec<usize>> = places.into_iter().collect();
        places.filter(|places| !places.is_empty()).map(Mix::Sequence)
    }

    fn mix(&mut self, item: &Item, operations: &[Operation], items: &[Item]) -> Option<Mix> {
        let start = item.text_of("start");
        let start =
            start.and_then(|name| self.known(operations, &name, |message| item.error_of("start", message)));
        let rows: Vec<RowView<'_>> = item.rows().collect();
        let Some(first) = rows.first() else {
            if !item.has_faults() {
                self.error(item.error("`mix` is empty"), "write `mix { home 60; search 40 }`");
            }
            return None;
        };
        let is_flat = first.numbers().next().is_some_and(|(name, ..)| name.is_none());
        if is_flat && start.is_some() {
            let message =
                "`start=` goes with a matrix: in a flat mix the first operation is drawn as all others";
            let help = "take it out, or say what follows what: `mix start=home { home search=100; search home=100 }`";
            self.error(item.error_of("start", message), help);
        }
        if is_flat {
            self.flat(item, &rows, operations)
        } else {
            let rows = self.matrix(&rows, operations, items);
            Some(Mix::Matrix { start: start.or(rows.first)?, rows: rows.shares })
        }
    }

    fn flat(&mut self, item: &Item, rows: &[RowView<'_>], operations: &[Operation]) -> Option<Mix> {
        let mut shares: Vec<Option<f64>> = vec![None; operations.len()];
        for row in rows {
            let place = self.known(operations, row.name(), |message| row.error(None, message));
            let mut numbers = row.numbers();
            match (numbers.next(), numbers.next()) {
                (Some((None, number, _)), None) => {
                    let share = place.and_then(|place| shares.get_mut(place));
                    if share.is_some_and(|share| share.replace(number as f64).is_some()) {
                        self.second_row(row);
                    }
                }
                _ => {
                    let message = format!("`{}` does not have one number, as the first row has", row.name());
                    self.error(
                        row.error(None, message),
                        "a flat mix is written `mix { home 60; search 40 }`",
                    );
                }
            }
        }
        let shares: Vec<f64> = shares.into_iter().map(Option::unwrap_or_default).collect();
        let whole: f64 = shares.iter().sum();
        if whole <= 0.0 && !self.had_mistakes && !self.has_errors() {
            self.error(item.error("all shares of `mix` are 0"), "write `mix { home 60; search 40 }`");
        }
        (whole > 0.0).then(|| Mix::Flat(shares.iter().map(|share| share / whole).collect()))
    }

    fn second_row(&mut self, row: &RowView<'_>) {
        let message = format!("`{}` has a row already", row.name());
        self.error(row.error(None, message), "keep one of the two");
    }

    fn matrix(&mut self, rows: &[RowView<'_>], operations: &[Operation], items: &[Item]) -> Rows {
        let mut matrix: Vec<Option<Vec<f64>>> = vec![None; operations.len()];
        let mut first = None;
        for row in rows {
            let place = self.known(operations, row.name(), |message| row.error(None, message));
            first = first.or(place);
            let mut shares: Vec<Option<f64>> = vec![None; operations.len()];
            let mut whole = 0;
            for (name, number, range) in row.numbers() {
                let Some(name) = name else {
                    self.nameless(row, range);
                    continue;
                };
                whole += number;
                let to = self.known(operations, name, |message| row.error(Some(range.clone()), message));
                let Some(share) = to.and_then(|to| shares.get_mut(to)) else { continue };
                if share.replace(number as f64 / 100.0).is_some() {
                    let message = format!("`{name}` stands twice in the row of `{}`", row.name());
                    self.error(row.error(Some(range), message), "keep one of the two");
                }
            }
            let shares: Vec<f64> = shares.into_iter().map(Option::unwrap_or_default).collect();
            if whole != 100 && !self.had_mistakes {
                let message = format!("the row of `{}` adds up to {whole}, not 100", row.name());
                self.error(
                    row.error(None, message),
                    "each number is the share of cases in which that operation follows",
                );
            }
            let Some(place) = place.and_then(|place| matrix.get_mut(place)) else { continue };
            if place.replace(shares).is_some() {
                self.second_row(row);
            }
        }
        let mut shares = Vec::new();
        for (operation, row) in operations.iter().zip(matrix) {
            if row.is_none() && !self.had_mistakes {
                let message = format!("`op {}` has no row in `mix`", operation.name);
                let help = "say in `mix` what follows it: each operation has a row that adds up to 100";
                self.error(at_operation(items, &operation.name, message), help);
            }
            shares.push(row.unwrap_or_else(|| vec![0.0; operations.len()]));
        }
        Rows { first, shares }
    }

    /// Operations that are never due, where that costs something.
    pub(super) fn warn_of_the_absent(&mut self, items: &[Item], scenario: &Scenario) {
        for (operation, absence) in scenario.operations.iter().zip(scenario.absences()) {
            let Some(absence) = absence else { continue };
            let help = match absence {
                Absence::Unreached => "give it a share, or take it out",
                Absence::Left if operation.is_judged() => {
                    "say in `mix` what leads back to it, or take a `rate`, with which each visit begins anew"
                }
                // That one login is not measured is no mistake; of short visits `rate` is to blame.
                Absence::Left | Absence::Beyond(_) => continue,
            };
            let message = absence.sentence(&operation.name);
            self.warn(at_operation(items, &operation.name, message), help);
        }
    }

    fn nameless(&mut self, row: &RowView<'_>, range: Range<usize>) {
        let message = format!("a number in the row of `{}` has no name", row.name());
        self.error(row.error(Some(range), message), "write `home search=60 login=40`");
    }
}
