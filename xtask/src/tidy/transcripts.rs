//! Transcripts carry a number that is theirs alone: `rNNNN-what-it-shows.txt`. Called by `tidy`.

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
}
