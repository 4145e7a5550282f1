//! A line as a daemon that collects logs takes it: what it says, how important it is, and what is known beside it.
//!
//! Whoever writes lines hands over lines, which the writer counts, holds and drops as such. An access line on its way to a
//! daemon begins with [`BEGIN`] and has fields behind [`FIELD`]: neither byte ever stands in what a client has sent, since
//! all of that is escaped. Other lines are those of [`push_line`](super::error::push_line), whose level is read off them.

use super::Level;
use super::error::level_name;

/// In front of an access line.
pub(super) const BEGIN: u8 = 0x1e;
/// In front of each of its fields, which are `NAME=value`.
pub(super) const FIELD: u8 = 0x1f;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'l> {
    /// RFC 5424 section 6.2.1: 3 for an error, 7 for what only helps to find one.
    pub severity: u8,
    /// When it was written, as RFC 3339 has it, where the line says that.
    pub time: Option<&'l str>,
    /// It tells of a request.
    pub is_access: bool,
    pub text: &'l [u8],
    /// `NAME=value`, joined by [`FIELD`].
    fields: &'l [u8],
}

/// Informational.
const INFO: u8 = 6;
/// How a line of the error log begins: `2000-10-10T13:55:36.123Z warn: `.
const TIME: usize = 24;

impl<'l> Record<'l> {
    /// Of a line, without the line feed at its end. `before` is the severity of the line before, which one that is indented
    /// goes on with.
    pub(super) fn of(line: &'l [u8], before: u8) -> Record<'l> {
        if let [BEGIN, rest @ ..] = line {
            let end = rest.iter().position(|byte| *byte == FIELD).unwrap_or(rest.len());
            let (text, fields) = rest.split_at(end);
            return Record { severity: INFO, time: None, is_access: true, text, fields };
        }
        let plain = Record { severity: INFO, time: None, is_access: false, text: line, fields: &[] };
        if let Some(text) = line.strip_prefix(b"    ") {
            return Record { severity: before, text, ..plain };
        }
        let Some((time, rest)) = line.split_at_checked(TIME) else { return plain };
        let level = [Level::Error, Level::Warn, Level::Info, Level::Debug].into_iter().find_map(|level| {
            let text =
                rest.strip_prefix(b" ")?.strip_prefix(level_name(level).as_bytes())?.strip_prefix(b": ")?;
            Some((severity(level), text))
        });
        match (level, std::str::from_utf8(time)) {
            (Some((severity, text)), Ok(time)) if time.ends_with('Z') => {
                Record { severity, time: Some(time), text, ..plain }
            }
            _ => plain,
        }
    }

    /// `NAME=value` of each field.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'l [u8]> {
        self.fields.split(|byte| *byte == FIELD).filter(|field| !field.is_empty())
    }
}

fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => INFO,
        Level::Debug => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_what_they_say() {
        let time = Some("2000-10-10T13:55:36.123Z");
        for (line, before, severity, of, is_access, text, fields) in [
            ("2000-10-10T13:55:36.123Z error: it failed", 6, 3, time, false, "it failed", 0),
            ("2000-10-10T13:55:36.123Z warn: hm: error: no", 6, 4, time, false, "hm: error: no", 0),
            ("2000-10-10T13:55:36.123Z info: ", 6, 6, time, false, "", 0),
            ("2000-10-10T13:55:36.123Z debug: x", 6, 7, time, false, "x", 0),
            ("    in /a.php on line 3", 3, 3, None, false, "in /a.php on line 3", 0),
            ("\x1e127.0.0.1 - - \"GET\"", 3, 6, None, true, "127.0.0.1 - - \"GET\"", 0),
            ("\x1eline\x1fSTATUS=200\x1fSITE=a", 3, 6, None, true, "line", 2),
            ("", 3, 6, None, false, "", 0),
            (
                "not one of ours, however long it is: error: x",
                3,
                6,
                None,
                false,
                "not one of ours, however long it is: error: x",
                0,
            ),
        ] {
            let record = Record::of(line.as_bytes(), before);
            assert_eq!((record.severity, record.time, record.is_access), (severity, of, is_access), "{line}");
            assert_eq!((record.text, record.fields().count()), (text.as_bytes(), fields), "{line}");
        }
    }
}
