//! How a transcript states a text: exactly, or with `~` in front as a pattern in which `*` stands for
//! anything.

use crate::token::{Variables, substitute};

/// A text to compare with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Vec<u8>,
    is_glob: bool,
}

impl Pattern {
    /// Reads `text` or `~glob`.
    pub(crate) fn new(text: &[u8]) -> Self {
        match text.strip_prefix(b"~") {
            Some(glob) => Pattern { text: glob.to_vec(), is_glob: true },
            None => Pattern { text: text.to_vec(), is_glob: false },
        }
    }

    /// The same with every `${NAME}` filled in. What is filled in may itself hold a `*`.
    pub(crate) fn filled(&self, variables: &Variables) -> Result<Self, String> {
        Ok(Pattern { text: substitute(&self.text, variables)?, is_glob: self.is_glob })
    }

    /// Whether `text` is what was stated.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        if self.is_glob { glob(&self.text, text) } else { self.text == text }
    }
}

/// Greedy from the left, with one place to fall back to: linear for each star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut in_text) = (0, 0);
    let mut fall_back = None;
    while in_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                fall_back = Some((at, in_text));
                at += 1;
            }
            Some(byte) if *byte == text[in_text] => {
                at += 1;
                in_text += 1;
            }
            _ => match fall_back {
                Some((star, taken)) => {
                    fall_back = Some((star, taken + 1));
                    at = star + 1;
                    in_text = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Whether `part` occurs in `whole`.
pub(crate) fn contains(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_and_glob() {
        for (pattern, text, expected) in [
            ("bytes */10", "bytes */10", true),
            ("bytes */10", "bytes 0/10", false),
            ("~*GMT", "Tue, 14 Nov 2023 22:13:20 GMT", true),
            ("~a*b*c", "aXbYbZc", true),
            ("~a*b*c", "aXbYbZ", false),
            ("~\"*\"", "\"\"", true),
            ("~", "", true),
            ("~*", "", true),
            ("~a", "ab", false),
        ] {
            assert_eq!(
                Pattern::new(pattern.as_bytes()).matches(text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
