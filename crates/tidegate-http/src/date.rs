//! Dates (RFC 9110 section 5.6.7): three formats are read, one is written.
//!
//! Called for `Last-Modified`, `Date`, `Expires` and the conditions. Knows no clock: the one rule that
//! needs the present time (two-digit years) takes it as an argument.

use crate::decimal::parse_decimal;
use std::time::Duration;

/// A point in time, in whole seconds since 1970-01-01 00:00:00 UTC, leap seconds not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpDate(
    /// Unix seconds. Any value may be held; the formats know the years 1 to 9999.
    pub i64,
);

const WEEKDAYS: [&[u8]; 7] =
    [b"Sunday", b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday"];
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
const SECONDS_PER_DAY: i64 = 86_400;

impl HttpDate {
    /// 0001-01-01 00:00:00, the earliest that can be written.
    pub const MIN: HttpDate = HttpDate(-62_135_596_800);
    /// 9999-12-31 23:59:59, the latest that can be written.
    pub const MAX: HttpDate = HttpDate(253_402_300_799);

    /// Reads an IMF-fixdate, an RFC 850 date or an asctime date, case-sensitive and without a byte to
    /// spare. The name of the day must be one, but need not be the right one: section 5.6.7 asks
    /// recipients to be robust. Second 60 is read as the second after 59.
    ///
    /// `now`, in Unix seconds, settles the century of an RFC 850 date: the latest one that is not more
    /// than 50 years ahead.
    pub fn parse(value: &[u8], now: i64) -> Option<HttpDate> {
        match value.get(3)? {
            b',' => parse_imf_fixdate(value),
            b' ' => parse_asctime(value),
            _ => parse_rfc850(value, now),
        }
    }

    /// Writes an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`. What lies outside the years 1 to 9999 is
    /// written as the nearest date inside.
    pub fn format(self) -> [u8; 29] {
        let seconds = self.0.clamp(HttpDate::MIN.0, HttpDate::MAX.0);
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let second_of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        // 1970-01-01 was a Thursday.
        let weekday = WEEKDAYS[(seconds.div_euclid(SECONDS_PER_DAY) + 4).rem_euclid(7) as usize];
        let month = 3 * (month as usize - 1);

        let mut text = *b"Sun, 00 Jan 0000 00:00:00 GMT";
        text[0..3].copy_from_slice(&weekday[..3]);
        put_two_digits(&mut text, 5, day);
        text[8..11].copy_from_slice(&MONTHS[month..month + 3]);
        put_two_digits(&mut text, 12, year / 100);
        put_two_digits(&mut text, 14, year % 100);
        put_two_digits(&mut text, 17, second_of_day / 3600);
        put_two_digits(&mut text, 20, second_of_day / 60 % 60);
        put_two_digits(&mut text, 23, second_of_day % 60);
        text
    }
}

impl HttpDate {
    /// As log lines of the common format have it: `06/Nov/1994:08:49:37 +0000`.
    pub fn common_log(self) -> [u8; 26] {
        let date = self.format();
        let mut text = *b"00/Jan/0000:00:00:00 +0000";
        text[0..2].copy_from_slice(&date[5..7]);
        text[3..6].copy_from_slice(&date[8..11]);
        text[7..11].copy_from_slice(&date[12..16]);
        text[12..20].copy_from_slice(&date[17..25]);
        text
    }

    /// As RFC 3339 has it: `1994-11-06T08:49:37Z`.
    pub fn rfc3339(self) -> [u8; 20] {
        let seconds = self.0.clamp(HttpDate::MIN.0, HttpDate::MAX.0);
        let (_, month, _) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let date = self.format();
        let mut text = *b"0000-00-00T00:00:00Z";
        text[0..4].copy_from_slice(&date[12..16]);
        put_two_digits(&mut text, 5, month);
        text[8..10].copy_from_slice(&date[5..7]);
        text[11..19].copy_from_slice(&date[17..25]);
        text
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn parse_imf_fixdate(value: &[u8]) -> Option<HttpDate> {
    let text: &[u8; 29] = value.try_into().ok()?;
    if !is_short_weekday(&text[..3]) || &text[3..5] != b", " || text[7] != b' ' || text[11] != b' ' {
        return None;
    }
    if text[16] != b' ' || &text[25..] != b" GMT" {
        return None;
    }
    let year = two_digits(&text[12..14])? * 100 + two_digits(&text[14..16])?;
    compose(year, month_number(&text[8..11])?, two_digits(&text[5..7])?, time_of_day(&text[17..25])?)
}

/// `Sun Nov  6 08:49:37 1994`
fn parse_asctime(value: &[u8]) -> Option<HttpDate> {
    let text: &[u8; 24] = value.try_into().ok()?;
    if !is_short_weekday(&text[..3]) || [text[3], text[7], text[10], text[19]] != *b"    " {
        return None;
    }
    let day = if text[8] == b' ' { &text[9..10] } else { &text[8..10] };
    let time = time_of_day(&text[11..19])?;
    compose(number(&text[20..24])?, month_number(&text[4..7])?, number(day)?, time)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn parse_rfc850(value: &[u8], now: i64) -> Option<HttpDate> {
    let comma = memchr::memchr(b',', value)?;
    if !WEEKDAYS.contains(&&value[..comma]) {
        return None;
    }
    let text: &[u8; 24] = value[comma..].try_into().ok()?;
    if &text[..2] != b", " || text[4] != b'-' || text[8] != b'-' || text[11] != b' ' || &text[20..] != b" GMT"
    {
        return None;
    }
    let (month, day, time) = (month_number(&text[5..8])?, number(&text[2..4])?, time_of_day(&text[12..20])?);

    let now = now.clamp(HttpDate::MIN.0, HttpDate::MAX.0);
    let (now_year, now_month, now_day) = civil_from_days(now.div_euclid(SECONDS_PER_DAY));
    let horizon = (now_year + 50, now_month, now_day, now.rem_euclid(SECONDS_PER_DAY));
    let mut year = (now_year / 100 + 1) * 100 + number(&text[9..11])?;
    while (year, month, day, time) > horizon {
        year -= 100;
    }
    compose(year, month, day, time)
}

/// Puts a date together. `None` where there is no such day.
fn compose(year: i64, month: i64, day: i64, second_of_day: i64) -> Option<HttpDate> {
    if !(1..=9999).contains(&year) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    Some(HttpDate(days_from_civil(year, month, day) * SECONDS_PER_DAY + second_of_day))
}

/// `08:49:37` as seconds since midnight.
fn time_of_day(text: &[u8]) -> Option<i64> {
    if text[2] != b':' || text[5] != b':' {
        return None;
    }
    let (hour, minute) = (two_digits(&text[..2])?, two_digits(&text[3..5])?);
    let second = two_digits(&text[6..8])?;
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

fn two_digits(digits: &[u8]) -> Option<i64> {
    match digits {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
        }
        _ => None,
    }
}

/// At most four digits are ever given.
fn number(digits: &[u8]) -> Option<i64> {
    parse_decimal(digits).and_then(|number| i64::try_from(number).ok())
}

fn is_short_weekday(name: &[u8]) -> bool {
    matches!(name, b"Sun" | b"Mon" | b"Tue" | b"Wed" | b"Thu" | b"Fri" | b"Sat")
}

/// From 1.
fn month_number(name: &[u8]) -> Option<i64> {
    Some(match name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar (H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms"). The year is counted from March, so that the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse: year, month and day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// `number` is below 100.
fn put_two_digits(text: &mut [u8], at: usize, number: i64) {
    text[at] = b'0' + (number / 10) as u8;
    text[at + 1] = b'0' + (number % 10) as u8;
}

/// How long a client is to wait before it comes again, as `Retry-After` says it (RFC 9110 section 10.2.3): whole seconds, rounded
/// up, and one at least, since who comes back at once is refused again.
pub fn delay_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_come_back_too_early() {
        let times = [0, 1, 10_000, 10_001].map(Duration::from_millis);
        assert_eq!(times.map(delay_seconds), [1, 1, 10, 11]);
        assert_eq!(delay_seconds(Duration::MAX), u64::MAX);
    }
}
