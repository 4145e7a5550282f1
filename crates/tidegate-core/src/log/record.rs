//! A line as a daemon that collects logs takes it: what it says, how important it is, and what is known beside it.
//!
//! Whoever writes lines hands over lines, which the writer counts, holds and drops as such. An access line on its way to a
//! daemon begins with [`BEGIN`] and the time at which it was made, and has fields behind [`FIELD`]: neither byte ever stands in what
//! a client has sent, since all of that is escaped. Other lines are those of [`push_line`](super::error::push_line), whose level is read off them.

use super::Level;
use tidegate_http::HttpDate;

/// In front of an access line.
pub(super) const BEGIN: u8 = 0x1e;
/// In front of each of its fields, which are `NAME=value`.
pub(super) const FIELD: u8 = 0x1f;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'l> {
    /// RFC 5424 section 6.2.1: 3 for an error, 7 for what only helps to find one.
    pub severity: u8,
    /// When it was made, as RFC 3339 has it, where the line says that, or the one that it goes on with. A line may wait long for a
    /// daemon that is away.
    pub time: Option<Time>,
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

/// A time as lines have it.
pub(super) type Time = [u8; TIME];

/// The time now.
pub(super) fn time() -> Time {
    let (seconds, nanos) = tidegate_io::clock::wall();
    let mut time = *b"0000-00-00T00:00:00.000Z";
    time[..19].copy_from_slice(&HttpDate(seconds).rfc3339()[..19]);
    let millis = nanos / 1_000_000;
    for (digit, unit) in time[20..23].iter_mut().zip([100, 10, 1]) {
        *digit = b'0' + (millis / unit % 10) as u8;
    }
    time
}

/// What the line before has said, which one that is indented goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    pub severity: u8,
    pub time: Option<Time>,
}

impl Default for Before {
    fn default() -> Before {
        Before { severity: INFO, time: None }
    }
}

impl<'l> Record<'l> {
    /// Of a line, without the line feed at its end.
    pub(super) fn of(line: &'l [u8], before: Before) -> Record<'l> {
        if let [BEGIN, rest @ ..] = line {
            let (time, rest) = match rest.split_first_chunk() {
                Some((time, rest)) if time.ends_with(b"Z") => (Some(*time), rest),
                _ => (None, rest),
            };
            let end = rest.iter().position(|byte| *byte == FIELD).unwrap_or(rest.len());
            let (text, fields) = rest.split_at(end);
            return Record { severity: INFO, time, is_access: true, text, fields };
        }
        let plain = Record { severity: INFO, time: None, is_access: false, text: line, fields: &[] };
        if let Some(text) = line.strip_prefix(b"    ") {
            return Record { severity: before.severity, time: before.time, text, ..plain };
        }
        let Some((time, rest)) = line.split_first_chunk() else { return plain };
        let level = [Level::Error, Level::Warn, Level::Info, Level::Debug].into_iter().find_map(|level| {
            let text = rest.strip_prefix(b" ")?.strip_prefix(level.name().as_bytes())?.strip_prefix(b": ")?;
            Some((severity(level), text))
        });
        match level {
            Some((severity, text)) if time.ends_with(b"Z") && time.is_ascii() => {
                Record { severity, time: Some(*time), text, ..plain }
            }
            _ => plain,
        }
    }

    /// What the next line may go on with.
    pub(super) fn as_before(&self) -> Before {
        Before { severity: self.severity, time: self.time }
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
        const TIME: &str = "2000-10-10T13:55:36.123Z";
        const EARLIER: &str = "2000-10-10T13:55:35.000Z";
        for (line, before, severity, of, is_access, text, fields) in [
            ("2000-10-10T13:55:36.123Z error: it failed", 6, 3, TIME, false, "it failed", 0),
            ("2000-10-10T13:55:36.123Z warn: hm: error: no", 6, 4, TIME, false, "hm: error: no", 0),
            ("2000-10-10T13:55:36.123Z info: ", 6, 6, TIME, false, "", 0),
            ("2000-10-10T13:55:36.123Z debug: x", 6, 7, TIME, false, "x", 0),
            ("    in /a.php on line 3", 3, 3, EARLIER, false, "in /a.php on line 3", 0),
            ("\x1e2000-10-10T13:55:36.123Z127.0.0.1 - \"GET\"", 3, 6, TIME, true, "127.0.0.1 - \"GET\"", 0),
            ("\x1e2000-10-10T13:55:36.123Zline\x1fSTATUS=200\x1fSITE=a", 3, 6, TIME, true, "line", 2),
            ("\x1eshort\x1fSITE=a", 3, 6, "", true, "short", 1),
            ("", 3, 6, "", false, "", 0),
            (
                "not one of ours, however long it is: error: x",
                3,
                6,
                "",
                false,
                "not one of ours, however long it is: error: x",
                0,
            ),
        ] {
            let time = |text: &str| text.as_bytes().try_into().ok();
            let record = Record::of(line.as_bytes(), Before { severity: before, time: time(EARLIER) });
            assert_eq!(
                (record.severity, record.time, record.is_access),
                (severity, time(of), is_access),
                "{line}"
            );
            assert_eq!((record.text, record.fields().count()), (text.as_bytes(), fields), "{line}");
        }
    }

    #[test]
    fn times_are_as_long_as_ever() {
        let time = time();
        let digits = time.iter().filter(|byte| byte.is_ascii_digit()).count();
        assert_eq!((digits, time[10], time[19], time[23]), (17, b'T', b'.', b'Z'), "{time:?}");
    }
}
