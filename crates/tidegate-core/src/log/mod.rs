//! Logs: access lines batched on each worker, an error log, and the one thread that writes both.
//!
//! A worker formats a line into its own buffer; full or a second old, the buffer goes to the writer
//! thread. The way there is bounded: when a disk or a pipe is stuck for long, lines are dropped and counted,
//! and serving goes on (FAULTS 51).

mod access;
mod applications;
mod delivery;
mod error;
mod message;
mod open_log;
mod output;
mod pattern;
mod pipe_lock;
mod record;
mod room;
mod texts;
mod thinning;
mod trouble;
mod writer;

pub use applications::{ApplicationLog, application, level_of, set_application_logs};

pub use access::{AccessBuffers, AccessRecord, Ending, EntryFields, KeptField, Record};
pub use tidegate_config::settings::Level;

pub use error::{always, error, info, set_error_log, set_level, warn};
pub use trouble::Trouble;
pub use writer::{Sink, Writer, open_file};

/// Appends `text` so that nothing of it can end the line, close a quote or reach a terminal: quotes,
/// backslashes, control bytes and everything that is not ASCII as `\xHH` (FAULTS 38).
pub(crate) fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in text {
        if matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\' {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Appends `text` as the inside of a JSON string.
pub(crate) fn push_json_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for c in String::from_utf8_lossy(text).chars() {
        push_json_char(out, c);
    }
}

/// Controls, and what cannot be seen or turns the direction of what is, are escaped: a line may be read on a terminal.
fn push_json_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        ' '..='~' => out.push(c as u8),
        c if c.is_control() || is_invisible(c) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Formats and separators (general categories Cf, Zl and Zp of Unicode), as far as they are for more than one script.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Bytes of a text that a client has chosen, where it is shown.
const MEMBER: usize = 300;

/// Appends `,"name":"text"`; of a long text its beginning.
pub(crate) fn push_json_member(out: &mut Vec<u8>, name: &str, text: &[u8]) {
    out.extend_from_slice(format!(",\"{name}\":\"").as_bytes());
    push_json_escaped(out, text.get(..MEMBER).unwrap_or(text));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_shows_what_could_not_be_seen() {
        let mut out = Vec::new();
        push_json_escaped(&mut out, "ä\u{202e}gpj\u{200b}\u{e0041}\u{85}\u{2028}ü".as_bytes());
        assert_eq!(out, "ä\\u202egpj\\u200b\\udb40\\udc41\\u0085\\u2028ü".as_bytes());
    }

    #[test]
    fn nothing_breaks_out_of_a_line() {
        let all: Vec<u8> = (0..=255).collect();
        let mut out = Vec::new();
        push_escaped(&mut out, &all);
        assert!(out.iter().all(|b| matches!(b, b' '..=b'~') && *b != b'"'));
        let mut json = vec![b'"'];
        push_json_escaped(&mut json, &all);
        json.push(b'"');
        assert!(json.iter().all(|b| *b >= b' '));
        let mut out = Vec::new();
        push_escaped(&mut out, b"a\"b\\c\r\n\x1b[0m");
        assert_eq!(out, b"a\\x22b\\x5cc\\x0d\\x0a\\x1b[0m");
    }
}
