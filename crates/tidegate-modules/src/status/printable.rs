//! Text that others have chosen, on its way to a terminal.

use std::fmt::Write;

/// The text without what a terminal would obey, or what would show it in another order than it is in: control characters,
/// and those of Unicode that are not seen and move or hide others (UTR 36).
pub fn printable(text: &str) -> String {
    text.chars().map(|char| if is_printable(char) { char } else { '?' }).collect()
}

/// JSON in which nothing else than text is left either: what is not printable stands in strings alone, and there it is escaped.
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        if is_printable(char) || char == '\n' {
            out.push(char);
            continue;
        }
        let mut units = [0; 2];
        for unit in char.encode_utf16(&mut units) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

fn is_printable(char: char) -> bool {
    let hides = matches!(char,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    !char.is_control() && !hides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        for (text, shown) in [
            ("/a?b=ä 日本", "/a?b=ä 日本"),
            ("\u{1b}[2J\u{7}\r\n\u{9b}31m", "?[2J????31m"),
            ("/exe\u{202e}gpj.", "/exe?gpj."),
            ("\u{200b}\u{feff}", "??"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn json_stays_what_it_is() {
        let told = serde_json::json!({ "agent": "\u{9b}31m\u{202e}\u{e0001}ä\u{1b}" });
        let text = printable_json(&format!("{told}\n"));
        assert_eq!(text, "{\"agent\":\"\\u009b31m\\u202e\\udb40\\udc01ä\\u001b\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), told);
    }
}
