//! Durations, sizes and rates as people write them on a command line, and as reports write them.

use std::time::Duration;
use thiserror::Error;

/// What was written is not such a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// A duration.
    #[error("`{0}` is no duration; write 500ms, 10s, 5m or 1h (a bare number is seconds)")]
    Duration(String),
    /// A size.
    #[error("`{0}` is no size; write 4096, 64KiB, 1MiB or 100kB")]
    Size(String),
    /// A number.
    #[error("`{0}` is no rate; write a number above 0, such as 500, 2.5 or 20k")]
    Rate(String),
    /// A share.
    #[error("`{0}` is no share; write 25% or 0.25")]
    Share(String),
}

fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim_start()))
}

/// `500us`, `500ms`, `10s`, `5m`, `1h`; a bare number is seconds. At most a year.
///
/// # Errors
/// [`QuantityError::Duration`].
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    let wrong = || QuantityError::Duration(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let seconds = number * scale;
    if seconds > 31_536_000.0 { Err(wrong()) } else { Ok(Duration::from_secs_f64(seconds)) }
}

/// `4096`, `64KiB`, `64k` (1024), `100kB` (1000). At least 1.
///
/// # Errors
/// [`QuantityError::Size`].
pub fn size(text: &str) -> Result<u64, QuantityError> {
    let wrong = || QuantityError::Size(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale = match unit.trim_end_matches("/s") {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "k" | "K" | "KiB" => 1024.0,
        "m" | "M" | "MiB" => 1024.0 * 1024.0,
        "g" | "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let bytes = number * scale;
    if (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// A number above 0 with an optional `k` or `M` (thousands, millions).
///
/// # Errors
/// [`QuantityError::Rate`].
pub fn rate(text: &str) -> Result<f64, QuantityError> {
    let wrong = || QuantityError::Rate(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale = match unit.trim_end_matches("/s") {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        _ => return Err(wrong()),
    };
    let rate = number * scale;
    if rate > 0.0 && rate <= 1e8 { Ok(rate) } else { Err(wrong()) }
}

/// Bits per second with an optional `k` or `M`, as SPECweb99 counts: `320k`.
///
/// # Errors
/// [`QuantityError::Rate`].
pub fn bit_rate(text: &str) -> Result<f64, QuantityError> {
    let bare = text.trim_end_matches("bit/s").trim_end_matches("bps").trim_end_matches("bit");
    let wrong = || QuantityError::Rate(text.to_owned());
    let (number, unit) = split(bare).ok_or_else(wrong)?;
    let scale = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        _ => return Err(wrong()),
    };
    if number > 0.0 { Ok(number * scale) } else { Err(wrong()) }
}

/// `25%` or `0.25`, in 0..=1.
///
/// # Errors
/// [`QuantityError::Share`].
pub fn share(text: &str) -> Result<f64, QuantityError> {
    let wrong = || QuantityError::Share(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(wrong()),
    };
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
}

/// `1.23 ms`: three digits and the unit that fits.
pub fn show_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{} {unit}", show_number(value))
}

/// Three significant digits where there is a fraction.
pub fn show_number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `3.5 %`, as it was written: without what binary fractions add.
pub fn show_share(share: f64) -> String {
    format!("{} %", (share * 1e8).round() / 1e6)
}

/// `1.50 MiB`.
pub fn show_bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if unit == 0 { format!("{value:.0} {name}") } else { format!("{} {name}", show_number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("100kB/s"), Ok(100_000));
        assert_eq!(rate("20k"), Ok(20_000.0));
        assert_eq!(bit_rate("320kbit/s"), Ok(320_000.0));
        assert_eq!(share("25%"), Ok(0.25));
        for bad in ["", "x", "10 parsecs", "-1"] {
            assert!(duration(bad).is_err() && size(bad).is_err() && rate(bad).is_err(), "{bad}");
        }
        assert!(rate("0").is_err() && share("101%").is_err() && duration("9999999h").is_err());
    }

    #[test]
    fn shown_as_people_read_them() {
        assert_eq!(show_duration(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(show_duration(Duration::from_secs(12)), "12.0 s");
        assert_eq!(show_bytes(1536.0), "1.50 KiB");
        assert_eq!(show_bytes(12.0), "12 B");
        assert_eq!([0.07, 0.29, 0.035].map(show_share), ["7 %", "29 %", "3.5 %"]);
    }
}
