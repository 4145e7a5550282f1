//! What every source file is held to: a header, a length, no `unsafe` but in one crate and there with its
//! reason, nothing left undone, no sleeping.
//!
//! Called by `tidy` with the path and the text of each file; touches no file itself.

use super::Finding;
use super::lexer::{self, Line};

/// The only crate that may hold `unsafe`.
const UNSAFE_FOLDER: &str = "crates/tidegate-io/";

/// Lines of a file, tests apart.
const MOST_LINES: usize = 800;

/// Macros that say that something is missing.
const UNDONE_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Words of a comment that say the same.
const UNDONE_WORDS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Checks one file; `path` is relative to the root.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let lines = lexer::split(text);
    let mut findings = Vec::new();

    if !text.starts_with("//!") {
        findings.push(Finding::new(path, "begins with no //! that says what it is for"));
    }
    let length = length_without_tests(path, &lines);
    if length > MOST_LINES {
        let message = format!("has {length} lines, tests apart; past {MOST_LINES} it wants splitting");
        findings.push(Finding::new(path, message));
    }
    for (index, line) in lines.iter().enumerate() {
        let mut report = |message: String| {
            findings.push(Finding::new(format!("{path}:{}", index + 1), message));
        };
        if has_word(&line.code, "unsafe") {
            if !path.starts_with(UNSAFE_FOLDER) {
                report(format!("unsafe belongs in {UNSAFE_FOLDER} only"));
            } else if !has_safety_reason(&lines, index) {
                report("unsafe without a SAFETY comment that says why it holds".into());
            }
        }
        for name in UNDONE_MACROS {
            if has_macro(&line.code, name) {
                report(format!("{name}! is left over"));
            }
        }
        for word in UNDONE_WORDS {
            if has_word(&line.comment, word) {
                report(format!("{word}: open an issue instead"));
            }
        }
        if line.code.contains("thread::sleep") || has_call(&line.code, "sleep_ms") {
            report("sleeping hopes; wait for an event, or use a virtual clock".into());
        }
    }
    findings
}

fn length_without_tests(path: &str, lines: &[Line]) -> usize {
    let is_test_file = path.contains("/tests/") || path.starts_with("tests/") || path.ends_with("/tests.rs");
    if is_test_file {
        return 0;
    }
    let mut length = 0;
    let mut index = 0;
    while index < lines.len() {
        if lines[index].code.trim() == "#[cfg(test)]" {
            index = end_of_item(lines, index + 1);
        } else {
            length += 1;
            index += 1;
        }
    }
    length
}

/// The line behind the item that begins at `start`: where its braces close, or its semicolon stands.
fn end_of_item(lines: &[Line], start: usize) -> usize {
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate().skip(start) {
        for character in line.code.chars() {
            match character {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return index + 1;
                    }
                }
                ';' if depth == 0 => return index + 1,
                _ => {}
            }
        }
    }
    lines.len()
}

/// Whether the comment of the line, or the comments above the statement it belongs to, give the reason.
/// The documentation of an `unsafe fn` gives it under `# Safety`.
fn has_safety_reason(lines: &[Line], index: usize) -> bool {
    let gives_reason = |line: &Line| line.comment.contains("SAFETY:") || line.comment.contains("# Safety");
    if gives_reason(&lines[index]) {
        return true;
    }
    for line in lines[..index].iter().rev() {
        if gives_reason(line) {
            return true;
        }
        let code = line.code.trim_end();
        let ends_a_statement = code.ends_with([';', '{', '}']);
        let is_blank = code.is_empty() && line.comment.is_empty();
        if ends_a_statement || is_blank {
            return false;
        }
    }
    false
}

/// Whether `word` stands in `text` by itself.
fn has_word(text: &str, word: &str) -> bool {
    words(text, word).next().is_some()
}

fn has_macro(code: &str, name: &str) -> bool {
    words(code, name).any(|after| after.starts_with('!') && !after.starts_with("!="))
}

fn has_call(code: &str, name: &str) -> bool {
    words(code, name).any(|after| after.starts_with('('))
}

/// What follows each place where `word` stands by itself.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).filter_map(move |(index, _)| {
        let after = &text[index + word.len()..];
        let stands_alone = !text[..index].ends_with(is_part) && !after.starts_with(is_part);
        stands_alone.then_some(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: &str = "crates/tidegate-core/src/lib.rs";
    const IO: &str = "crates/tidegate-io/src/lib.rs";

    #[test]
    fn rules() {
        let table = [
            ("a plain file", ELSEWHERE, "//! For this.\nfn main() {}", 0),
            ("no header", ELSEWHERE, "fn main() {}", 1),
            ("unsafe elsewhere", ELSEWHERE, "//! x\n// SAFETY: fine.\nunsafe { a() }", 1),
            ("unsafe with its reason", IO, "//! x\n// SAFETY: fine.\nunsafe { a() }", 0),
            ("reason above the statement", IO, "//! x\n// SAFETY: fine.\nlet a =\n    unsafe { a() };", 0),
            ("reason on the line", IO, "//! x\nunsafe { a() } // SAFETY: fine.", 0),
            ("reason of another statement", IO, "//! x\n// SAFETY: a.\nb();\nunsafe { a() }", 1),
            ("unsafe fn documented", IO, "//! x\n/// # Safety\n/// Live.\npub unsafe fn a()", 0),
            ("unsafe without a reason", IO, "//! x\nunsafe { a() }", 1),
            ("the lint is no unsafe", ELSEWHERE, "//! x\n#![deny(unsafe_code)]", 0),
            ("unsafe in a string", ELSEWHERE, "//! x\nlet a = \"unsafe { }\";", 0),
            ("left over", ELSEWHERE, "//! x\nfn a() { todo!() }", 1),
            ("a function of that name", ELSEWHERE, "//! x\nfn todo() {}", 0),
            ("left over in a comment", ELSEWHERE, "//! x\n// TODO: more", 1),
            ("sleeping", ELSEWHERE, "//! x\nstd::thread::sleep(second);", 1),
            ("speaking of sleep", ELSEWHERE, "//! x\n// no thread::sleep here", 0),
        ];
        for (name, path, text, expected) in table {
            assert_eq!(check(path, text).len(), expected, "{name}");
        }
    }

    #[test]
    fn tests_do_not_count_for_the_length() {
        let body = "    let a = 1;\n".repeat(MOST_LINES);
        let long = format!("//! x\nfn a() {{\n{body}}}\n");
        let tested = format!("//! x\nfn b() {{}}\n#[cfg(test)]\nmod tests {{\n{body}}}\nfn c() {{}}\n");
        assert_eq!(check(ELSEWHERE, &long).len(), 1);
        assert_eq!(check(ELSEWHERE, &tested).len(), 0);
        assert_eq!(check("crates/tidegate/tests/serve.rs", &long).len(), 0);
    }
}
