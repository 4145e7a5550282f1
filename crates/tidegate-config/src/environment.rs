//! Substitution of environment variables in strings: `"${NAME}"` and `"${NAME:-default}"`.
//!
//! Done once on every string value before its type is checked, and not again on what was put in: a variable
//! cannot smuggle in another. `$${` stands for the two characters `${`; a `$` before anything else is itself.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Where variables come from; a parameter so that tests and `check --env` need no process environment.
pub trait Environment {
    /// The value of a variable, if it is set and valid UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// Whether it is set, to whatever bytes.
    fn is_set(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }
}

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn is_set(&self, name: &str) -> bool {
        std::env::var_os(name).is_some()
    }
}

impl Environment for BTreeMap<String, String> {
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

/// Why a string could not be completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubstitutionError {
    #[error("the environment variable `{0}` is not set")]
    Unset(String),
    #[error("the environment variable `{0}` is not UTF-8")]
    NotText(String),
    #[error("`${{` is not closed by `}}`")]
    Unclosed,
    #[error("`{0}` is not a name of an environment variable")]
    BadName(String),
    #[error("a variable stands within `${{{0}:-…}}`, where it would not be filled in")]
    Nested(String),
    #[error("the value is longer than {LONGEST} bytes once its variables are filled in")]
    TooLong,
}

/// The most bytes of a value with its variables filled in.
const LONGEST: usize = 64 * 1024;

/// Fills in the variables of a string.
pub(crate) fn substitute<'t>(
    text: &'t str,
    environment: &dyn Environment,
) -> Result<Cow<'t, str>, SubstitutionError> {
    if text.len() <= LONGEST && !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, behind) = rest.split_at(at);
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str("${");
            rest = &behind[2..];
            continue;
        }
        out.push_str(before);
        let inside = &behind[2..];
        if let Some((name, default)) = inside.split_once(":-")
            && !name.contains('}')
            && let (Some(nested), end) = (default.find("${"), default.find('}'))
            && end.is_none_or(|end| nested < end)
        {
            return Err(SubstitutionError::Nested(name.to_owned()));
        }
        let end = inside.find('}').ok_or(SubstitutionError::Unclosed)?;
        out.push_str(&expand(&inside[..end], environment)?);
        rest = &inside[end + 1..];
        if out.len() > LONGEST {
            return Err(SubstitutionError::TooLong);
        }
    }
    out.push_str(rest);
    if out.len() > LONGEST { Err(SubstitutionError::TooLong) } else { Ok(Cow::Owned(out)) }
}

fn expand(inside: &str, environment: &dyn Environment) -> Result<String, SubstitutionError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = name
        .bytes()
        .enumerate()
        .all(|(at, byte)| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()));
    if name.is_empty() || !is_name {
        return Err(SubstitutionError::BadName(name.to_owned()));
    }
    // As in the shell, `:-` also stands in for a variable that is set but empty.
    match (environment.variable(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, _) if environment.is_set(name) => Err(SubstitutionError::NotText(name.to_owned())),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(SubstitutionError::Unset(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable that is set, and to no text.
    struct Bytes;

    impl Environment for Bytes {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }

        fn is_set(&self, name: &str) -> bool {
            name == "BYTES"
        }
    }

    #[test]
    fn what_is_set_to_no_text_is_not_said_to_be_unset() {
        for (text, expected) in [
            ("${BYTES}", Err(SubstitutionError::NotText("BYTES".to_owned()))),
            ("${BYTES:-d}", Err(SubstitutionError::NotText("BYTES".to_owned()))),
            ("${NO:-d}", Ok("d".to_owned())),
            ("${NO}", Err(SubstitutionError::Unset("NO".to_owned()))),
        ] {
            assert_eq!(substitute(text, &Bytes).map(Cow::into_owned), expected, "{text}");
        }
    }

    #[test]
    fn substitutes_once() {
        let environment =
            BTreeMap::from([("A".to_owned(), "${B}".to_owned()), ("EMPTY".to_owned(), String::new())]);
        let cases = [
            ("plain $5 {path}", Ok("plain $5 {path}".to_owned())),
            ("x${A}y", Ok("x${B}y".to_owned())),
            ("${NO:-d}${EMPTY:-e}[${EMPTY}]", Ok("de[]".to_owned())),
            ("$${A} $$", Ok("${A} $$".to_owned())),
            ("${NO}", Err(SubstitutionError::Unset("NO".to_owned()))),
            ("${NO:-${A}}", Err(SubstitutionError::Nested("NO".to_owned()))),
            ("${A:-x${B:-y}}", Err(SubstitutionError::Nested("A".to_owned()))),
            ("${A}:-${NO:-d}", Ok("${B}:-d".to_owned())),
            ("${A", Err(SubstitutionError::Unclosed)),
            ("${}", Err(SubstitutionError::BadName(String::new()))),
            ("${9}", Err(SubstitutionError::BadName("9".to_owned()))),
        ];
        for (text, expected) in cases {
            assert_eq!(substitute(text, &environment).map(Cow::into_owned), expected, "{text}");
        }
    }
}
