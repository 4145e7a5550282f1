//! `Vary` of responses (RFC 9110 section 12.5.5): the request fields that an answer depends on.
//!
//! Called by whatever makes an answer depend on one: conditions of routes, compression, error pages.

use crate::field::{FieldLines, list_elements};

/// Adds names to `Vary`, but for those that are there. `*` stands for all of them.
pub fn add<'n>(lines: &mut FieldLines, names: impl IntoIterator<Item = &'n [u8]>) {
    let mut all: Vec<&[u8]> = lines.all("Vary").flat_map(list_elements).collect();
    let said = all.len();
    for name in names {
        if !all.iter().any(|known| *known == b"*" || known.eq_ignore_ascii_case(name)) {
            all.push(name);
        }
    }
    if all.len() > said {
        let joined = all.join(&b", "[..]);
        lines.set("Vary", joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_added_once() {
        for (before, names, after) in [
            (&[][..], &["Cookie"][..], "Vary: Cookie\r\n"),
            (&["Origin", "cookie"], &["Cookie", "X-A"], "Vary: Origin, cookie, X-A\r\n"),
            (&["Origin", "X-B"], &["x-b"], "Vary: Origin\r\nVary: X-B\r\n"),
            (&[], &["X-A", "x-a"], "Vary: X-A\r\n"),
            (&["*"], &["Cookie"], "Vary: *\r\n"),
            (&[], &[], ""),
        ] {
            let mut lines = FieldLines::new();
            before.iter().for_each(|line| _ = lines.push("Vary", line));
            add(&mut lines, names.iter().map(|name| name.as_bytes()));
            assert_eq!(String::from_utf8_lossy(lines.as_bytes()), after);
        }
    }
}
