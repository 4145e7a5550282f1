//! Sizes and times, with their units.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{ValueError, Written};
use crate::directive::Kind;

pub(crate) const SIZE_UNITS: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
pub(crate) const TIME_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Units of other manners and what they most likely mean.
const SIZE_SLIPS: [(&str, &str); 19] = [
    ("", "B"),
    ("b", "B"),
    ("byte", "B"),
    ("bytes", "B"),
    ("k", "KiB"),
    ("K", "KiB"),
    ("kb", "KiB"),
    ("kB", "KiB"),
    ("KB", "KiB"),
    ("kib", "KiB"),
    ("m", "MiB"),
    ("M", "MiB"),
    ("mb", "MiB"),
    ("MB", "MiB"),
    ("mib", "MiB"),
    ("g", "GiB"),
    ("G", "GiB"),
    ("GB", "GiB"),
    ("T", "TiB"),
];
const TIME_SLIPS: [(&str, &str); 14] = [
    ("", "s"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("S", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minutes", "m"),
    ("M", "m"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
];

/// Reads an amount of bytes.
pub(super) fn size(written: Written<'_>, least: u64, most: u64) -> Result<u64, ValueError> {
    let help = || {
        format!(
            "a size is a number with B, KiB, MiB, GiB or TiB, from {} to {}",
            size_text(least),
            size_text(most)
        )
    };
    if let Some(near) = with_unit(written, least, most) {
        let message = format!("`{}` has no unit", near.trim_end_matches("MiB").trim_end_matches("GiB"));
        return Err(ValueError::new(message, format!("write `\"{near}\"`; {}", help())));
    }
    let size = amount(written, "size", &SIZE_UNITS, &SIZE_SLIPS, help)?;
    if (least..=most).contains(&size) {
        Ok(size)
    } else {
        Err(ValueError::new(format!("{} is out of bounds", size_text(size)), help()))
    }
}

/// What is meant by a number without a unit that would be too few bytes: MiB, or what else is in bounds.
fn with_unit(written: Written<'_>, least: u64, most: u64) -> Option<String> {
    let number: u64 = match written {
        Written::Number(number) => u64::try_from(number).ok()?,
        Written::Text { text, .. } if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
        _ => return None,
    };
    let is_in_bounds =
        |factor: u64| number.checked_mul(factor).is_some_and(|size| (least..=most).contains(&size));
    let units = SIZE_UNITS.iter().filter(|(name, _)| matches!(*name, "MiB" | "GiB"));
    let mut near = units.filter(|(_, factor)| is_in_bounds(*factor));
    (!is_in_bounds(1)).then(|| near.next().map(|(name, _)| format!("{number}{name}"))).flatten()
}

/// Reads an amount of bytes in each second.
pub(super) fn speed(written: Written<'_>, least: u64, most: u64) -> Result<u64, ValueError> {
    let text = match written {
        Written::Number(number) => number.to_string(),
        Written::Text { text, .. } => text.to_owned(),
        Written::Other => String::new(),
    };
    let help = || {
        let (least, most) = (size_text(least), size_text(most));
        format!("a speed is a size for each second, such as `\"1MiB/s\"`, from {least}/s to {most}/s")
    };
    let Some(amount) = text.strip_suffix("/s") else {
        // As other servers write it: `1m`, `100k`, `10Mbit`.
        let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
        let unit = text[digits.len()..].trim_end_matches("ps");
        let units = SIZE_UNITS.iter().map(|(name, _)| (*name, *name)).chain(SIZE_SLIPS);
        let meant = units.into_iter().find(|(slip, _)| !unit.is_empty() && *slip == unit);
        let near =
            meant.filter(|_| !digits.is_empty()).map(|(_, unit)| format!("write `\"{digits}{unit}/s\"`; "));
        return Err(ValueError::new(
            format!("`{text}` is no speed"),
            format!("{}{}", near.unwrap_or_default(), help()),
        ));
    };
    let size =
        self::amount(Written::Text { text: amount, is_bare: false }, "size", &SIZE_UNITS, &SIZE_SLIPS, help)
            .map_err(|error| {
                match error.help.strip_prefix("write `\"").and_then(|help| help.split_once("\"`; ")) {
                    Some((near, rest)) => {
                        ValueError::new(error.message, format!("write `\"{near}/s\"`; {rest}"))
                    }
                    None => error,
                }
            })?;
    if (least..=most).contains(&size) {
        Ok(size)
    } else {
        Err(ValueError::new(format!("{}/s is out of bounds", size_text(size)), help()))
    }
}

/// Reads a length of time.
pub(super) fn duration(written: Written<'_>, least: u64, most: u64) -> Result<Duration, ValueError> {
    let text = |milliseconds| duration_text(Duration::from_millis(milliseconds));
    let help = || format!("a time is a number with ms, s, m, h or d, from {} to {}", text(least), text(most));
    let time = amount(written, "time", &TIME_UNITS, &TIME_SLIPS, help).map_err(|error| {
        let number = match written {
            Written::Number(number) => u64::try_from(number).ok(),
            Written::Text { text, .. } => text.parse::<u64>().ok(),
            Written::Other => None,
        };
        // Of a number alone nobody knows which is meant, where both may stand.
        let fits = |factor: u64| {
            number
                .and_then(|number| number.checked_mul(factor))
                .is_some_and(|time| (least..=most).contains(&time))
        };
        match number {
            Some(number) if fits(1) && fits(1000) && number > 0 => {
                let either =
                    format!("milliseconds or seconds? write `\"{number}ms\"` or `\"{number}s\"`; {}", help());
                ValueError::new(error.message, either)
            }
            _ => error,
        }
    })?;
    if (least..=most).contains(&time) {
        Ok(Duration::from_millis(time))
    } else {
        Err(ValueError::new(format!("{} is out of bounds", text(time)), help()))
    }
}

/// Reads a number with a fraction, in millionths.
pub(super) fn decimal(written: Written<'_>, most: u64) -> Result<u64, ValueError> {
    let text = match written {
        Written::Number(number) => number.to_string(),
        Written::Text { text, .. } => text.to_owned(),
        Written::Other => String::new(),
    };
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let millionths = Some(())
        .filter(|()| digits(whole, 12) && digits(fraction, 6))
        .and_then(|()| format!("{whole}{fraction:0<6}").parse::<u64>().ok())
        .filter(|millionths| *millionths <= most.saturating_mul(1_000_000));
    millionths.ok_or_else(|| {
        let shown = if text.is_empty() { "this".to_owned() } else { format!("`{text}`") };
        ValueError::new(
            format!("{shown} is no number that can stand here"),
            format!(
                "expected is {}, with at most six digits behind the point",
                Kind::Decimal { most }.expectation()
            ),
        )
    })
}

/// Reads a share, in millionths.
pub(super) fn share(written: Written<'_>) -> Result<u64, ValueError> {
    let text = match written {
        Written::Number(number) => number.to_string(),
        Written::Text { text, .. } => text.to_owned(),
        Written::Other => String::new(),
    };
    let help = "a share is from 0% to 100%, with at most four digits behind the point, such as `\"1%\"` or `\"0.25%\"`";
    let error = |near: Option<String>| {
        Err(ValueError::new(format!("`{text}` is no share"), near.unwrap_or_default() + help))
    };
    let is_number = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let number = text.strip_suffix('%').unwrap_or(&text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let has_idle_zero = whole.len() > 1 && whole.starts_with('0');
    if !is_number(whole, 3) || !is_number(fraction, 4) || has_idle_zero {
        return error(None);
    }
    if number.len() == text.len() {
        // OpenTelemetry writes a ratio: of a number up to 1 nobody knows which is meant.
        let millionths: Option<u64> = format!("{whole}{fraction:0<4}").parse().ok();
        let of_whole = millionths.filter(|share| (1..=SHARE_WHOLE / 100).contains(share));
        if let Some(share) = of_whole {
            let percent = share_text(share * 100);
            return error(Some(format!(
                "a share of the whole, or percent? write `\"{percent}\"` or `\"{text}%\"`; "
            )));
        }
        return error(Some(format!("write `\"{text}%\"`; ")));
    }
    let millionths = format!("{whole}{fraction:0<4}").parse().unwrap_or(u64::MAX);
    if millionths > SHARE_WHOLE { error(None) } else { Ok(millionths) }
}

/// A share as one writes it.
fn share_text(millionths: u64) -> String {
    let text = format!("{}.{:04}", millionths / 10_000, millionths % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// All of something, as a share.
const SHARE_WHOLE: u64 = 1_000_000;

/// The most that a rate counts.
pub(crate) const RATE_MOST: u64 = 1_000_000_000;

/// Digits that a rate has behind the point, at most.
const RATE_DIGITS: usize = 3;

/// Reads a rate, as a whole number in a time: `0.5/s` is one in 2 s.
pub(super) fn rate(written: Written<'_>) -> Result<(NonZeroU64, Duration), ValueError> {
    let text = match written {
        Written::Number(number) => number.to_string(),
        Written::Text { text, .. } => text.to_owned(),
        Written::Other => String::new(),
    };
    let help = "a rate is a number above 0 to 1000000000, with at most three digits behind the point, for each s, m, h or d, \
                such as `\"10/s\"`, `\"0.5/s\"` or `\"5/m\"`";
    let (number, unit) = text.split_once('/').unwrap_or((&text, ""));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = |number: &str| {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_one = is_number(whole) && is_number(fraction) && fraction.len() <= RATE_DIGITS;
        is_one.then(|| (whole.to_owned(), format!("{fraction:0<RATE_DIGITS$}")))
    };
    let Some((whole, fraction)) = parts(number) else {
        // `10r/s` is how nginx writes it.
        let digits = number.trim_end_matches(|character: char| !character.is_ascii_digit());
        let digits = digits.replace(',', ".");
        let digits = if digits.starts_with('.') { format!("0{digits}") } else { digits };
        let unit = if unit.is_empty() { "s" } else { unit.trim() };
        let near = parts(&digits).map(|_| format!("write `\"{digits}/{unit}\"`; "));
        return Err(ValueError::new(format!("`{text}` is no rate"), near.unwrap_or_default() + help));
    };
    let period = TIME_UNITS.iter().find(|(name, _)| *name == unit && *name != "ms");
    let Some((_, period)) = period else {
        let meant = TIME_SLIPS.iter().find(|(slip, _)| *slip == unit).map(|(_, unit)| *unit);
        let problem = if unit.is_empty() {
            format!("`{text}` does not say for which time")
        } else {
            format!("`{text}` has a time that is not known")
        };
        let near = meant.map(|unit| format!("write `\"{number}/{unit}\"`; ")).unwrap_or_default();
        return Err(ValueError::new(problem, near + help));
    };
    let scale = 10u64.pow(RATE_DIGITS as u32);
    // What is too long for a number is out of bounds as well.
    let whole: Option<u64> = whole.parse().ok().filter(|whole| *whole <= RATE_MOST);
    let scaled = whole.and_then(|whole| NonZeroU64::new(whole * scale + fraction.parse::<u64>().ok()?));
    let Some(scaled) = scaled else {
        return Err(ValueError::new(format!("`{text}` is out of bounds"), help));
    };
    let common = greatest_common_divisor(scaled.get(), scale);
    let count = NonZeroU64::new(scaled.get() / common).unwrap_or(scaled);
    Ok((count, Duration::from_millis(*period * (scale / common))))
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// A rate as one writes it: `10/s`, or `0.5/s` for one in 2 s.
pub(crate) fn rate_text(count: NonZeroU64, period: Duration) -> String {
    let (units, name) = rate_units(period);
    let scale = 10u64.pow(RATE_DIGITS as u32);
    let scaled = u128::from(count.get()) * u128::from(scale) / u128::from(units.get());
    let (whole, fraction) = (scaled / u128::from(scale), scaled % u128::from(scale));
    let number = format!("{whole}.{fraction:0RATE_DIGITS$}");
    format!("{}/{name}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// How often the time of a rate holds the unit that it was written in, and that unit. A rate with a point in it has a time of 2
/// and 5 units and their products, which come to no larger unit: there are 3 in each.
pub(crate) fn rate_units(period: Duration) -> (NonZeroU64, &'static str) {
    let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    let unit = TIME_UNITS.iter().rev().find(|(_, factor)| period.is_multiple_of(*factor));
    let (name, factor) = unit.copied().unwrap_or(("ms", 1));
    (NonZeroU64::new(period / factor).unwrap_or(NonZeroU64::MIN), name)
}

/// A time in one of the units that are longer than a day, which are not known since a month has no one length.
fn in_days(number: &str, unit: &str) -> Option<String> {
    let days = match unit.to_ascii_lowercase().as_str() {
        "w" | "week" | "weeks" => 7,
        "mo" | "month" | "months" => 30,
        "y" | "yr" | "year" | "years" => 365,
        _ => return None,
    };
    Some(format!("{}d", number.parse::<u64>().ok()?.checked_mul(days)?))
}

/// A number with a point in a unit, as a whole number of a smaller one: `0.2s` is `200ms`.
fn whole(text: &str, units: &[(&str, u64)]) -> Option<String> {
    let (whole, rest) = text.split_once(['.', ','])?;
    let digits = rest.find(|character: char| !character.is_ascii_digit())?;
    let (part, unit) = rest.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let scale = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let amount = format!("{whole}{part}").parse::<u64>().ok()?.checked_mul(*factor)?;
    (!part.is_empty() && amount.is_multiple_of(scale)).then(|| in_units(amount / scale, units))
}

/// Several times in one, as `1h30m`, in one unit.
fn summed(text: &str) -> Option<String> {
    let (mut rest, mut sum) = (text, 0u64);
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let end = behind.find(|character: char| character.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(end);
        let (_, factor) = TIME_UNITS.iter().find(|(name, _)| *name == unit.trim())?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = next;
    }
    Some(duration_text(Duration::from_millis(sum)))
}

fn amount(
    written: Written<'_>,
    what: &str,
    units: &[(&str, u64)],
    slips: &[(&str, &str)],
    help: impl Fn() -> String,
) -> Result<u64, ValueError> {
    let text = match written {
        Written::Number(number) => number.to_string(),
        Written::Text { text, .. } => text.to_owned(),
        Written::Other => String::new(),
    };
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    if number.is_empty() {
        return Err(ValueError::new(format!("`{text}` is no {what}"), help()));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit && text[digits..] == **name) else {
        let meant = slips.iter().find(|(slip, _)| *slip == unit).map(|(_, unit)| *unit);
        let meant = meant.or_else(|| units.iter().map(|(name, _)| *name).find(|name| *name == unit));
        let problem = if unit.is_empty() {
            format!("`{text}` has no unit")
        } else {
            format!("`{text}` has a unit that is not known")
        };
        let near = meant.map(|unit| format!("{number}{unit}")).or_else(|| in_days(number, unit));
        let near = near.or_else(|| whole(&text, units));
        let near = near.or_else(|| (what == "time").then(|| summed(&text)).flatten());
        let near = near.map(|near| format!("write `\"{near}\"`; ")).unwrap_or_default();
        return Err(ValueError::new(problem, format!("{near}{}", help())));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*factor))
        .ok_or_else(|| ValueError::new(format!("`{text}` is out of bounds"), help()))
}

/// A size as one writes it, in the largest unit that divides it.
pub fn size_text(bytes: u64) -> String {
    in_units(bytes, &SIZE_UNITS)
}

/// A time as one writes it, in the largest unit that divides it.
pub fn duration_text(time: Duration) -> String {
    in_units(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &TIME_UNITS)
}

fn in_units(amount: u64, units: &[(&str, u64)]) -> String {
    if amount == 0 {
        return format!(
            "0{}",
            units.iter().find(|(name, _)| matches!(*name, "B" | "s")).map_or("", |unit| unit.0)
        );
    }
    let unit = units.iter().rev().find(|(_, factor)| amount.is_multiple_of(*factor));
    unit.map_or_else(|| amount.to_string(), |(name, factor)| format!("{}{name}", amount / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Written<'_> {
        Written::Text { text, is_bare: false }
    }

    #[test]
    fn sizes_and_times() {
        for (written, expected) in [("512B", 512), ("64KiB", 65536), ("1GiB", 1 << 30), ("0B", 0)] {
            assert_eq!(size(text(written), 0, u64::MAX), Ok(expected), "{written}");
        }
        for (written, expected) in
            [("500ms", 500), ("30s", 30_000), ("2h", 7_200_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(
                duration(text(written), 0, u64::MAX),
                Ok(Duration::from_millis(expected)),
                "{written}"
            );
        }
        for written in
            ["", "KiB", "1 KiB", "-1KiB", "1.5KiB", "99999999999999999999B", "18446744073709551615KiB"]
        {
            assert!(size(text(written), 0, u64::MAX).is_err(), "{written}");
        }
    }

    #[test]
    fn decimals() {
        for (written, millionths) in [
            ("0.5", 500_000),
            ("10", 10_000_000),
            ("0", 0),
            ("12.000001", 12_000_001),
            ("100.0", 100_000_000),
        ] {
            assert_eq!(decimal(text(written), 100), Ok(millionths), "{written}");
        }
        assert_eq!(decimal(Written::Number(7), 100), Ok(7_000_000));
        for written in ["", ".5", "1.", "-1", "1e3", "1.0000001", "100.000001", "0x10", "9999999999999999999"]
        {
            let error = decimal(text(written), 100).unwrap_err();
            assert!(error.help.contains("from 0 to 100"), "{written}: {error:?}");
        }
        assert!(decimal(Written::Number(-1), 100).is_err() && decimal(Written::Other, 100).is_err());
    }

    #[test]
    fn shares() {
        for (written, millionths) in [
            ("1%", 10_000),
            ("0%", 0),
            ("100%", 1_000_000),
            ("0.25%", 2_500),
            ("99.9999%", 999_999),
            ("100.0%", 1_000_000),
        ] {
            assert_eq!(share(text(written)), Ok(millionths), "{written}");
        }
        for (written, help) in [
            ("1", "a share of the whole, or percent? write `\"100%\"` or `\"1%\"`; a share"),
            ("101%", "a share"),
            ("100.0001%", "a share"),
            ("1.00001%", "a share"),
            ("01%", "a share"),
            ("1.%", "a share"),
            (".5%", "a share"),
            ("-1%", "a share"),
            ("1 %", "a share"),
            ("", "a share"),
        ] {
            let error = share(text(written)).unwrap_err();
            assert!(error.help.starts_with(help), "{written}: {error:?}");
        }
        assert!(share(Written::Number(5)).unwrap_err().help.starts_with("write `\"5%\"`"));
    }

    #[test]
    fn rates() {
        for (written, count, seconds) in
            [("10/s", 10, 1), ("5/m", 5, 60), ("1000000000/h", 1_000_000_000, 3600), ("1/d", 1, 86_400)]
        {
            let expected = (NonZeroU64::new(count).unwrap(), Duration::from_secs(seconds));
            assert_eq!(rate(text(written)), Ok(expected), "{written}");
            assert_eq!(rate_text(expected.0, expected.1), written);
        }
        for (written, count, seconds, shown) in [
            ("0.5/s", 1, 2, "0.5/s"),
            ("2.50/s", 5, 2, "2.5/s"),
            ("10.0/m", 10, 60, "10/m"),
            ("33.333/s", 33_333, 1000, "33.333/s"),
            ("0.36/s", 9, 25, "0.36/s"),
            ("0.001/d", 1, 86_400_000, "0.001/d"),
            ("00.5/h", 1, 7200, "0.5/h"),
        ] {
            let expected = (NonZeroU64::new(count).unwrap(), Duration::from_secs(seconds));
            assert_eq!(rate(text(written)), Ok(expected), "{written}");
            assert_eq!(rate_text(expected.0, expected.1), shown);
        }
        for (written, message, help) in [
            ("10r/s", "`10r/s` is no rate", "write `\"10/s\"`"),
            ("10/min", "`10/min` has a time that is not known", "write `\"10/m\"`"),
            ("10", "`10` does not say for which time", "write `\"10/s\"`"),
            ("0/s", "`0/s` is out of bounds", "a rate"),
            ("99999999999999999999/s", "`99999999999999999999/s` is out of bounds", "a rate"),
            ("1/ms", "`1/ms` has a time that is not known", "a rate"),
            ("/s", "`/s` is no rate", "a rate"),
            ("-1/s", "`-1/s` is no rate", "a rate"),
            ("+1/s", "`+1/s` is no rate", "a rate"),
            ("1 / s", "`1 / s` is no rate", "write `\"1/s\"`"),
            ("0,5/s", "`0,5/s` is no rate", "write `\"0.5/s\"`"),
            (".5/s", "`.5/s` is no rate", "write `\"0.5/s\"`"),
            ("0.5", "`0.5` does not say for which time", "write `\"0.5/s\"`"),
            ("0.0005/s", "`0.0005/s` is no rate", "a rate is a number above 0"),
            ("0.000/s", "`0.000/s` is out of bounds", "a rate"),
            ("1./s", "`1./s` is no rate", "write `\"1/s\"`"),
            ("1.2.3/s", "`1.2.3/s` is no rate", "a rate"),
        ] {
            let error = rate(text(written)).unwrap_err();
            assert_eq!(error.message, message);
            assert!(error.help.starts_with(help), "{written}: {}", error.help);
        }
    }

    #[test]
    fn a_missing_or_foreign_unit_is_named() {
        let bare = duration(Written::Number(30), 0, 60_000).unwrap_err();
        assert_eq!(bare.message, "`30` has no unit");
        assert!(
            bare.help.starts_with("milliseconds or seconds? write `\"30ms\"` or `\"30s\"`"),
            "{}",
            bare.help
        );
        let seconds = duration(Written::Number(30), 1000, 60_000).unwrap_err();
        assert!(seconds.help.starts_with("write `\"30s\"`"), "{}", seconds.help);
        for (written, meant) in [("0.2s", "200ms"), ("1.5h", "90m"), ("2,5m", "150s")] {
            let error = duration(text(written), 0, u64::MAX).unwrap_err();
            assert!(error.help.starts_with(&format!("write `\"{meant}\"`; ")), "{}", error.help);
        }
        assert!(duration(text("0.0001s"), 0, 60_000).unwrap_err().help.starts_with("a time is"));
        let half = size(text("1.5GiB"), 0, u64::MAX).unwrap_err();
        assert!(half.help.starts_with("write `\"1536MiB\"`"), "{}", half.help);
        let slip = size(text("64k"), 0, u64::MAX).unwrap_err();
        assert!(slip.help.starts_with("write `\"64KiB\"`"), "{}", slip.help);
        let summed = duration(text("1h30m"), 0, 86_400_000).unwrap_err();
        assert!(summed.help.starts_with("write `\"90m\"`"), "{}", summed.help);
        assert!(duration(text("1h30"), 0, 86_400_000).is_err(), "no unit, and no word of one");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for bytes in [0, 1, 1000, 1024, 65536, 3 << 30, 5 << 40] {
            assert_eq!(size(text(&size_text(bytes)), 0, u64::MAX), Ok(bytes));
        }
        for milliseconds in [0, 1, 1000, 90_000, 86_400_000] {
            let time = Duration::from_millis(milliseconds);
            assert_eq!(duration(text(&duration_text(time)), 0, u64::MAX), Ok(time));
        }
    }
}
