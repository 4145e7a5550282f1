//! Hours and days on which a rule or a condition holds, on the clock of a place: `"Mon-Fri 08:00-18:00 Europe/Berlin"`.
//!
//! The rules of time zones are compiled in (`jiff`), since a server process may not read those of the system. What time it
//! is, whoever asks says: the request has come at a time, and `explain` has one of its own.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Display, Formatter};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// A part of every week.
#[derive(Clone, PartialEq)]
pub struct TimeWindow {
    /// As it was written.
    text: String,
    /// A bit for each day, Monday first.
    days: u8,
    /// Minutes of the day; where it ends before it begins, that is on the next day. All of the day is one that never ends.
    hours: (u16, u16),
    zone: TimeZone,
}

impl TimeWindow {
    /// Reads one: days, hours and the name of a time zone, each of which may be left out (every day, all day, `UTC`).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<TimeWindow, String> {
        let (mut days, mut hours, mut zone) = (None, None, None);
        for word in text.split_whitespace() {
            let is_digit = word.starts_with(|first: char| first.is_ascii_digit());
            let is_twice = if is_digit {
                hours.replace(read_hours(word)?).is_some()
            } else if let Some(read) = read_days(word) {
                days.replace(read?).is_some()
            } else {
                let found = TimeZone::get(word).map_err(|_| {
                    format!("`{word}` is neither a day (`Mon`) nor hours (`08:00-18:00`) nor a time zone (`Europe/Berlin`)")
                });
                zone.replace(found?).is_some()
            };
            if is_twice {
                return Err(format!("`{word}` is the second of its kind; write a value of its own for it"));
            }
        }
        if days.is_none() && hours.is_none() {
            return Err("it names neither days nor hours".to_owned());
        }
        let (days, hours) = (days.unwrap_or(0x7f), hours.unwrap_or((0, DAY)));
        Ok(TimeWindow { text: text.to_owned(), days, hours, zone: zone.unwrap_or(TimeZone::UTC) })
    }

    /// Whether it holds at a time, in seconds since 1970.
    pub fn holds_at(&self, seconds: i64) -> bool {
        let Some((day, minute)) = self.local(seconds) else { return false };
        let is_on = |day: usize| self.days & 1 << (day % 7) != 0;
        let (begin, end) = self.hours;
        match begin < end {
            true => is_on(day) && (begin..end).contains(&minute),
            // The night belongs to the day on which it begins.
            false => is_on(day) && minute >= begin || is_on(day + 6) && minute < end,
        }
    }

    /// What the clock of the place shows, for `explain`.
    pub fn clock(&self, seconds: i64) -> String {
        let Some((day, minute)) = self.local(seconds) else { return "no time".to_owned() };
        let zone = self.zone.iana_name().unwrap_or("UTC");
        format!("{} {:02}:{:02} {zone}", DAYS[day % 7], minute / 60, minute % 60)
    }

    /// The day of the week from Monday on, and the minute of the day.
    fn local(&self, seconds: i64) -> Option<(usize, u16)> {
        let time = Timestamp::from_second(seconds).ok()?;
        let local = self.zone.to_datetime(time);
        let day = usize::try_from(local.weekday().to_monday_zero_offset()).ok()?;
        let minute = u16::try_from(local.hour()).ok()? * 60 + u16::try_from(local.minute()).ok()?;
        Some((day, minute))
    }
}

/// A moment as somebody writes it, in seconds since 1970: `2026-01-05T08:00:00Z`, `2026-01-05 08:00 Europe/Berlin`, or
/// without a zone in UTC.
pub fn read_instant(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_second());
    }
    let (time, zone) = match text.rsplit_once(' ') {
        Some((time, zone)) if !zone.starts_with(|first: char| first.is_ascii_digit()) => {
            (time, TimeZone::get(zone).ok()?)
        }
        _ => (text, TimeZone::UTC),
    };
    let local: DateTime = time.parse().ok()?;
    Some(zone.to_timestamp(local).ok()?.as_second())
}

/// `Mon`, `Mon-Fri`, `Sat,Sun`; nothing where it is no day at all.
fn read_days(word: &str) -> Option<Result<u8, String>> {
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    // A name like `America/…` begins as a day does not.
    day(word.split([',', '-']).next()?)?;
    let mut days = 0u8;
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (day(first), day(last)) else {
            return Some(Err(format!("`{part}` is no day; days are {}", DAYS.join(", "))));
        };
        let length = (last + 7 - first) % 7;
        (first..=first + length).for_each(|day| days |= 1 << (day % 7));
    }
    Some(Ok(days))
}

/// `08:00-18:00`, `22:00-06:00`.
fn read_hours(word: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("`{word}` are no hours; write `08:00-18:00`, or `22:00-06:00` over midnight");
    let minute = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let minutes = hour.parse::<u16>().ok()? * 60 + minute.parse::<u16>().ok()?;
        (digits(hour) && digits(minute) && minute < "60" && minutes <= DAY).then_some(minutes)
    };
    let (begin, end) = word.split_once('-').ok_or_else(wrong)?;
    match (minute(begin), minute(end)) {
        (Some(begin), Some(end)) if begin != end && begin < DAY => Ok((begin, end)),
        _ => Err(wrong()),
    }
}

impl Display for TimeWindow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TimeWindow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Eq for TimeWindow {}

impl Serialize for TimeWindow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(to)
    }
}

impl<'de> Deserialize<'de> for TimeWindow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        TimeWindow::read(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    #[test]
    fn when_it_holds() {
        for (window, time, expected) in [
            // A Monday; Berlin is an hour ahead in winter and two in summer.
            ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-01-05T07:00:00Z", true),
            ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-01-05T06:59:59Z", false),
            ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-01-05T16:59:59Z", true),
            ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-01-05T17:00:00Z", false),
            ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-07-06T06:00:00Z", true),
            ("Mon-Fri 08:00-18:00 Europe/Berlin", "2026-01-03T10:00:00Z", false),
            ("08:00-18:00", "2026-01-03T10:00:00Z", true),
            ("Sat,Sun", "2026-01-04T23:59:59Z", true),
            ("Sat,Sun", "2026-01-05T00:00:00Z", false),
            ("Fri-Mon", "2026-01-05T00:00:00Z", true),
            ("Fri-Mon", "2026-01-06T00:00:00Z", false),
            // Over midnight: the night of Friday ends on Saturday, that of Sunday on Monday.
            ("Fri 22:00-06:00", "2026-01-03T05:59:00Z", true),
            ("Fri 22:00-06:00", "2026-01-02T05:59:00Z", false),
            ("Fri 22:00-06:00", "2026-01-02T22:00:00Z", true),
            ("Sun 22:00-06:00", "2026-01-05T05:00:00Z", true),
            ("00:00-24:00 Asia/Tokyo", "2026-01-05T05:00:00Z", true),
            // The hour that is there twice in autumn belongs to the window both times.
            ("02:00-03:00 Europe/Berlin", "2026-10-25T00:30:00Z", true),
            ("02:00-03:00 Europe/Berlin", "2026-10-25T01:30:00Z", true),
            ("02:00-03:00 Europe/Berlin", "2026-10-25T02:00:00Z", false),
        ] {
            assert_eq!(TimeWindow::read(window).unwrap().holds_at(at(time)), expected, "{window} at {time}");
        }
        let window = TimeWindow::read("mon 08:00-09:00 europe/berlin").unwrap();
        assert_eq!(window.clock(at("2026-07-06T06:05:00Z")), "Mon 08:05 Europe/Berlin");
        assert!(!window.holds_at(i64::MAX));
    }

    #[test]
    fn moments() {
        for (text, expected) in [
            ("2026-01-05T07:00:00Z", Some("2026-01-05T07:00:00Z")),
            ("2026-01-05 08:00 Europe/Berlin", Some("2026-01-05T07:00:00Z")),
            ("2026-07-06T08:00:30 Europe/Berlin", Some("2026-07-06T06:00:30Z")),
            ("2026-01-05 07:00", Some("2026-01-05T07:00:00Z")),
            ("2026-01-05", Some("2026-01-05T00:00:00Z")),
            ("2026-01-05T08:00:00+01:00", Some("2026-01-05T07:00:00Z")),
            ("tomorrow", None),
            ("2026-01-05 08:00 Mars/Base", None),
            ("", None),
        ] {
            assert_eq!(read_instant(text), expected.map(at), "{text}");
        }
    }

    #[test]
    fn what_is_none() {
        for text in [
            "",
            "Europe/Berlin",
            "Mon-Fry",
            "8-18",
            "08:00",
            "25:00-26:00",
            "08:60-09:00",
            "08:00-08:00",
            "24:00-08:00",
            "Mon Tue",
            "08:00-09:00 10:00-11:00",
            "08:00-09:00 Mars/Base",
            "08:00-09:00 UTC UTC",
            "+8:00-09:00",
            "08:+0-09:00",
        ] {
            assert!(TimeWindow::read(text).is_err(), "{text}");
        }
        let json = serde_json::to_string(&TimeWindow::read("Mon 08:00-09:00 UTC").unwrap()).unwrap();
        assert_eq!(
            serde_json::from_str::<TimeWindow>(&json).unwrap(),
            TimeWindow::read("Mon 08:00-09:00 UTC").unwrap()
        );
    }
}
