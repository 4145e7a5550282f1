//! Bounds as a JUnit report, which build servers show: a test case for each. The format is the one that Ant began and
//! Jenkins reads (testsuite, testcase, failure, error, skipped).

use super::html::escape;
use crate::compare::{Bound, Comparison, Held};
use std::fmt::Write;

/// The report of `tidegate bench` with this command. A broken bound is a failure, one that could not be judged an error.
pub fn junit(command: &str, bounds: &[(Bound, &Comparison)]) -> String {
    let count = |wanted: Held| bounds.iter().filter(|(bound, seen)| bound.judge(seen) == wanted).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"tidegate bench {command}\" tests=\"{}\" failures=\"{}\" \
         errors=\"{}\">\n",
        bounds.len(),
        count(Held::Broken),
        count(Held::Unknown)
    );
    for (bound, seen) in bounds {
        let sentence = escape(&bound.sentence(seen));
        let inside = match bound.judge(seen) {
            Held::Kept => String::new(),
            Held::Unproven => format!("<system-out>{sentence}</system-out>"),
            Held::Broken => format!("<failure message=\"{sentence}\"/>"),
            Held::Unknown => format!("<error message=\"{sentence}\"/>"),
        };
        let name = escape(&bound.to_string());
        let _ = writeln!(out, "  <testcase classname=\"{command}\" name=\"{name}\">{inside}</testcase>");
    }
    out.push_str("</testsuite>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_called_like_its_command() {
        for command in ["compare", "gate"] {
            let report = junit(command, &[]);
            assert!(
                report.contains(&format!("<testsuite name=\"tidegate bench {command}\" tests=\"0\"")),
                "{report}"
            );
        }
    }
}
