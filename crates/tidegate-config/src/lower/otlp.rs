//! `otlp`: a collector of OpenTelemetry that is told what the server counts.

use std::path::Path;

use super::directory::{is_here, path_of};
use crate::accounts;
use crate::check::{Checker, Item};
use crate::diagnostic::{Diagnostic, Severity};
use crate::disk::Disk;
use crate::settings::Otlp;
use crate::value::{Value, collector_host};

/// Most fields that are sent along.
const HEADERS_MAX: usize = 16;
/// Most bytes of one.
const HEADER_MAX: usize = 4096;
/// Fields that say how the message is sent.
const OURS: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "transfer-encoding",
];

/// What is put behind the address (the OTLP specification, "OTLP/HTTP Request").
const SIGNALS: [&str; 3] = ["/v1/metrics", "/v1/traces", "/v1/logs"];

/// What an `otlp` says; `None` where what is wrong with it has been said.
pub(super) fn otlp(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<Otlp> {
    let url = item.texts().into_iter().next()?;
    let Some(host) = collector_host(&url) else {
        let help =
            "write `\"http://127.0.0.1:4318\"` or `\"https://otlp.example.com\"`, without `/v1/metrics`";
        let message = format!("`{url}` is no address of a collector");
        checker.diagnostics.push(item.error_at(0, message).help(help));
        return None;
    };
    if let Some((before, signal)) = SIGNALS
        .iter()
        .find_map(|signal| url.trim_end_matches('/').strip_suffix(signal).map(|before| (before, *signal)))
    {
        let message = format!(
            "`{signal}` is put behind the address by the server, which would send to `{url}{signal}`"
        );
        checker.diagnostics.push(item.error_at(0, message).help(format!("write `\"{before}\"`")));
        return None;
    }
    let headers_file = path_of(item, "headers");
    let headers = match headers_file.as_ref().map(|path| (read(disk, path), path)) {
        None => Vec::new(),
        Some((Ok(headers), _)) => headers,
        Some((Err(why), path)) => {
            let help = "write a field on each line, such as `authorization: Bearer …`, in a file that the user who starts the \
                        server can read";
            checker.diagnostics.push(item.error(format!("{} {why}", path.display())).help(help));
            return None;
        }
    };
    if !headers.is_empty() && url.starts_with("http://") && !is_here(&host) {
        let message = format!("the fields of `headers` cross the network as they are on the way to `{url}`");
        let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(0, message) };
        checker.diagnostics.push(warning.help("use `https://`, or a collector on this machine"));
    }
    let time = |name| match item.property(name) {
        Some(Value::Duration(time)) => Some(time),
        _ => None,
    };
    let service = match item.property("service") {
        Some(Value::Text(service)) => service,
        _ => return None,
    };
    if service.trim().is_empty() {
        let help = "name it, such as `service=\"tidegate\"`, or take `service=` out";
        checker.diagnostics.push(item.error("a service without a name").help(help));
        return None;
    }
    Some(Otlp {
        url: url.trim_end_matches('/').to_owned(),
        interval: time("interval")?,
        timeout: time("timeout")?,
        service,
        headers,
        headers_file,
    })
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<(String, String)>, String> {
    let bytes = disk.read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "holds no text".to_owned())?;
    let lines = (1..).zip(accounts::without_mark(&text).lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let headers: Vec<_> = lines
        .map(|(number, line)| field(line).ok_or_else(|| format!("has no field in line {number}")))
        .collect::<Result<_, _>>()?;
    if headers.len() > HEADERS_MAX {
        return Err(format!("has {} fields, and at most {HEADERS_MAX} are sent", headers.len()));
    }
    Ok(headers)
}

/// Name and value of a line; what may stand in either, RFC 9110 section 5 says.
fn field(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_fit = line.len() <= HEADER_MAX
        && !name.is_empty()
        && name.bytes().all(is_token)
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !OURS.contains(&name.as_str());
    is_fit.then(|| (name, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let field = |line| field(line).map(|(name, value)| format!("{name}={value}"));
        for (line, expected) in [
            ("Authorization: Basic YTpi", Some("authorization=Basic YTpi")),
            ("x-scope:a", Some("x-scope=a")),
            ("x-empty:", Some("x-empty=")),
            ("no field", None),
            (": a", None),
            ("a b: c", None),
            ("a: b\u{7f}", None),
            ("Host: other", None),
            ("content-type: text/html", None),
        ] {
            assert_eq!(field(line).as_deref(), expected, "{line}");
        }
    }
}
