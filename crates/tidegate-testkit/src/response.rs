//! A strict reader of one HTTP/1 response (RFC 9112 sections 4 to 7), independent of the server's codec.
//!
//! It refuses what a careful client would refuse: bare LF, a second `Content-Length`, `Content-Length` beside
//! `Transfer-Encoding`, bytes of a field line that RFC 9110 section 5.5 forbids.

use std::time::Instant;

use crate::client::{Client, Filled};

/// Names and values in the order received.
pub(crate) type Fields = Vec<(String, String)>;

/// A response as received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Response {
    /// `HTTP/1.1`.
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) reason: String,
    /// In order, values without the white space around them.
    pub(crate) fields: Fields,
    /// Decoded from chunks where it was chunked.
    pub(crate) body: Vec<u8>,
    /// The trailer section of a chunked body.
    pub(crate) trailers: Fields,
}

impl Response {
    /// The values of all lines with this name.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        values(&self.fields, name)
    }

    /// The head and the beginning of the body, for messages.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{} {} {}\n", self.version, self.status, self.reason);
        for (name, value) in &self.fields {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text.push_str(&format!("({} bytes of body) {}", self.body.len(), show(&self.body)));
        text
    }
}

fn values<'a>(fields: &'a [(String, String)], name: &'a str) -> impl Iterator<Item = &'a str> {
    fields.iter().filter(move |(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Bytes made readable, at most the first 600.
pub(crate) fn show(bytes: &[u8]) -> String {
    let shown = bytes.get(..600).unwrap_or(bytes);
    let more = if shown.len() < bytes.len() { format!("... ({} bytes)", bytes.len()) } else { String::new() };
    format!("\"{}\"{more}", shown.escape_ascii())
}

/// Reads exactly one response and leaves what follows in the client's buffer. `has_body` is false for the
/// answer to HEAD, which no reader can tell from the bytes.
pub(crate) fn read(client: &mut Client, has_body: bool, deadline: Instant) -> Result<Response, String> {
    let mut reader = Reader { client, deadline, at: 0, so_far: String::new() };
    let response = reader.response(has_body).map_err(|problem| reader.failed(problem))?;
    let used = reader.at;
    client.received.drain(..used);
    Ok(response)
}

/// Reads one request, as a backend does: its request line is the reason.
pub(crate) fn read_request(client: &mut Client, deadline: Instant) -> Result<Response, String> {
    let mut reader = Reader { client, deadline, at: 0, so_far: String::new() };
    let request = reader.request().map_err(|problem| reader.failed(problem))?;
    let used = reader.at;
    client.received.drain(..used);
    Ok(request)
}

struct Reader<'a> {
    client: &'a mut Client,
    deadline: Instant,
    /// Start of what has not been parsed, in `client.received`.
    at: usize,
    so_far: String,
}

impl Reader<'_> {
    fn request(&mut self) -> Result<Response, String> {
        let line = self.line()?;
        let mut request = Response { reason: line, fields: self.field_section()?, ..Response::default() };
        self.so_far = request.describe();
        let codings: Vec<&str> = request.values("Transfer-Encoding").collect();
        let lengths: Vec<&str> = request.values("Content-Length").collect();
        match (codings.as_slice(), lengths.as_slice()) {
            ([], []) => {}
            ([], [length]) => {
                let length: usize = length.parse().map_err(|_| "Content-Length is not a number")?;
                request.body = self.exactly(length)?;
            }
            (["chunked"], []) => (request.body, request.trailers) = self.chunked()?,
            other => return Err(format!("ambiguous framing: {other:?}")),
        }
        Ok(request)
    }

    fn response(&mut self, has_body: bool) -> Result<Response, String> {
        let status_line = self.line()?;
        let mut response = parse_status_line(&status_line)?;
        response.fields = self.field_section()?;
        self.so_far = response.describe();
        if !has_body || response.status < 200 || matches!(response.status, 204 | 304) {
            return Ok(response);
        }
        let codings: Vec<&str> = response.values("Transfer-Encoding").collect();
        let lengths: Vec<&str> = response.values("Content-Length").collect();
        match (codings.as_slice(), lengths.as_slice()) {
            ([], []) => response.body = self.until_eof()?,
            ([], [length]) => {
                let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                let length: Option<usize> = length.parse().ok().filter(|_| digits);
                response.body = self.exactly(length.ok_or("Content-Length is not a number")?)?;
            }
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => {
                (response.body, response.trailers) = self.chunked()?;
            }
            ([], _) => return Err("more than one Content-Length".to_owned()),
            (_, []) => return Err(format!("unknown Transfer-Encoding {codings:?}")),
            _ => return Err("Content-Length beside Transfer-Encoding".to_owned()),
        }
        Ok(response)
    }

    /// The body and its trailer section.
    fn chunked(&mut self) -> Result<(Vec<u8>, Fields), String> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default();
            let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
            let size = usize::from_str_radix(size, 16).ok().filter(|_| is_hex);
            let size = size.ok_or_else(|| format!("chunk size {line:?}"))?;
            if size == 0 {
                return Ok((body, self.field_section()?));
            }
            body.extend_from_slice(&self.exactly(size)?);
            if !self.line()?.is_empty() {
                return Err("chunk data longer than its size".to_owned());
            }
        }
    }

    fn field_section(&mut self) -> Result<Fields, String> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| format!("field line without colon: {line:?}"))?;
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(format!("field name {name:?}"));
            }
            if value.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
                return Err(format!("control character in {line:?}"));
            }
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
    }

    /// One line without its CRLF. Bytes beyond ASCII are read as Latin-1.
    fn line(&mut self) -> Result<String, String> {
        let mut searched = self.at;
        loop {
            if let Some(found) = self.client.received[searched..].iter().position(|byte| *byte == b'\n') {
                let end = searched + found;
                let line = &self.client.received[self.at..end];
                let line = line.strip_suffix(b"\r").ok_or_else(|| format!("bare LF after {}", show(line)))?;
                if line.contains(&b'\r') {
                    return Err(format!("bare CR in {}", show(line)));
                }
                let text = line.iter().map(|byte| char::from(*byte)).collect();
                self.at = end + 1;
                return Ok(text);
            }
            searched = self.client.received.len();
            self.more()?;
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, String> {
        let end = self.at.checked_add(length).ok_or("length overflows")?;
        while self.client.received.len() < end {
            self.more()?;
        }
        let bytes = self.client.received[self.at..end].to_vec();
        self.at = end;
        Ok(bytes)
    }

    fn until_eof(&mut self) -> Result<Vec<u8>, String> {
        loop {
            match self.client.fill(self.deadline)? {
                Filled::More => {}
                Filled::Eof => break,
                Filled::Reset => return Err("the connection was reset within the body".to_owned()),
                Filled::TimedOut => return Err("a body without length did not end".to_owned()),
            }
        }
        let bytes = self.client.received[self.at..].to_vec();
        self.at = self.client.received.len();
        Ok(bytes)
    }

    fn more(&mut self) -> Result<(), String> {
        match self.client.fill(self.deadline)? {
            Filled::More => Ok(()),
            Filled::Eof => Err("the server closed before the response was complete".to_owned()),
            Filled::Reset => Err("the server reset before the response was complete".to_owned()),
            Filled::TimedOut => Err("timed out before the response was complete".to_owned()),
        }
    }

    fn failed(&self, problem: String) -> String {
        let pending = self.client.received.get(self.at..).unwrap_or_default();
        let so_far = if self.so_far.is_empty() { String::new() } else { format!("{}\n", self.so_far) };
        format!("{problem}\n{so_far}not yet understood: {}", show(pending))
    }
}

fn parse_status_line(line: &str) -> Result<Response, String> {
    let wrong = || format!("no status line: {line:?}");
    let (version, rest) = line.split_once(' ').ok_or_else(wrong)?;
    let (status, reason) = rest.split_once(' ').ok_or_else(wrong)?;
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || status.len() != 3 {
        return Err(wrong());
    }
    let status = status.parse().map_err(|_| wrong())?;
    Ok(Response { version: version.to_owned(), status, reason: reason.to_owned(), ..Response::default() })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::client::{Address, WAIT};

    /// What a client reads from a server that sends these bytes and closes.
    fn received(bytes: &[u8], has_body: bool) -> (Result<Response, String>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let bytes = bytes.to_vec();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&bytes).expect("sent");
        });
        let mut client = Client::connect(&Address::Tcp(address), None).expect("connected");
        let response = read(&mut client, has_body, Instant::now() + WAIT);
        server.join().expect("server");
        while client.fill(Instant::now() + WAIT) == Ok(Filled::More) {}
        (response, client.received)
    }

    #[test]
    fn reads_exactly_one_response() {
        for (name, bytes, has_body, body, rest) in [
            ("length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP", true, "ab", "HTTP"),
            ("head", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nHTTP", false, "", "HTTP"),
            ("interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP", true, "", "HTTP"),
            ("not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nx", true, "", "x"),
            ("until eof", "HTTP/1.0 200 OK\r\n\r\nabc", true, "abc", ""),
            (
                "chunked",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: 1\r\n\r\nx",
                true,
                "abc0123456789",
                "x",
            ),
        ] {
            let (response, left) = received(bytes.as_bytes(), has_body);
            assert_eq!(response.expect(name).body, body.as_bytes(), "{name}");
            assert_eq!(left, rest.as_bytes(), "{name}");
        }
    }

    #[test]
    fn refuses_what_a_client_would_refuse() {
        for bytes in [
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nName: a\x01\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "",
        ] {
            assert!(received(bytes.as_bytes(), true).0.is_err(), "{bytes:?}");
        }
    }
}
