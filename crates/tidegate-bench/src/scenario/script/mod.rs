//! Functions in JavaScript that a scenario calls for what is not declarative: a signature, a body, a check, what comes next.
//!
//! `read` takes a script in and knows what it exports; `crate::scenario::engine` calls it. Each worker has an [`Engine`] of its own, so
//! that nothing waits for a lock. A function gets a [`Given`] and its answer is a [`Said`]; what that means is said here, without the
//! engine. Whatever a script does fails the operation that called it, and never the generator.

#[cfg(feature = "scripting")]
mod engine;
#[cfg(not(feature = "scripting"))]
#[path = "absent.rs"]
mod engine;
#[cfg(feature = "scripting")]
mod host;

pub(super) use engine::Engine;

use crate::quantity::{show_bytes, show_duration};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Bytes of the file, at most.
pub(super) const MOST_TEXT: u64 = 1 << 20;

/// Bytes that a script may give a variable, at most.
const MOST_VALUE: usize = 256 << 10;

/// Bytes of a text that a check says, at most.
const MOST_REASON: usize = 500;

/// A script, as its file was read.
#[derive(Debug, Clone)]
pub struct Script {
    /// The name of its file, as errors have it.
    pub name: String,
    /// The file.
    pub text: Arc<str>,
    /// The processor time that one call may take.
    pub within: Duration,
    /// What it exports, in the order in which the engine has it.
    pub exports: Vec<Export>,
}

/// Something that a script exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// Where the function begins, line and column from 1; of what is none, nothing.
    pub place: Option<(u32, u32)>,
    /// Whether it can be called.
    pub is_function: bool,
}

/// The functions that a step calls.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// Before its request is written, in order.
    pub before: Vec<Call>,
    /// With its answer, behind what it takes.
    pub after: Vec<Call>,
}

/// A function that is called.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its place in [`Script::exports`].
    pub function: u16,
    /// What its answer is for.
    pub purpose: Purpose,
}

/// What the answer of a function is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// It fills these variables.
    Fill(Vec<u16>),
    /// It says whether the answer of the server is right.
    Check,
}

/// What is wrong with a script before it is used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(dead_code, reason = "with an engine the one is never said, without it the other")]
pub(super) enum Mistake {
    /// This program has no engine.
    #[error("this program was built without scripts")]
    NotBuilt,
    /// Line and column from 1, where they are known, and a sentence.
    #[error("{1}")]
    Wrong(Option<(u32, u32)>, String),
}

/// What a function gets.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "scripting"), allow(dead_code, reason = "nobody reads it without an engine"))]
pub(super) struct Given<'a> {
    /// The number of the user.
    pub user: u32,
    /// The operation that it is in.
    pub operation: &'a str,
    /// The variables that hold something.
    pub vars: Vec<(&'a str, Cow<'a, str>)>,
    /// The answer, where there is one.
    pub response: Option<Response<'a>>,
}

/// An answer of the server.
#[derive(Debug)]
#[cfg_attr(not(feature = "scripting"), allow(dead_code, reason = "nobody reads it without an engine"))]
pub(super) struct Response<'a> {
    pub status: u16,
    /// Names in small letters, each with its value; of several of a name with `, ` between them.
    pub headers: Vec<(String, String)>,
    pub body: &'a [u8],
}

/// What a function has returned.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "scripting"), allow(dead_code, reason = "nobody makes it without an engine"))]
pub(super) enum Said {
    /// `undefined` or `null`.
    Nothing,
    Bool(bool),
    /// A text, a number, or a list as JSON.
    Text(String),
    /// An object: its own properties as texts; without one where it is `undefined` or `null`.
    Fields(Vec<(String, Option<String>)>),
}

/// Why a call has failed. The script is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[cfg_attr(not(feature = "scripting"), allow(dead_code, reason = "nothing is called without an engine"))]
pub(super) enum ScriptError {
    /// An exception: of what, kind and message.
    #[error("{0}: {1}")]
    Threw(Called, String),
    /// It was ended.
    #[error("{called} took more than {} of the processor; `within=` of `script` is the most", show_duration(*within))]
    TookTooLong {
        /// Which.
        called: Called,
        /// The most.
        within: Duration,
    },
    /// What it returned is of no use.
    #[error("{0} returned {1}")]
    Returned(Called, String),
}

/// A function that was called, and where in the script that came to an end: where it threw or was ended, as far as that is known, else
/// where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    /// Its name.
    pub function: String,
    /// The name of the script's file.
    pub file: String,
    /// Line and column, from 1.
    pub place: Option<(u32, u32)>,
}

/// `name` (file:line:column)
impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.function)?;
        self.place.map_or(Ok(()), |(line, column)| write!(f, " ({}:{line}:{column})", self.file))
    }
}

impl Script {
    /// The name of what is exported at a place.
    pub(super) fn export(&self, function: u16) -> &str {
        self.exports.get(usize::from(function)).map_or("", |export| &export.name)
    }

    /// A function, and where it begins.
    pub(super) fn called(&self, function: u16) -> Called {
        let export = self.exports.get(usize::from(function));
        Called {
            function: self.export(function).to_owned(),
            file: self.name.clone(),
            place: export.and_then(|export| export.place),
        }
    }

    /// What is wrong with what a function has returned.
    pub(super) fn returned(&self, function: u16, what: impl Into<String>) -> ScriptError {
        ScriptError::Returned(self.called(function), what.into())
    }

    /// The values of variables that a function was called for; `names` has the names of all variables.
    pub(super) fn values(
        &self,
        function: u16,
        variables: &[u16],
        said: Said,
        names: &[String],
    ) -> Result<Vec<(u16, String)>, ScriptError> {
        let returned = |what: String| self.returned(function, what);
        let name = |variable: u16| names.get(usize::from(variable)).map_or("", String::as_str);
        let values = match (said, variables) {
            (Said::Fields(fields), _) => {
                let mut values = Vec::new();
                for (field, value) in fields {
                    let wanted = variables.iter().find(|variable| name(**variable) == field);
                    let Some(variable) = wanted else {
                        return Err(returned(format!("`{field}`, which its `call` does not name")));
                    };
                    values.extend(value.map(|value| (*variable, value)));
                }
                values
            }
            (Said::Text(text), [only]) => vec![(*only, text)],
            (Said::Bool(value), [only]) => vec![(*only, value.to_string())],
            (Said::Nothing, _) => Vec::new(),
            // Who wants no value takes any.
            (_, []) => Vec::new(),
            (Said::Text(_) | Said::Bool(_), _) => {
                return Err(returned(
                    "one value where several variables are named; return an object".to_owned(),
                ));
            }
        };
        for variable in variables {
            if !values.iter().any(|(known, _)| known == variable) {
                return Err(returned(format!("no `{}`", name(*variable))));
            }
        }
        match values.iter().find(|(_, value)| value.len() > MOST_VALUE) {
            Some((variable, value)) => Err(returned(format!(
                "{} for `{}`, and a variable holds {} at most",
                show_bytes(value.len() as f64),
                name(*variable),
                show_bytes(MOST_VALUE as f64)
            ))),
            None => Ok(values),
        }
    }

    /// What a check has against an answer, in words; `Ok(None)` where it is right.
    pub(super) fn objection(&self, function: u16, said: Said) -> Result<Option<String>, ScriptError> {
        let name = self.export(function);
        match said {
            Said::Bool(true) => Ok(None),
            Said::Bool(false) => Ok(Some(format!("`{name}` says that the answer is not right"))),
            Said::Text(text) => {
                let text: String = text.chars().take(MOST_REASON).collect();
                Ok(Some(format!("`{name}`: {text}")))
            }
            Said::Nothing | Said::Fields(_) => {
                let what = if said == Said::Nothing { "nothing" } else { "an object" };
                let rule = "a check returns true, false, or a text that says what is wrong";
                Err(self.returned(function, format!("{what}; {rule}")))
            }
        }
    }

    /// The name of the operation that is chosen; `None` where the mix decides.
    pub(super) fn choice(&self, function: u16, said: Said) -> Result<Option<String>, ScriptError> {
        match said {
            Said::Text(name) => Ok(Some(name)),
            Said::Nothing => Ok(None),
            Said::Bool(_) | Said::Fields(_) => {
                Err(self.returned(function, "no name of an operation; nothing leaves it to the mix"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        let exports = vec![Export { name: "f".to_owned(), place: Some((2, 8)), is_function: true }];
        Script { name: "s.js".into(), text: "".into(), within: Duration::from_millis(100), exports }
    }

    #[test]
    fn what_is_returned_fills_what_is_named() {
        let names = ["user", "a", "b"].map(str::to_owned);
        let text = |text: &str| Said::Text(text.to_owned());
        let fields = |fields: &[(&str, Option<&str>)]| {
            let owned = |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(str::to_owned));
            Said::Fields(fields.iter().map(owned).collect())
        };
        type Row<'r> = (&'r [u16], Said, Result<&'r [(u16, &'r str)], &'r str>);
        let table: [Row<'_>; 11] = [
            (&[1], text("x"), Ok(&[(1, "x")])),
            (&[1], Said::Bool(true), Ok(&[(1, "true")])),
            (&[1, 2], fields(&[("b", Some("y")), ("a", Some("x"))]), Ok(&[(2, "y"), (1, "x")])),
            (&[], Said::Nothing, Ok(&[])),
            (&[], text("x"), Ok(&[])),
            (&[1, 2], text("x"), Err("`f` (s.js:2:8) returned one value where several")),
            (&[1, 2], fields(&[("a", Some("x"))]), Err("`f` (s.js:2:8) returned no `b`")),
            (&[1], fields(&[("a", None)]), Err("`f` (s.js:2:8) returned no `a`")),
            (&[1], Said::Nothing, Err("`f` (s.js:2:8) returned no `a`")),
            (&[1], fields(&[("a", Some("x")), ("c", Some("y"))]), Err("`c`, which its `call` does not name")),
            (&[1], text(&"x".repeat(MOST_VALUE + 1)), Err("a variable holds 256 KiB at most")),
        ];
        for (variables, said, expected) in table {
            let shown = format!("{variables:?} {said:?}");
            match (script().values(0, variables, said, &names), expected) {
                (Ok(values), Ok(expected)) => {
                    let values: Vec<(u16, &str)> =
                        values.iter().map(|(variable, value)| (*variable, value.as_str())).collect();
                    assert_eq!(values, expected, "{shown}");
                }
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{error}");
                }
                (got, expected) => panic!("{got:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn checks_and_choices() {
        let script = script();
        assert_eq!(script.objection(0, Said::Bool(true)), Ok(None));
        assert!(script.objection(0, Said::Bool(false)).unwrap().unwrap().contains("not right"));
        assert_eq!(script.objection(0, Said::Text("too old".into())).unwrap().unwrap(), "`f`: too old");
        assert!(script.objection(0, Said::Nothing).unwrap_err().to_string().contains("a check returns"));
        assert_eq!(script.choice(0, Said::Text("home".into())), Ok(Some("home".to_owned())));
        assert_eq!(script.choice(0, Said::Nothing), Ok(None));
        assert!(script.choice(0, Said::Bool(true)).is_err());
    }
}
