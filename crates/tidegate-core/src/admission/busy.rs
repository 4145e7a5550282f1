//! The busy answer (the busy function of R2): `busy-answer` of the settings in the forms it is sent in.
//!
//! To a connection that is turned away it goes as bytes that were encoded when the settings were taken up;
//! only the date is put in. To a request it is a response like any other.

use crate::answer;
use crate::response::Response;
use std::fmt::Write;
use tidegate_config::settings;
use tidegate_http::{Status, delay_seconds};

/// Length of a date (RFC 9110 section 5.6.7).
const DATE: usize = 29;

/// Encoded bytes that end their connection.
struct Encoded {
    bytes: Vec<u8>,
    /// Where the date stands.
    date: usize,
    /// Where the body begins.
    body: usize,
}

/// The answers to those who are turned away.
pub struct Busy {
    settings: settings::Busy,
    busy: Encoded,
    /// 429 (RFC 6585 section 4): to an address with too many connections, whose doing it is.
    too_many: Encoded,
}

impl Busy {
    /// From the settings.
    pub fn new(settings: &settings::Settings) -> Busy {
        let busy = &settings.busy;
        let server = settings.server_field.as_deref();
        Busy {
            busy: Encoded::new(Status(busy.status), busy, server),
            too_many: Encoded::new(Status::TOO_MANY_REQUESTS, busy, server),
            settings: busy.clone(),
        }
    }

    /// As bytes; `HEAD` gets no body. `is_clients_doing`: the client has too many connections itself.
    pub fn bytes(&mut self, date: &[u8; DATE], is_head: bool, is_clients_doing: bool) -> &[u8] {
        let encoded = if is_clients_doing { &mut self.too_many } else { &mut self.busy };
        if let Some(place) = encoded.bytes.get_mut(encoded.date..encoded.date + DATE) {
            place.copy_from_slice(date);
        }
        if is_head { &encoded.bytes[..encoded.body] } else { &encoded.bytes }
    }

    /// As a response, in the place of one that says so. Where the settings have no text, the page of that one stays: it says what is
    /// busy or out of reach.
    pub fn instead_of(&self, response: Response) -> Response {
        let lines = response.head.lines();
        let after = lines.first("Retry-After").map(<[u8]>::to_vec);
        let is_plain = lines.first("Content-Encoding").is_none();
        let mut busy = self.response();
        if let Some(after) = after {
            busy.fields_mut().set("Retry-After", after);
        }
        if self.settings.text.is_empty() && is_plain && response.status == busy.status {
            busy.body = response.body;
        }
        busy
    }

    /// As a response.
    pub fn response(&self) -> Response {
        let status = Status(self.settings.status);
        let response = if self.settings.text.is_empty() {
            answer::error(status)
        } else {
            Response::content(status, &self.settings.media_type, self.settings.text.as_bytes())
        };
        response
            .with("Retry-After", delay_seconds(self.settings.retry_after).to_string())
            .with("Cache-Control", "no-store")
    }
}

impl Encoded {
    fn new(status: Status, busy: &settings::Busy, server: Option<&str>) -> Encoded {
        let mut head = format!("HTTP/1.1 {} {}\r\nDate: ", status.0, status.reason());
        let date = head.len();
        let _ = write!(head, "{}\r\n", " ".repeat(DATE)); // a `String` takes all
        if let Some(server) = server {
            let _ = write!(head, "Server: {server}\r\n");
        }
        if !busy.text.is_empty() {
            let _ = write!(head, "Content-Type: {}\r\n", busy.media_type);
        }
        let _ = write!(
            head,
            "Retry-After: {}\r\nCache-Control: no-store\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            delay_seconds(busy.retry_after),
            busy.text.len()
        );
        let body = head.len();
        Encoded { bytes: (head + &busy.text).into_bytes(), date, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn bytes_are_a_whole_answer() {
        let settings = settings::Busy {
            status: 503,
            retry_after: Duration::from_millis(1500),
            text: "later\n".into(),
            media_type: "text/plain".into(),
        };
        let mut encoded = Encoded::new(Status(503), &settings, Some("Tidegate"));
        encoded.bytes[encoded.date..encoded.date + DATE].fill(b'D');
        let text = String::from_utf8(encoded.bytes).unwrap();
        let head = format!(
            "HTTP/1.1 503 Service Unavailable\r\nDate: {}\r\nServer: Tidegate\r\nContent-Type: text/plain\r\n\
             Retry-After: 2\r\nCache-Control: no-store\r\nContent-Length: 6\r\nConnection: close\r\n\r\n",
            "D".repeat(DATE)
        );
        assert_eq!(text, head.clone() + "later\n");
        assert_eq!(encoded.body, head.len());
    }
}
