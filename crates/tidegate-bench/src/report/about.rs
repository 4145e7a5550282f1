//! What a figure is worth nothing without: when it was taken, where, by which version and by which command.

use serde::Serialize;
use std::fs;
use tidegate_http::HttpDate;
use tidegate_http::field::is_token;

/// Date, machine, versions and command of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct About {
    /// When the run began, as HTTP writes dates (RFC 9110 section 5.6.7).
    pub date: String,
    /// Name of the machine that made the load.
    pub host: String,
    /// Its kernel: name, release, architecture.
    pub kernel: String,
    /// Its processors: how many, and the model where it is known.
    pub processors: String,
    /// Of this program.
    pub version: String,
    /// The command line, quoted as a shell reads it, without the values of header fields that are secrets.
    pub command: String,
}

impl About {
    /// Of a run on this machine that began at `started`, wall-clock seconds since 1970.
    pub fn here(started: f64, version: &str, command: impl Iterator<Item = String>) -> About {
        let kernel = |name: &str| {
            fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default().trim().to_owned()
        };
        About {
            date: String::from_utf8_lossy(&HttpDate(started as i64).format()).into_owned(),
            host: kernel("hostname"),
            kernel: format!("{} {} {}", kernel("ostype"), kernel("osrelease"), std::env::consts::ARCH),
            processors: processors(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            version: version.to_owned(),
            command: command.map(|word| quoted(&without_secret(word))).collect::<Vec<_>>().join(" "),
        }
    }

    /// In one line.
    pub fn sentence(&self) -> String {
        let About { date, host, kernel, processors, version, .. } = self;
        format!("{date}, {host}, {kernel}, {processors}, tidegate {version}")
    }
}

/// How many, and which model, of `/proc/cpuinfo` (proc(5)).
fn processors(cpuinfo: &str) -> String {
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    match model {
        Some((_, model)) => format!("{count} processors ({})", model.trim()),
        None => format!("{count} processors"),
    }
}

/// Parts of names of header fields whose values are nobody else's concern: reports are sent around.
const SECRETS: [&str; 6] = ["auth", "cookie", "token", "secret", "password", "key"];

/// A word of the command line; of a header field that is a secret, as `-H` takes it, the name alone, and of a URL no user.
fn without_secret(word: String) -> String {
    let Some((name, rest)) = word.split_once(':') else { return word };
    let authority =
        rest.strip_prefix("//").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    if let Some((user, _)) = authority.and_then(|authority| authority.rsplit_once('@')) {
        return word.replacen(&format!("{user}@"), "…@", 1);
    }
    let options = ["--header=", "-H=", "-H"];
    let field = options.into_iter().find_map(|option| name.strip_prefix(option)).unwrap_or(name);
    let field = field.trim().to_ascii_lowercase();
    let is_name = is_token(field.as_bytes());
    if is_name && SECRETS.iter().any(|secret| field.contains(secret)) { format!("{name}: …") } else { word }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | ',' | '%' | '+' | '@')
    };
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["tidegate", "bench", "-H", "A: b'c", "http://x/?a=b&c=d", ""].map(str::to_owned);
        let about = About::here(0.0, "1.2.3", words.into_iter());
        assert_eq!(about.command, r"tidegate bench -H 'A: b'\''c' 'http://x/?a=b&c=d' ''");
        let secret = |word: &str| without_secret(word.to_owned());
        for word in [
            "Authorization: Bearer abc",
            "-HX-Api-Key:abc",
            "--header=cookie: abc",
            "Proxy-Authorization:abc",
            "-H=Authorization: Bearer abc",
            "-HX_Api_Key: abc",
        ] {
            assert!(!secret(word).contains("abc") && secret(word).ends_with(": …"), "{}", secret(word));
        }
        assert_eq!(secret("http://user:abc@a.test/x@y"), "http://…@a.test/x@y");
        for word in ["http://token.test:8080/?key=abc", "Accept: auth", "-Hauthor", "--html=key.html"] {
            assert_eq!(secret(word), word);
        }
        assert_eq!(about.date, "Thu, 01 Jan 1970 00:00:00 GMT");
        assert!(about.sentence().ends_with("tidegate 1.2.3"), "{}", about.sentence());
    }

    #[test]
    fn processors_of_the_kernel() {
        let two = "processor\t: 0\nmodel name\t: Z80 @ 4 MHz\n\nprocessor\t: 1\nmodel name\t: Z80 @ 4 MHz\n";
        assert_eq!(processors(two), "2 processors (Z80 @ 4 MHz)");
        assert_eq!(processors(""), "0 processors");
    }
}
