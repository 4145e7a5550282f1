//! `tidegate sign-url`: makes a URL that `signed` lets in.

use super::print;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_config::read_url_keys;
use tidegate_io::clock::wall_seconds;
use tidegate_modules::login::{SignedFor, sign_url};

/// Signs a URL for a route with `signed`.
///
/// Whoever has the URL gets what it leads to, until it expires: with `signed "downloads" client` in the settings from the
/// address alone that --client names, and with `host` at the host alone that --host names. The path is signed, and the whole
/// query. The first key of the file signs.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  openssl rand -base64 32 > url-keys     makes a key
  tidegate sign-url --keys url-keys https://example.com/dl/film.mp4
  tidegate sign-url --keys url-keys --valid-for 7d /dl/film.mp4
  tidegate sign-url --keys url-keys --client 203.0.113.9 /dl/film.mp4
  tidegate sign-url --keys url-keys --host example.com https://example.com/dl/film.mp4

Exit codes:
  0  done
  1  the keys cannot be read, or the URL cannot be signed
  2  the arguments are wrong")]
pub struct Arguments {
    /// The file that `url-keys` of the settings names
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// How long it is good: 90s, 15m, 1h, 7d
    #[arg(long, value_name = "TIME", default_value = "1h", conflicts_with = "expires", value_parser = time)]
    valid_for: i64,
    /// When it expires, seconds since 1970
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..1_000_000_000_000))]
    expires: Option<i64>,
    /// The address of the one client that it is for
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    /// The host that it is for alone, where the settings say `signed … host`
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// What to sign: a URL, or a path with its query
    #[arg(value_name = "URL")]
    url: String,
}

/// Signs.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let keys = read_url_keys(&arguments.keys).map_err(|why| anyhow!(why)).context("cannot sign")?;
    let Some(key) = keys.first() else { bail!("there is no key in {}", arguments.keys.display()) };
    let expires = arguments.expires.unwrap_or_else(|| wall_seconds().saturating_add(arguments.valid_for));
    if arguments.expires.is_some_and(|expires| expires <= wall_seconds()) {
        bail!("--expires lies in the past: the URL would let nobody in");
    }
    let only = SignedFor { client: arguments.client, host: arguments.host.as_deref() };
    let signed = sign_url(&arguments.url, key, expires, only).map_err(|why| anyhow!(why))?;
    print(&format!("{signed}\n"))
}

/// `90s`, `15m`, `1h`, `7d` in seconds.
fn time(text: &str) -> Result<i64, String> {
    let wrong = || "a time is a number with its unit: 90s, 15m, 1h, 7d".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    match i64::from(number) * unit {
        0 => Err("a URL that is good for no time lets nobody in: give at least 1s".to_owned()),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times() {
        for (text, expected) in [
            ("1s", Some(1)),
            ("15m", Some(900)),
            ("7d", Some(604_800)),
            ("0s", None),
            ("0d", None),
            ("s", None),
            ("5", None),
        ] {
            assert_eq!(time(text).ok(), expected, "{text}");
        }
    }
}
