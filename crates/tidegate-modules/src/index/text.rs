//! Names, sizes and dates as they are shown.
//!
//! Called for each row. A name is any bytes but slash and NUL, chosen by whoever may write into the
//! folder: nothing of it reaches a page unescaped.

use std::io::Write;
use tidegate_http::HttpDate;

/// Appends text escaped for HTML, for content and for attribute values in either kind of quotes.
pub fn escape(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'')) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'"' => b"&quot;",
            _ => b"&#39;",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends a name for people, escaped for HTML: what is not UTF-8 becomes U+FFFD, and characters that
/// would break the line, change the direction or show nothing are spelled out.
pub fn name(out: &mut Vec<u8>, name: &[u8]) {
    if name.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return escape(out, std::str::from_utf8(name).unwrap_or_default());
    }
    let mut buffer = [0; 4];
    for character in String::from_utf8_lossy(name).chars() {
        if is_deceptive(character) {
            let _ = write!(out, "{}", character.escape_default());
        } else {
            escape(out, character.encode_utf8(&mut buffer));
        }
    }
}

/// Controls, line separators, marks of direction, and what has no width.
fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(character, '\u{61c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Appends a size for people: three figures at most, in powers of 1,024.
pub fn size(out: &mut Vec<u8>, bytes: u64) {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        let _ = write!(out, "{bytes} B");
        return;
    }
    for (power, unit) in (1..).zip(UNITS) {
        let one = 1u128 << (10 * power);
        let tenths = (u128::from(bytes) * 10 + one / 2) / one;
        let whole = (u128::from(bytes) + one / 2) / one;
        if tenths < 100 {
            let _ = write!(out, "{}.{} {unit}", tenths / 10, tenths % 10);
            return;
        } else if whole < 1000 || unit == "EiB" {
            let _ = write!(out, "{whole} {unit}");
            return;
        }
    }
}

/// Appends a number with its thousands set apart.
pub fn thousands(out: &mut Vec<u8>, number: u64) {
    let digits = number.to_string();
    for (index, digit) in digits.bytes().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(b',');
        }
        out.push(digit);
    }
}

/// A date as RFC 3339 has it: `[..10]` is the day, `[11..16]` hours and minutes.
pub fn date(seconds: i64) -> [u8; 20] {
    HttpDate(seconds).rfc3339()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sizes() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10_188, "9.9 KiB"),
            (10_189, "10 KiB"),
            (1_022_000, "998 KiB"),
            (1_048_575, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (700 << 40, "700 TiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text(|out| size(out, bytes)), expected);
        }
    }

    #[test]
    fn numbers() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(text(|out| thousands(out, number)), expected);
        }
    }

    #[test]
    fn names() {
        let cases: [(&[u8], &str); 7] = [
            (b"plain.txt", "plain.txt"),
            (b"<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"),
            (b"a\nb\x1b[0m", "a\\nb\\u{1b}[0m"),
            (b"caf\xc3\xa9", "caf\u{e9}"),
            (b"caf\xe9", "caf\u{fffd}"),
            ("gnp\u{202e}exe".as_bytes(), "gnp\\u{202e}exe"),
            ("<\u{e9}>".as_bytes(), "&lt;\u{e9}&gt;"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text(|out| name(out, bytes)), expected);
        }
    }
}
