//! The directives of queue files, as `scenario::language` has those of scenarios.

use tidegate_config::directive::{Children, Context, Directive, Kind, Place, one, some};
use tidegate_config::language::Language;

/// The place of the outermost directives.
pub(super) const OUTERMOST: Context = Context::Of(&Place { place: "at the top level", key: "queue" });
const RUN: Context = Context::Of(&Place { place: "in `run`", key: "run" });

/// The language of queues.
pub static LANGUAGE: Language = Language::new(&[DIRECTIVES]);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("name", Kind::Text { most: 100 })],
        doc: "What its state is called, by which an interrupted queue goes on. Without it that is the name of the file.",
        example: "queue \"workers\"",
        ..Directive::new("queue", &[OUTERMOST])
    },
    Directive {
        arguments: &[one("scenario", Kind::File)],
        children: Children::Block(RUN),
        repeats: true,
        doc: "A scenario file, which is run once for each combination of what its block sets.",
        example: "run \"events.kdl\" { set USERS \"500\" \"1000\"; set WORKERS \"1\" \"2\"; repeat 3 }",
        ..Directive::new("run", &[OUTERMOST])
    },
    Directive {
        arguments: &[one("name", Kind::Token), some("values", Kind::Text { most: 1_000 })],
        repeats: true,
        doc: "A variable of the environment and its values. The scenario has it as `${NAME}`, `users \"${USERS}\"`, and the commands of \
              systems on this machine find it in their environment.",
        example: "set USERS \"500\" \"1000\" \"2000\"",
        ..Directive::new("set", &[RUN])
    },
    Directive {
        arguments: &[one("times", Kind::Number { least: 1, most: 1_000 })],
        doc: "How often each combination is run. All are run once before any is run again.",
        example: "repeat 3",
        ..Directive::new("repeat", &[RUN])
    },
];

/// The part of `docs/reference/scenarios.md` that tells of queues.
pub fn reference() -> String {
    let sections = [
        (
            "Queues",
            OUTERMOST,
            "What `tidegate bench queue` reads: runs that are made one after another, in the same language.",
        ),
        ("In `run` of a queue", RUN, "What is changed from run to run."),
    ];
    LANGUAGE.reference("", &sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete() {
        for directive in LANGUAGE.all() {
            assert!(!directive.doc.is_empty(), "{}", directive.name);
            let formatted = tidegate_config::format(directive.example);
            assert_eq!(formatted.as_deref(), Ok(format!("{}\n", directive.example).as_str()));
        }
    }
}
