//! How much of a line the texts may have that others have chosen: the line then fits into what takes it, a message of syslog or a
//! pipe, and nothing that stands behind them is cut off. The journal takes entries of any length.
//!
//! Each text has at most half of what those before it have left. One that is longer is cut, and ends with `...`.

use super::{push_escaped, push_json_char, push_json_escaped};
use tidegate_config::settings::{CollectorAddress, LogTarget};

/// Bytes of all texts of a line, as they are written.
const MOST: usize = 56 << 10;
/// The same where a line is a datagram of UDP.
const MOST_OF_UDP: usize = 7 << 10;
/// What stands in place of the rest of a text.
const CUT: &[u8] = b"...";
/// Bytes that one byte takes at most when it is escaped, in JSON and else.
const LONGEST: usize = 6;

/// What is left for the texts of one line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    left: usize,
}

impl Texts {
    /// Of a line that goes there.
    pub(super) fn to(target: &LogTarget) -> Texts {
        match target {
            LogTarget::Collector(to) if matches!(to.at, CollectorAddress::Udp(_)) => {
                Texts { left: MOST_OF_UDP }
            }
            LogTarget::Collector(to) if to.at.takes_fields() => Texts { left: usize::MAX },
            _ => Texts { left: MOST },
        }
    }

    /// Appends a text as [`push_escaped`].
    pub(super) fn push(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        let (start, most) = (out.len(), self.left / 2);
        if text.len() <= most / LONGEST {
            push_escaped(out, text);
        } else {
            let is_cut = text.iter().any(|byte| {
                push_escaped(out, std::slice::from_ref(byte));
                is_over(out, start, most)
            });
            end(out, is_cut);
        }
        self.left = self.left.saturating_sub(out.len() - start);
    }

    /// Appends a text as [`push_json_escaped`].
    pub(super) fn push_json(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        let (start, most) = (out.len(), self.left / 2);
        if text.len() <= most / LONGEST {
            push_json_escaped(out, text);
        } else {
            let is_cut = String::from_utf8_lossy(text).chars().any(|character| {
                push_json_char(out, character);
                is_over(out, start, most)
            });
            end(out, is_cut);
        }
        self.left = self.left.saturating_sub(out.len() - start);
    }
}

/// No more fits, whatever comes next.
fn is_over(out: &[u8], start: usize, most: usize) -> bool {
    out.len() - start + 2 * LONGEST + CUT.len() > most
}

fn end(out: &mut Vec<u8>, is_cut: bool) {
    if is_cut {
        out.extend_from_slice(CUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the texts are, they fit, and what is cut stays whole as JSON.
    #[test]
    fn texts_of_any_length_fit() {
        for text in [
            b"x".repeat(100_000),
            b"\x00".repeat(100_000),
            "\u{85}".repeat(50_000).into_bytes(),
            vec![0xff; 100_000],
        ] {
            let mut texts = Texts::to(&LogTarget::Stdout);
            let (mut json, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                json.push(b'"');
                texts.push_json(&mut json, &text);
                json.extend_from_slice(b"\"\n");
            }
            assert!((MOST * 3 / 4..MOST + 20).contains(&json.len()), "{}", json.len());
            let json = String::from_utf8(json).unwrap();
            for line in json.lines() {
                assert!(line.ends_with("...\""), "{}", &line[line.len() - 30..]);
                // No escape is torn.
                let inside = line.trim_matches('"').trim_end_matches("...");
                assert!(inside.rfind('\\').is_none_or(|at| inside.len() - at == LONGEST), "{}", inside.len());
            }
            let mut texts = Texts { left: 4000 };
            (0..20).for_each(|_| texts.push(&mut plain, &text));
            assert!(plain.len() <= 4000 + 20 * (LONGEST + CUT.len()), "{}", plain.len());
        }
        let (mut out, mut texts) = (Vec::new(), Texts { left: 4000 });
        texts.push(&mut out, &b"y".repeat(1000));
        texts.push_json(&mut out, b"short");
        assert_eq!(out, [b"y".repeat(1000), b"short".to_vec()].concat());
    }
}
