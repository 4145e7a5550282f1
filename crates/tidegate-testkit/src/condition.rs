//! What is expected of the server beside its responses: statistics, logs, files, the output of a command.
//!
//! Parsed here and compared here; `run.rs` fetches what there is to compare.

use serde_json::Value;

use crate::pattern::{Pattern, contains};
use crate::token::{Token, Variables, substitute};

/// Waits until it holds, or fails after five seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// A number or string in the status report.
    Stats { path: String, relation: Relation, value: Value },
    /// What the server has written to its standard output and error.
    Log(TextCheck),
    /// A file below the transcript's folder.
    File { path: String, check: TextCheck },
    /// A certificate that was made with a life is over.
    Expired { certificate: String },
    /// The answer to a GET on a connection of its own.
    Get { target: String, host: String, check: GetCheck },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GetCheck {
    Status(u16),
    Body(TextCheck),
}

/// A line below `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    Exit(i32),
    Stdout(TextCheck),
    Stderr(TextCheck),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// `contains "x"`, `lacks "x"`, `is "x"` (exactly, or `~` and a pattern).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextCheck {
    Contains(Vec<u8>),
    Lacks(Vec<u8>),
    Is(Vec<u8>),
}

impl TextCheck {
    /// Reads the last two tokens of a line.
    pub(crate) fn parse(tokens: &[Token]) -> Result<Self, String> {
        match tokens {
            [Token::Word(how), Token::Quoted(text)] => match how.as_str() {
                "contains" => Ok(TextCheck::Contains(text.clone())),
                "lacks" => Ok(TextCheck::Lacks(text.clone())),
                "is" => Ok(TextCheck::Is(text.clone())),
                _ => Err(format!("`{how}`: expected contains, lacks or is")),
            },
            _ => Err("expected contains, lacks or is, and a quoted text".to_owned()),
        }
    }

    /// Whether `text` is as stated.
    pub(crate) fn holds(&self, text: &[u8], variables: &Variables) -> Result<bool, String> {
        Ok(match self {
            TextCheck::Contains(part) => contains(text, &substitute(part, variables)?),
            TextCheck::Lacks(part) => !contains(text, &substitute(part, variables)?),
            TextCheck::Is(whole) => Pattern::new(&substitute(whole, variables)?).matches(text),
        })
    }
}

impl Condition {
    /// Reads what stands behind `expect`.
    pub(crate) fn parse(tokens: &[Token]) -> Result<Self, String> {
        match tokens {
            [Token::Word(log), check @ ..] if log == "log" => TextCheck::parse(check).map(Condition::Log),
            [Token::Word(file), Token::Word(path), check @ ..] if file == "file" => {
                Ok(Condition::File { path: path.clone(), check: TextCheck::parse(check)? })
            }
            [Token::Word(word), Token::Word(name), Token::Word(expired)]
                if word == "certificate" && expired == "expired" =>
            {
                Ok(Condition::Expired { certificate: name.clone() })
            }
            [Token::Word(get), Token::Word(target), rest @ ..] if get == "get" => parse_get(target, rest),
            [Token::Word(path), Token::Word(relation), value]
                if PARTS.iter().any(|part| path.starts_with(part)) =>
            {
                let value = match value {
                    Token::Word(number) => number.parse().map_err(|_| format!("`{number}` is no number"))?,
                    Token::Quoted(text) => Value::String(String::from_utf8_lossy(text).into_owned()),
                };
                Ok(Condition::Stats { path: path.clone(), relation: Relation::parse(relation)?, value })
            }
            _ => Err("expected stats.NAME, upstreams.NUMBER.NAME, log, file, certificate or get".to_owned()),
        }
    }
}

fn parse_get(target: &str, rest: &[Token]) -> Result<Condition, String> {
    let (host, rest) = match rest {
        [Token::Word(host), rest @ ..] if host.starts_with("host=") => {
            (host.trim_start_matches("host="), rest)
        }
        _ => ("localhost", rest),
    };
    let check = match rest {
        [Token::Word(status), Token::Word(equals), Token::Word(code)]
            if status == "status" && equals == "==" =>
        {
            GetCheck::Status(code.parse().map_err(|_| format!("`{code}` is no status"))?)
        }
        _ => GetCheck::Body(TextCheck::parse(rest)?),
    };
    Ok(Condition::Get { target: target.to_owned(), host: host.to_owned(), check })
}

impl Relation {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "==" => Relation::Equal,
            "!=" => Relation::NotEqual,
            "<" => Relation::Less,
            "<=" => Relation::LessOrEqual,
            ">" => Relation::Greater,
            ">=" => Relation::GreaterOrEqual,
            _ => return Err(format!("`{text}`: expected == != < <= > or >=")),
        })
    }

    /// Whether the relation holds. Strings know only `==` and `!=`.
    pub(crate) fn holds(self, left: &Value, right: &Value) -> bool {
        let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) else {
            return match self {
                Relation::Equal => left == right,
                Relation::NotEqual => left != right,
                _ => false,
            };
        };
        match self {
            Relation::Equal => a == b,
            Relation::NotEqual => a != b,
            Relation::Less => a < b,
            Relation::LessOrEqual => a <= b,
            Relation::Greater => a > b,
            Relation::GreaterOrEqual => a >= b,
        }
    }
}

/// The parts of a status report.
const PARTS: [&str; 4] = ["stats.", "upstreams.", "pools.", "caches."];

/// The value at `stats.a.b` in a status report. The report may hold the statistics as its member `stats`, or
/// be them.
pub(crate) fn member<'a>(report: &'a Value, path: &str) -> Option<&'a Value> {
    let (path, root) = match path.strip_prefix("stats.") {
        Some(path) => (path, report.get("stats").unwrap_or(report)),
        None => (path, report),
    };
    path.split('.').try_fold(root, |value, name| match value {
        Value::Array(values) => values.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    #[test]
    fn conditions_are_read() {
        for line in [
            "stats.requests == 3",
            "stats.responses.codes.404 >= 1",
            "stats.name != \"x\"",
            "log contains \"x\"",
            "file logs/access.log lacks \"x\"",
            "get /x status == 200",
            "get /x host=a.example contains \"x\"",
            "get /x is \"~x*\"",
        ] {
            assert!(Condition::parse(&tokens(line).expect(line)).is_ok(), "{line}");
        }
        for line in
            ["stats.requests = 3", "stats.requests == many", "requests == 3", "log \"x\"", "get /x 200", ""]
        {
            assert!(Condition::parse(&tokens(line).expect(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn members_are_found_in_either_form() {
        for report in [r#"{"a":{"b":[1,2]}}"#, r#"{"stats":{"a":{"b":[1,2]}}}"#] {
            let report: Value = serde_json::from_str(report).expect("JSON");
            let found = member(&report, "stats.a.b.1").expect("a member");
            assert!(Relation::Equal.holds(found, &Value::from(2)));
            assert!(Relation::GreaterOrEqual.holds(found, &Value::from(2)));
            assert!(!Relation::Less.holds(found, &Value::from(2)));
            assert_eq!(member(&report, "stats.a.c"), None);
        }
    }
}
