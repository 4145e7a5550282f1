//! A written value to a typed one: every type that a directive may take, its bounds, and the words for what
//! was expected.
//!
//! Called by `check` for every argument and property. The text has had its environment variables filled in.
//! Nothing here looks at the file system.

mod foreign_text;
mod log_format;
mod names;
mod paths;
mod placeholders;
mod proposals;
mod quantity;
mod service;
mod upstream;
mod variables;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::directive::Kind;
use crate::settings::cache::refusal;
use crate::settings::gateway::Destination;
use crate::settings::{
    AccessFormat, Country, HostPattern, ListenAddress, LogTarget, Network, PathPattern, Regex, TimeWindow,
    Try,
};

pub(crate) use foreign_text::{Foreign, foreign};
pub(crate) use names::field_names_agree;
pub(crate) use names::has_too_large_a_port;
pub(crate) use names::network as read_network;
pub(crate) use names::{
    country as read_country, host as read_host, is_token, meant_token, time_window as read_time_window,
};
pub(crate) use paths::{
    IS_EXPRESSION, covers, file as read_file, is_name, location_of_nginx, pattern as read_pattern,
    pattern_text,
};
pub use placeholders::literal_word;
pub(crate) use placeholders::{
    asks_for, asks_for_user, asks_for_value, is_constant, names as placeholder_names,
    unknown as unknown_placeholder,
};
pub(crate) use quantity::{RATE_MOST, SIZE_UNITS, TIME_UNITS, rate_text, rate_units};
pub use quantity::{duration_text, size_text};
pub(crate) use service::{ServiceUrl, collector_host};
pub(crate) use upstream::host_and_port;
pub(crate) use variables::{meant_by_constant, meant_by_variable};

/// A value that fits its type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// One of the words of a choice, or one that may stand in an argument's place.
    Word(&'static str),
    /// A number, a size in bytes, a status.
    Number(u64),
    Duration(Duration),
    /// So many in each such time.
    Rate(NonZeroU64, Duration),
    Text(String),
    Path(PathBuf),
    LogTarget(LogTarget),
    LogFormat(AccessFormat),
    Host(HostPattern),
    Pattern(PathPattern),
    Regex(Regex),
    Address(ListenAddress),
    Network(Network),
    Countries(Vec<Country>),
    /// Of [`Kind::HostNames`].
    HostNames(Vec<HostPattern>),
    Time(TimeWindow),
    Try(Try),
    Destination(Destination),
    /// Where it is, what stands in front of every path, and with `https` what it is called.
    Url(Destination, String, Option<String>, bool),
    /// A service that the server itself asks.
    Service(Box<ServiceUrl>),
}

/// A value as it was written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Written<'a> {
    /// A string, and whether it stood without quotes.
    Text { text: &'a str, is_bare: bool },
    /// A number without a unit.
    Number(i128),
    /// `#true`, `1.5`: what no directive takes.
    Other,
}

/// Why a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueError {
    pub message: String,
    pub help: String,
}

impl ValueError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// Reads a time as settings say it, such as `200ms`, `5s` or `2h`, up to a year.
///
/// # Errors
/// A sentence that says what it is not, and what to write.
pub fn read_duration(text: &str) -> Result<Duration, String> {
    const YEAR: u64 = 365 * 86_400_000;
    let written = Written::Text { text, is_bare: false };
    quantity::duration(written, 0, YEAR).map_err(|error| format!("{}; {}", error.message, error.help))
}

/// What is said of a text that is one value, where each of its parts, with commas or spaces between, would be one.
pub(crate) fn several(text: &str, is_one: impl Fn(&str) -> bool) -> Option<ValueError> {
    let parts: Vec<&str> = text.split([',', ' ']).filter(|part| !part.is_empty()).collect();
    if parts.len() < 2 || !parts.iter().all(|part| is_one(part)) {
        return None;
    }
    let apart: Vec<String> = parts.iter().map(|part| format!("\"{part}\"")).collect();
    let help = format!("each stands in a string of its own: `{}`", apart.join(" "));
    Some(ValueError::new(format!("`{text}` is one value, and several stand in it"), help))
}

/// A host name, where the text is one.
pub(crate) fn host(text: &str) -> Option<HostPattern> {
    names::host(text).ok()
}

/// Reads a value of a type; `words` may stand in its place. Relative paths count from `folder`.
pub(crate) fn read(
    kind: Kind,
    words: &'static [&'static str],
    written: Written<'_>,
    folder: &Path,
) -> Result<Value, ValueError> {
    if let Written::Text { text, is_bare } = written
        && let Some(word) = words.iter().find(|word| **word == text)
        && (is_bare || !kind.is_free_text())
    {
        return Ok(Value::Word(word));
    }
    let expected = || kind.expectation_with(words);
    match (kind, written) {
        (Kind::Decimal { most }, _) => quantity::decimal(written, most).map(Value::Number),
        (_, Written::Other) => Err(ValueError::new(
            "this is neither a word, a string nor a whole number",
            format!("expected is {}", expected()),
        )),
        (Kind::Number { least, most }, Written::Number(number)) => within(number, least, most)
            .ok_or_else(|| out_of_bounds(&number.to_string(), &expected()))
            .map(Value::Number),
        (Kind::Status { only }, Written::Number(number)) => status(number, only)
            .ok_or_else(|| {
                ValueError::new(
                    format!("{number} is no status that can stand here"),
                    format!("expected is {}", expected()),
                )
            })
            .map(Value::Number),
        (Kind::Statuses, Written::Number(number)) => {
            read(kind, words, Written::Text { text: &number.to_string(), is_bare: true }, folder)
        }
        (Kind::Statuses, Written::Text { text, .. }) => match text.split('|').all(is_expected_status) {
            true => Ok(Value::Text(text.to_owned())),
            false => {
                let help = format!("expected is {}", expected());
                Err(ValueError::new(format!("`{text}` is no status"), help))
            }
        },
        (Kind::Number { .. } | Kind::Status { .. }, Written::Text { text, .. }) => {
            // Numbers that came out of an environment variable are strings; so are quoted ones.
            match text.parse::<i128>() {
                Ok(number) => read(kind, words, Written::Number(number), folder),
                Err(_) if words.contains(&"4xx") && matches!(text, "5xx" | "any") => {
                    let why = refusal(500).unwrap_or_default();
                    Err(ValueError::new(
                        format!("failures are not stored by a lifetime of the settings: {why}"),
                        "write a line for each status or class that is meant: `200`, `404`, `\"2xx\"`, `\"3xx\"`, `\"4xx\"`",
                    ))
                }
                Err(_) => Err(ValueError::new(
                    format!("`{text}` is no number"),
                    format!("expected is {}", expected()),
                )),
            }
        }
        (Kind::Size { least, most }, _) => quantity::size(written, least, most).map(Value::Number),
        (Kind::Duration { least, most }, _) => quantity::duration(written, least, most).map(Value::Duration),
        (Kind::Speed { least, most }, _) => quantity::speed(written, least, most).map(Value::Number),
        (Kind::Rate, _) => quantity::rate(written).map(|(count, time)| Value::Rate(count, time)),
        (Kind::Share, _) => quantity::share(written).map(Value::Number),
        (Kind::File, Written::Text { text: "off", is_bare: true }) => Err(ValueError::new(
            "`off` switches nothing off here",
            "take the line out where no file is meant; a file of that name is `\"./off\"`",
        )),
        (Kind::Address, Written::Number(number)) => {
            names::address(&number.to_string(), folder).map(Value::Address)
        }
        (_, Written::Number(number)) => Err(ValueError::new(
            format!("the number {number} stands where a string is due"),
            format!(
                "{}expected is {}",
                if kind.is_free_text() {
                    format!("put it in quotes, `\"{number}\"`; ")
                } else {
                    String::new()
                },
                expected()
            ),
        )),
        (_, Written::Text { text, .. }) => read_text(kind, words, text, folder),
    }
}

fn read_text(
    kind: Kind,
    words: &'static [&'static str],
    text: &str,
    folder: &Path,
) -> Result<Value, ValueError> {
    match kind {
        Kind::Choice(choice) => match choice.iter().find(|word| **word == text) {
            Some(word) => Ok(Value::Word(word)),
            None => {
                let known = choice.iter().chain(words).copied();
                let near = crate::suggest::nearest(text, known.clone());
                // Others cut words short: `least_conn`.
                let cut = text.to_ascii_lowercase().replace('_', "-");
                let near = near.or_else(|| {
                    let mut longer = known.filter(|word| cut.len() > 3 && word.starts_with(&*cut));
                    longer.next().filter(|_| longer.next().is_none())
                });
                let near = near.map(|word| format!("did you mean `{word}`? ")).unwrap_or_default();
                let help = format!("{near}expected is {}", kind.expectation_with(words));
                Err(ValueError::new(format!("`{text}` is not known here"), help))
            }
        },
        Kind::Text { most } if text.len() > most => Err(ValueError::new(
            format!("the text is longer than {most} bytes"),
            "put it into a file".to_owned(),
        )),
        Kind::Text { .. } => Ok(Value::Text(text.to_owned())),
        Kind::File => paths::file(text, folder).map(Value::Path),
        Kind::LogTarget => paths::log_target(text, folder).map(Value::LogTarget),
        Kind::LogFormat => log_format::format(text).map(Value::LogFormat),
        Kind::Glob => paths::file(text, folder).map(Value::Path),
        Kind::Pattern => paths::pattern(text).map(Value::Pattern),
        Kind::Regex => paths::regex(text).map(Value::Regex),
        Kind::SitePath => paths::site_path(text).map(Value::Text),
        Kind::FileName => paths::file_name(text).map(Value::Text),
        Kind::Try => paths::try_entry(text).map(Value::Try),
        Kind::Target => paths::target(text).map(Value::Text),
        Kind::Host => names::host(text).map(Value::Host),
        Kind::ToldHost => names::told_host(text).map(Value::Text),
        Kind::Address => names::address(text, folder).map(Value::Address),
        Kind::Network => names::network(text).map(Value::Network),
        Kind::Language => names::language(text).map(Value::Text),
        Kind::Countries => names::countries(text).map(Value::Countries),
        Kind::HostNames => names::client_names(text).map(Value::HostNames),
        Kind::TimeWindow => names::time_window(text).map(Value::Time),
        Kind::FieldName => names::field_name(text).map(Value::Text),
        Kind::FieldValue => names::field_value(text).map(Value::Text),
        Kind::FieldTemplate => names::field_value(text).map(Value::Text),
        Kind::Rewrite => paths::rewrite(text).map(Value::Text),
        Kind::MediaType => names::media_type(text).map(Value::Text),
        Kind::Token => names::token(text).map(Value::Text),
        Kind::Tokens => names::tokens(text).map(Value::Text),
        Kind::Origin => names::origin(text).map(Value::Text),
        Kind::Extension => names::extension(text).map(Value::Text),
        Kind::Destination => upstream::destination(text, folder).map(Value::Destination),
        Kind::Url => {
            upstream::url(text, folder).map(|url| Value::Url(url.to, url.base, url.tls_name, url.is_http2))
        }
        Kind::Service => service::url(text).map(|url| Value::Service(Box::new(url))),
        Kind::FileOrService if service::is_url(text) => {
            service::url(text).map(|url| Value::Service(Box::new(url)))
        }
        Kind::FileOrService => paths::file(text, folder).map(Value::Path),
        Kind::Variable => upstream::variable(text).map(Value::Text),
        Kind::RequestField => upstream::request_field(text).map(Value::Text),
        Kind::Suffix => upstream::suffix(text).map(Value::Text),
        Kind::Number { .. }
        | Kind::Size { .. }
        | Kind::Duration { .. }
        | Kind::Rate
        | Kind::Share
        | Kind::Decimal { .. }
        | Kind::Speed { .. }
        | Kind::Statuses
        | Kind::Status { .. } => Err(ValueError::new(
            format!("`{text}` does not fit"),
            format!("expected is {}", kind.expectation()),
        )),
    }
}

fn within(number: i128, least: u64, most: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (least..=most).contains(number))
}

fn status(number: i128, only: &[u16]) -> Option<u64> {
    let status = within(number, 200, 599)?;
    (only.is_empty() || only.iter().any(|known| u64::from(*known) == status)).then_some(status)
}

fn out_of_bounds(shown: &str, expected: &str) -> ValueError {
    ValueError::new(format!("{shown} is out of bounds"), format!("expected is {expected}"))
}

/// `200`, `2xx` or `200-299`.
fn is_expected_status(text: &str) -> bool {
    let is_status =
        |text: &str| text.len() == 3 && text.parse::<u16>().is_ok_and(|status| (100..600).contains(&status));
    match (text.strip_suffix("xx"), text.split_once('-')) {
        (Some(class), _) => matches!(class, "1" | "2" | "3" | "4" | "5"),
        (None, Some((low, high))) => is_status(low) && is_status(high) && low <= high,
        (None, None) => is_status(text),
    }
}

impl Kind {
    /// Whether any text fits, so that `off` in quotes is that text and not the word.
    fn is_free_text(self) -> bool {
        matches!(self, Self::Text { .. } | Self::FieldValue | Self::FieldTemplate)
    }

    /// A short stand-in for a value in a synopsis.
    pub fn placeholder(self) -> String {
        match self {
            Self::Choice(words) => words.join("|"),
            Self::Number { .. } | Self::Decimal { .. } => "NUMBER".to_owned(),
            Self::Size { .. } => "SIZE".to_owned(),
            Self::Duration { .. } => "TIME".to_owned(),
            Self::Rate => "RATE".to_owned(),
            Self::Speed { .. } => "SPEED".to_owned(),
            Self::Status { .. } | Self::Statuses => "STATUS".to_owned(),
            _ => "VALUE".to_owned(),
        }
    }

    /// What a value must be, with bounds and an example: the words of errors and of the reference.
    pub fn expectation(self) -> String {
        match self {
            Self::Number { least, most } => format!("a whole number from {least} to {most}"),
            Self::Size { least, most } => {
                format!("a size from {} to {}, such as `\"64KiB\"`", size_text(least), size_text(most))
            }
            Self::Duration { least, most } => {
                let text = |milliseconds| duration_text(Duration::from_millis(milliseconds));
                format!("a time from {} to {}, such as `\"30s\"`", text(least), text(most))
            }
            Self::Speed { least, most } => format!(
                "bytes in each second from {}/s to {}/s, such as `\"1MiB/s\"`",
                size_text(least),
                size_text(most)
            ),
            Self::Decimal { most } => format!("a number from 0 to {most}, such as `10` or `0.5`"),
            Self::Share => "a share from 0% to 100%, such as `\"1%\"`".to_owned(),
            Self::Rate => {
                "a number for each second, minute, hour or day, such as `\"10/s\"`, `\"0.5/s\"` or `\"5/m\"`".to_owned()
            }
            Self::Statuses => "a status, a class or a range, several with `|`: `200`, `\"2xx\"`, `\"200-299|404\"`".to_owned(),
            Self::Status { only: &[] } => "a status from 200 to 599".to_owned(),
            Self::Status { only } => {
                format!(
                    "one of the statuses {}",
                    only.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
                )
            }
            Self::Choice([only]) => format!("`{only}` or nothing"),
            Self::Choice(words) => {
                format!(
                    "one of {}",
                    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
                )
            }
            Self::Text { most } => format!("a text of at most {most} bytes"),
            Self::File => "a path, such as `\"/srv/www\"`".to_owned(),
            Self::LogTarget => {
                "a path, `stderr`, `stdout`, `journald`, `syslog`, or a syslog server, such as \
                 `\"syslog:udp://192.0.2.1:514\"`"
                    .to_owned()
            }
            Self::Service => "an address, such as `\"https://id.example.com\"`".to_owned(),
            Self::FileOrService => {
                "a path, such as `\"/etc/tidegate/keys\"`, or an address, such as `\"https://id.example.com/keys\"`"
                    .to_owned()
            }
            Self::LogFormat => {
                "`combined`, `common`, `json` or a pattern, such as `\"{client} {method} {target} {status}\"`"
                    .to_owned()
            }
            Self::Glob => "a path, with `*` and `?` if wanted, such as `\"sites/*.kdl\"`".to_owned(),
            Self::Host => "a host name, such as `\"example.com\"` or `\"*.example.com\"`".to_owned(),
            Self::ToldHost => "a host name without a port, such as `\"app.internal\"`".to_owned(),
            Self::Pattern => "a pattern, such as `\"/static/*\"` or `\"*.php\"`".to_owned(),
            Self::Regex => "a regular expression, such as `#\"^/u/(?<id>[0-9]+)$\"#`".to_owned(),
            Self::SitePath => "a path of the site, such as `\"/404.html\"`".to_owned(),
            Self::Address => "an address, such as `\"127.0.0.1:8080\"` or `\":80\"`".to_owned(),
            Self::Network => {
                "`\"all\"`, `\"unix\"`, an address or a network, such as `\"10.0.0.0/8\"`".to_owned()
            }
            Self::Language => "a language, such as `\"en\"` or `\"pt-BR\"`".to_owned(),
            Self::Countries => "codes of countries, such as `\"DE\"` or `\"DE,AT,CH\"`".to_owned(),
            Self::HostNames => {
                "names of hosts, such as `\"*.example.com\"` or `\"a.example.com,*.example.org\"`".to_owned()
            }
            Self::TimeWindow => {
                "days, hours and a time zone, such as `\"Mon-Fri 08:00-18:00 Europe/Berlin\"`".to_owned()
            }
            Self::FileName => "a file name, such as `\"index.html\"`".to_owned(),
            Self::Try => {
                "a path, such as `\"{path}.html\"`, a route, `\"@app\"`, or a status, such as `\"=404\"`"
                    .to_owned()
            }
            Self::Target => {
                "an address, such as `\"/new/{path}\"` or `\"https://example.com{uri}\"`".to_owned()
            }
            Self::Rewrite => {
                "a path of the site, such as `\"/users/{id}\"` or `\"/index.php?p={1}\"`".to_owned()
            }
            Self::FieldName => "a field name, such as `\"X-Frame-Options\"`".to_owned(),
            Self::FieldValue | Self::FieldTemplate => {
                "a field value of visible ASCII characters and spaces".to_owned()
            }
            Self::MediaType => "a media type, such as `\"text/html\"`".to_owned(),
            Self::Token => "a name of letters, digits, `-` and `_`".to_owned(),
            Self::Tokens => "names with commas between them, such as `\"GET,POST\"`".to_owned(),
            Self::Origin => {
                "an origin, such as `\"https://app.example.com\"` or `\"*\"`, and `credentials` behind"
                    .to_owned()
            }
            Self::Extension => "an extension without its dot, such as `\"wasm\"`".to_owned(),
            Self::Destination => {
                "the name of a pool, an address, or a unix socket, such as `\"unix:/run/php.sock\"`"
                    .to_owned()
            }
            Self::Url => "a URL or the name of a pool, such as `\"http://127.0.0.1:3000\"`".to_owned(),
            Self::Variable => "the name of a variable, such as `\"APP_ENV\"`".to_owned(),
            Self::RequestField => "a field name, such as `\"X-Api-Key\"`".to_owned(),
            Self::Suffix => "a suffix of scripts, such as `\".php\"`".to_owned(),
        }
    }

    /// The same, with the words that may stand in the value's place.
    pub fn expectation_with(self, words: &[&str]) -> String {
        let mut out = self.expectation();
        for word in words {
            out += &format!(", or `{word}`");
        }
        out
    }
}
