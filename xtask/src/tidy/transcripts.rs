//! Transcripts carry a number that is theirs alone, `rNNNN-what-it-shows.txt`, and expect no second of the clock. Called by
//! `tidy`.

use std::collections::HashMap;

use super::Finding;

/// Checks the file names of `tests/transcripts`.
pub fn check(names: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for name in names.iter().filter(|name| name.ends_with(".txt")) {
        let Some(number) = number(name) else {
            findings.push(Finding::new(name, "a transcript is named rNNNN-what-it-shows.txt"));
            continue;
        };
        if let Some(other) = seen.insert(number, name) {
            findings.push(Finding::new(name, format!("has the number of {other}")));
        }
    }
    findings
}

/// Checks what a transcript expects: an age is one more where a second ends meanwhile.
pub fn check_expectations(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(expected) = line.trim_start().strip_prefix("< ") else { continue };
        let age =
            expected.strip_prefix("Age: ").or_else(|| expected.split_once("hit; ttl=").map(|(_, ttl)| ttl));
        if age.is_some_and(|age| !age.is_empty() && !age.contains('*')) {
            let place = format!("{path}:{}", number + 1);
            findings
                .push(Finding::new(place, "expects one second of the clock; write a pattern, such as `~*`"));
        }
    }
    findings
}

fn number(name: &str) -> Option<&str> {
    let (number, title) = name.strip_prefix('r')?.split_once('-')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && title.len() > ".txt".len()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let table: [(&[&str], usize); 6] = [
            (&["r0001-head.txt", "r0002-range.txt"], 0),
            (&["r0001-head.txt", "r0001-range.txt"], 1),
            (&["r1-head.txt"], 1),
            (&["head.txt"], 1),
            (&["r0001-.txt"], 1),
            (&["README.md", "site.kdl"], 0),
        ];
        for (names, expected) in table {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(check(&names).len(), expected, "{names:?}");
        }
    }

    #[test]
    fn seconds_of_the_clock() {
        let table = [
            ("  < Age: 0", 1),
            ("  < Age: ~*", 0),
            ("  > Age: 0", 0),
            ("  < !Age: ~1*", 0),
            ("  < Cache-Status: main; hit; ttl=60; detail=fresh", 1),
            ("  < Cache-Status: ~main; hit; ttl=*", 0),
        ];
        for (line, expected) in table {
            assert_eq!(check_expectations("a.txt", line).len(), expected, "{line}");
        }
    }
}
