//! A borrow of a `RefCell` in the head of `for`, `match`, `if let` or `while let` lives until the end of the block, which
//! nobody sees there. What the block calls may want the cell, and then the process ends: a borrow is a statement of its own.
//!
//! Called by `tidy` with the path and the text of each file; touches no file itself. Clippy knows the rule
//! (`significant_drop_in_scrutinee`) for locks, and not for cells.

use super::Finding;
use super::lexer;

/// Checks one file of the product; `path` is relative to the root.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.starts_with("crates/") || path.contains("/tests/") {
        return Vec::new();
    }
    let lines = lexer::split(text);
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        for at in heads(&line.code) {
            let mut rest = line.code[at..].to_owned();
            for next in lines.iter().skip(index + 1).take(20) {
                rest.push(' ');
                rest.push_str(&next.code);
            }
            let head = head(&rest);
            let keeps = head.starts_with("for ") || head.starts_with("match ") || head.contains("let ");
            if keeps && (head.contains(".borrow()") || head.contains(".borrow_mut()")) {
                let message = "a borrow in this head lives as long as the block; make it a statement before";
                findings.push(Finding::new(format!("{path}:{}", index + 1), message));
            }
        }
    }
    findings
}

/// Where statements with a head begin.
fn heads(code: &str) -> Vec<usize> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut found: Vec<usize> = Vec::new();
    for keyword in ["for ", "match ", "if ", "while "] {
        let places = code.match_indices(keyword).map(|(at, _)| at);
        found.extend(places.filter(|at| !code[..*at].ends_with(is_part)));
    }
    found
}

/// From the keyword to the brace of the block, without what lies in closures of it.
fn head(code: &str) -> &str {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' if depth == 0 => return &code[..at],
            ')' | ']' => depth -= 1,
            '{' | ';' if depth == 0 => return &code[..at],
            _ => {}
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(body: &str) -> Vec<String> {
        let path = "crates/tidegate-io/src/runtime.rs";
        check(path, body).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn borrows_that_outlive_their_statement_are_found() {
        for wrong in [
            "for key in std::mem::take(&mut *self.ready.borrow_mut()) {\n run(key);\n}",
            "match self.cache.borrow().look_up(path) {\n _ => {}\n}",
            "if let Some(waker) = &*self.waker.borrow() {\n waker.wake_by_ref();\n}",
            "while let Some(key) = self.ready.borrow_mut().pop() {\n run(key);\n}",
            "if is_wanted\n    && let Some(slot) = self.tasks.borrow_mut().get_mut(key)\n{\n}",
        ] {
            assert_eq!(lines(wrong), ["crates/tidegate-io/src/runtime.rs:1"], "{wrong}");
        }
    }

    #[test]
    fn borrows_that_end_are_not() {
        for right in [
            "let keys = std::mem::take(&mut *self.ready.borrow_mut());\nfor key in keys {}",
            "if self.sweeper.borrow().is_none() {\n *self.sweeper.borrow_mut() = None;\n}",
            "let Some(entry) = self.cache.borrow_mut().pop() else { return };",
            "impl Drop for Pool {\n fn drop(&mut self) { self.idle.borrow_mut().clear(); }\n}",
            "// match self.cache.borrow() {\n",
        ] {
            assert!(lines(right).is_empty(), "{right}");
        }
        assert!(check("crates/a/tests/b.rs", "for x in y.borrow().iter() {}").is_empty());
    }
}
