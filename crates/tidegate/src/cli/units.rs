//! Figures as a person reads them at a glance: three digits and a unit, in as few cells as that takes.

/// A count, or so many a second: `0`, `0.4`, `12`, `1.2k`, `34M`.
pub fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T"])
}

/// Bytes in units of 1024: `0B`, `512B`, `1.5K`, `12M`.
pub fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "K", "M", "G", "T"])
}

/// Seconds: `15us`, `1.2ms`, `350ms`, `2.5s`, `45s`, `3m05s`, `2h07m`.
pub fn seconds(value: f64) -> String {
    let micros = if value.is_finite() { (value * 1e6).clamp(0.0, 1e15) } else { 0.0 };
    match micros {
        micros if micros < 999.5 => format!("{micros:.0}us"),
        micros if micros < 9_950.0 => format!("{:.1}ms", micros / 1e3),
        micros if micros < 999_500.0 => format!("{:.0}ms", micros / 1e3),
        micros if micros < 9_950_000.0 => format!("{:.1}s", micros / 1e6),
        micros if micros < 59_500_000.0 => format!("{:.0}s", micros / 1e6),
        micros => {
            let seconds = (micros / 1e6).round() as u64;
            match seconds {
                ..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
                seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
            }
        }
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    // Rounded, it must not have four digits.
    while value >= step - 0.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / step, next);
    }
    let is_whole = value == 0.0 || value >= 9.95 || (unit.is_empty() || unit == "B") && value.fract() == 0.0;
    if is_whole { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, shown) in [
            (0.0, "0"),
            (0.42, "0.4"),
            (7.0, "7"),
            (12.4, "12"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (1234.0, "1.2k"),
        ] {
            assert_eq!(count(value), shown);
        }
        for (value, shown) in
            [(0.0, "0B"), (1023.0, "1023B"), (1536.0, "1.5K"), (12e6, "11M"), (f64::NAN, "0B")]
        {
            assert_eq!(bytes(value), shown);
        }
        for (value, shown) in [
            (0.0, "0us"),
            (0.000_015, "15us"),
            (0.001_2, "1.2ms"),
            (0.35, "350ms"),
            (2.5, "2.5s"),
            (59.4, "59s"),
            (59.6, "1m00s"),
            (185.0, "3m05s"),
            (7_620.0, "2h07m"),
        ] {
            assert_eq!(seconds(value), shown);
        }
    }
}
