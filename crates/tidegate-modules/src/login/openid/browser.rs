//! What a browser asks for, and how it is sent somewhere else.

use tidegate_core::{Exchange, Response};
use tidegate_http::{Method, Status};

/// Sends a browser somewhere else, this once.
pub fn sent_to(address: String) -> Response {
    Response::empty(Status(302)).with("Location", address).with("Cache-Control", "no-store")
}

/// Whether it speaks TLS, to this server or to a trusted proxy.
pub fn is_secure(exchange: &Exchange<'_>) -> bool {
    exchange.scheme == "https"
}

/// The site, as the browser names it.
pub fn origin_of(exchange: &Exchange<'_>) -> String {
    format!("{}://{}", exchange.scheme, exchange.authority)
}

/// Whether somebody looks at what is answered, and not a program.
pub fn is_navigation(exchange: &Exchange<'_>) -> bool {
    if !matches!(exchange.method, Method::Get | Method::Head) || exchange.fields.contains("x-requested-with")
    {
        return false;
    }
    match exchange.field("sec-fetch-mode") {
        Some(mode) => mode == b"navigate",
        None => {
            let mut kinds = exchange.fields.all("accept").flat_map(|line| line.split(|byte| *byte == b','));
            kinds.any(|kind| kind.trim_ascii().to_ascii_lowercase().starts_with(b"text/html"))
        }
    }
}

/// The values of the cookies of a name.
pub fn cookies<'e>(exchange: &Exchange<'e>, name: &str) -> impl Iterator<Item = &'e str> {
    values(exchange.fields.all("cookie"), name)
}

/// The same of some `Cookie` fields.
pub fn values<'e>(lines: impl Iterator<Item = &'e [u8]>, name: &str) -> impl Iterator<Item = &'e str> {
    lines.flat_map(|line| line.split(|byte| *byte == b';')).filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()
    })
}
