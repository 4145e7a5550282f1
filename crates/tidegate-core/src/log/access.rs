//! Access lines: one for each request, exactly once, in the formats that log tools read.

use super::pattern::{self, push_fraction};
use super::record;
use super::texts::Texts;
use super::{Sink, Writer, push_json_escaped};
use crate::box_pool::BoxPool;
use crate::client_names::ClientNames;
use crate::trace::{Asked, Trace};
use crate::user::Identity;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{AccessFormat, AccessLog, LogPart, LogTarget, UpstreamStage};
use tidegate_http::{FieldLines, Fields, HttpDate, Version, ip_text, push_decimal};
use tidegate_io::socket::Peer;
use tidegate_tls::Handshake;

/// A buffer this full goes to the writer.
const FLUSH_AT: usize = 64 << 10;

/// What a line tells of a request.
#[derive(Clone, Copy)]
pub struct AccessRecord<'a> {
    /// Who asks.
    pub client: Peer,
    /// `http` or `https`, as the client speaks it.
    pub scheme: &'static str,
    /// Method as sent; `-` where the request could not be read.
    pub method: &'a str,
    /// Target as sent.
    pub target: &'a str,
    /// Host and port as sent.
    pub authority: &'a str,
    /// Version of the request.
    pub version: Version,
    /// `Referer` field.
    pub referer: &'a [u8],
    /// `User-Agent` field.
    pub user_agent: &'a [u8],
    /// What the TLS handshake has agreed upon.
    pub tls: Option<&'a Arc<Handshake>>,
    /// Who has logged in.
    pub identity: Option<&'a Rc<Identity>>,
    /// Its id, where it went and who was asked, where that is wanted.
    pub trace: Option<&'a Rc<Trace>>,
    /// For patterns that show others.
    pub fields: EntryFields<'a>,
}

impl AccessRecord<'_> {
    /// The name of who has logged in.
    pub(super) fn user(&self) -> Option<&str> {
        Some(&self.identity?.user()?.name)
    }
}

/// A field that was copied: name and value.
pub type KeptField = (Box<str>, Box<[u8]>);

/// The fields of a request.
#[derive(Clone, Copy)]
pub enum EntryFields<'a> {
    /// All of them, where they were received.
    All(Fields<'a>),
    /// Those that the pattern shows, by name.
    Kept(&'a [KeptField]),
}

/// How a request ended.
#[derive(Clone, Copy)]
pub struct Ending<'a> {
    /// Status code sent.
    pub status: u16,
    /// Bytes of the request, its head included.
    pub received: u64,
    /// Bytes of the response with its framing, its head included.
    pub sent: u64,
    /// Bytes of that head, and of that framing.
    pub overhead: u64,
    /// From the complete head to the last byte handed to the kernel, nanoseconds.
    pub nanos: u64,
    /// Fields of the response, where [`AccessBuffers::shows_responses`].
    pub fields: Option<&'a FieldLines>,
}

impl Ending<'_> {
    /// Bytes of the content sent, without its framing.
    pub fn bytes(&self) -> u64 {
        self.sent.saturating_sub(self.overhead)
    }
}

impl EntryFields<'_> {
    /// The value of the first field of a name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        match self {
            EntryFields::All(fields) => fields.first(name),
            EntryFields::Kept(kept) => {
                kept.iter().find(|(kept, _)| **kept == *name).map(|(_, value)| &**value)
            }
        }
    }
}

/// Bytes of text that a record has room for at most that is used again: more than most request lines with a user agent.
const SPARE_TEXT: usize = 512;

/// An [`AccessRecord`] that outlives its request's buffer: for responses that do not finish at once.
pub struct Record {
    text: Vec<u8>,
    /// Ends of method, target, authority and referer in `text`.
    ends: [u32; 4],
    client: Peer,
    scheme: &'static str,
    version: Version,
    tls: Option<Arc<Handshake>>,
    identity: Option<Rc<Identity>>,
    trace: Option<Rc<Trace>>,
    fields: Box<[KeptField]>,
    /// Where the line goes; `None`: into no log.
    pub sink: Option<Sink>,
}

impl Record {
    /// Bytes of memory.
    pub(crate) fn held(&self) -> usize {
        let fields = self.fields.iter().map(|field| size_of::<KeptField>() + field.0.len() + field.1.len());
        size_of::<Record>() + self.text.capacity() + fields.sum::<usize>()
    }

    /// Of nothing.
    fn empty() -> Record {
        Record {
            text: Vec::new(),
            ends: [0; 4],
            client: Peer::Unix,
            scheme: "",
            version: Version::Http11,
            tls: None,
            identity: None,
            trace: None,
            fields: Box::default(),
            sink: None,
        }
    }

    /// Copies what the line needs. Every field is named, so that nothing is left of another request.
    fn fill(&mut self, entry: &AccessRecord<'_>, log: Option<Sink>, format: &AccessFormat) {
        let Record { text, ends, client, scheme, version, tls, identity, trace, fields, sink } = self;
        let parts = [
            entry.method.as_bytes(),
            entry.target.as_bytes(),
            entry.authority.as_bytes(),
            entry.referer,
            entry.user_agent,
        ];
        text.clear();
        text.reserve(parts.iter().map(|part| part.len()).sum());
        let mut all = [0; 5];
        for (part, end) in parts.iter().zip(&mut all) {
            text.extend_from_slice(part);
            *end = text.len() as u32;
        }
        [ends[0], ends[1], ends[2], ends[3], _] = all;
        (*client, *scheme, *version, *sink) = (entry.client, entry.scheme, entry.version, log);
        (*tls, *identity, *trace) = (entry.tls.cloned(), entry.identity.cloned(), entry.trace.cloned());
        *fields = match format {
            AccessFormat::Pattern(parts) => Record::shown(entry, parts),
            _ => Box::default(),
        };
    }

    /// Lets go of all that it holds.
    fn clear(&mut self) {
        if self.text.capacity() > SPARE_TEXT {
            self.text = Vec::new();
        }
        self.text.clear();
        (self.tls, self.identity, self.trace) = (None, None, None);
        self.fields = Box::default();
    }

    /// The fields that a pattern shows.
    fn shown(entry: &AccessRecord<'_>, parts: &[LogPart]) -> Box<[KeptField]> {
        let fields = parts.iter().filter_map(|part| match part {
            LogPart::Request(name) => Some((name.as_str().into(), entry.fields.first(name)?.into())),
            _ => None,
        });
        fields.collect()
    }

    /// The entry.
    pub fn entry(&self) -> AccessRecord<'_> {
        let [a, b, c, d] = self.ends.map(|end| end as usize);
        let text = |from: usize, to: usize| std::str::from_utf8(&self.text[from..to]).unwrap_or("-");
        AccessRecord {
            client: self.client,
            scheme: self.scheme,
            method: text(0, a),
            target: text(a, b),
            authority: text(b, c),
            version: self.version,
            referer: &self.text[c..d],
            user_agent: &self.text[d..],
            tls: self.tls.as_ref(),
            identity: self.identity.as_ref(),
            trace: self.trace.as_ref(),
            fields: EntryFields::Kept(&self.fields),
        }
    }
}

/// The buffers of one worker, one for each log.
pub struct AccessBuffers {
    writer: Arc<Writer>,
    buffers: Vec<Buffer>,
    shows_responses: bool,
    times: Times,
    names: Arc<ClientNames>,
    spare: BoxPool<Record>,
}

struct Buffer {
    sink: Sink,
    format: AccessFormat,
    only_errors: bool,
    goes_to: Destination,
    /// What there is for the texts of a line.
    texts: Texts,
    lines: Vec<u8>,
}

/// What takes the lines, as far as it matters for what they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// A file, or what is like one.
    File,
    /// A daemon that collects.
    Daemon,
    /// One that takes fields as well.
    Journal,
}

impl Destination {
    fn of(target: &LogTarget) -> Destination {
        match target {
            LogTarget::Collector(to) if to.at.takes_fields() => Destination::Journal,
            LogTarget::Collector(_) => Destination::Daemon,
            LogTarget::Stdout | LogTarget::Stderr | LogTarget::File(_) => Destination::File,
        }
    }
}

/// The present second as logs write it.
pub(super) struct Times {
    /// `10/Oct/2000:13:55:36 +0000`
    pub(super) common: [u8; 26],
    /// `2000-10-10T13:55:36Z`
    pub(super) rfc3339: [u8; 20],
    /// Since 1970.
    pub(super) seconds: i64,
}

impl Times {
    fn at(now: i64) -> Times {
        Times { common: HttpDate(now).common_log(), rfc3339: HttpDate(now).rfc3339(), seconds: now }
    }
}

impl AccessBuffers {
    /// Without any log yet.
    pub fn new(writer: Arc<Writer>) -> AccessBuffers {
        let (times, names) = (Times::at(0), Arc::default());
        let (buffers, spare) = (Vec::new(), BoxPool::new());
        AccessBuffers { writer, buffers, shows_responses: false, times, names, spare }
    }

    /// With what clients are called.
    pub fn naming(self, names: Arc<ClientNames>) -> AccessBuffers {
        AccessBuffers { names, ..self }
    }

    /// Makes room for a log; called when settings are taken up.
    pub fn add(&mut self, sink: Sink, log: &AccessLog) {
        let (format, only_errors) = (log.format.clone(), log.only_errors);
        match self.buffers.iter_mut().find(|buffer| buffer.sink == sink) {
            Some(buffer) => (buffer.format, buffer.only_errors) = (format, only_errors),
            None => {
                let goes_to = Destination::of(&log.target);
                let (texts, lines) = (Texts::to(&log.target), Vec::new());
                self.buffers.push(Buffer { sink, format, only_errors, goes_to, texts, lines });
            }
        }
        self.shows_responses = self.buffers.iter().any(|buffer| match &buffer.format {
            AccessFormat::Pattern(parts) => parts.iter().any(|part| matches!(part, LogPart::Response(_))),
            _ => false,
        });
    }

    /// Whether a log wants the fields of responses.
    #[inline]
    pub fn shows_responses(&self) -> bool {
        self.shows_responses
    }

    /// Copies what the line of a log will need, and whoever else is told.
    pub fn capture(&mut self, entry: &AccessRecord<'_>, sink: Option<Sink>) -> Box<Record> {
        let mut record = self.spare.take().unwrap_or_else(|| Box::new(Record::empty()));
        let buffer = self.buffers.iter().find(|buffer| Some(buffer.sink) == sink);
        record.fill(entry, sink, buffer.map_or(&AccessFormat::Common, |buffer| &buffer.format));
        record
    }

    /// Takes a record back whose request has ended, for the next one.
    pub fn take_back(&mut self, mut record: Box<Record>) {
        record.clear();
        self.spare.give_back(record);
    }

    /// Takes the time for the lines to come, and sends on what has waited.
    pub fn tick(&mut self, now: i64) {
        self.times = Times::at(now);
        self.flush();
    }

    /// Whether lines wait to be sent on.
    pub fn is_waiting(&self) -> bool {
        self.buffers.iter().any(|buffer| !buffer.lines.is_empty())
    }

    /// Sends on what waits.
    pub fn flush(&mut self) {
        for buffer in &mut self.buffers {
            if !buffer.lines.is_empty() {
                self.writer.write(buffer.sink, std::mem::take(&mut buffer.lines));
            }
        }
    }

    /// Writes a line.
    pub fn line(&mut self, sink: Sink, entry: &AccessRecord<'_>, ending: &Ending<'_>) {
        let Some(buffer) = self.buffers.iter_mut().find(|buffer| buffer.sink == sink) else { return };
        if buffer.only_errors && ending.status < 400 {
            return;
        }
        let out = &mut buffer.lines;
        if out.capacity() == 0 {
            out.reserve(FLUSH_AT + 4096);
        }
        if buffer.goes_to != Destination::File {
            out.push(record::BEGIN);
            out.extend_from_slice(&record::time());
        }
        let texts = &mut { buffer.texts };
        match &buffer.format {
            AccessFormat::Common => push_common(out, &self.times.common, entry, ending, texts),
            AccessFormat::Combined => {
                push_common(out, &self.times.common, entry, ending, texts);
                for field in [entry.referer, entry.user_agent] {
                    out.extend_from_slice(b" \"");
                    texts.push(out, if field.is_empty() { b"-" } else { field });
                    out.push(b'"');
                }
            }
            AccessFormat::Json => push_json(out, &self.times.rfc3339, entry, ending, texts),
            AccessFormat::Pattern(parts) => {
                pattern::push(out, parts, &self.times, entry, ending, &self.names, texts)
            }
        }
        if buffer.goes_to == Destination::Journal {
            push_journal_fields(out, entry, ending, &mut { buffer.texts });
        }
        out.push(b'\n');
        if out.len() >= FLUSH_AT {
            self.writer.write(sink, std::mem::take(out));
        }
    }
}

/// What the journal knows of a request beside its line, by the names of its own fields where there are such.
fn push_journal_fields(out: &mut Vec<u8>, entry: &AccessRecord<'_>, ending: &Ending<'_>, texts: &mut Texts) {
    let trace = entry.trace;
    out.push(record::FIELD);
    out.extend_from_slice(b"CLIENT=");
    push_peer(out, entry.client);
    for (name, value) in [
        ("SITE", trace.map_or("", |trace| trace.site())),
        ("ROUTE", trace.map_or("", |trace| trace.route())),
        ("REQUEST_ID", trace.and_then(|trace| trace.id()).unwrap_or_default()),
        ("TRACE_ID", trace.map_or("", |trace| trace.trace_id())),
        ("HOST", entry.authority),
        ("METHOD", entry.method),
        ("TARGET", entry.target),
        ("SCHEME", entry.scheme),
        ("USER_NAME", entry.user().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            out.push(record::FIELD);
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            texts.push(out, value.as_bytes());
        }
    }
    for (name, value) in [
        ("STATUS", u64::from(ending.status)),
        ("BYTES", ending.bytes()),
        ("DURATION_US", ending.nanos / 1000),
    ] {
        out.push(record::FIELD);
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        push_decimal(out, value);
    }
    if let Some(trace) = trace.filter(|trace| trace.tries() > 0) {
        out.push(record::FIELD);
        out.extend_from_slice(b"UPSTREAM=");
        let mut last = String::new();
        trace.each_try(|asked| last = asked.member());
        texts.push(out, last.as_bytes());
    }
}

pub(super) fn push_peer(out: &mut Vec<u8>, peer: Peer) {
    match peer {
        Peer::Tcp(address) => out.extend_from_slice(ip_text(address.ip()).as_bytes()),
        Peer::Unix => out.extend_from_slice(b"unix:"),
    }
}

fn push_common(
    out: &mut Vec<u8>,
    time: &[u8],
    entry: &AccessRecord<'_>,
    ending: &Ending<'_>,
    texts: &mut Texts,
) {
    push_peer(out, entry.client);
    out.extend_from_slice(b" - ");
    let subject = || Some(entry.tls?.client.as_ref()?.subject.as_str());
    match entry.user().or_else(subject) {
        None => out.push(b'-'),
        // A user's name has no spaces in this format; a subject may.
        Some(user) => {
            for (n, word) in user.split(' ').enumerate() {
                if n > 0 {
                    out.extend_from_slice(b"\\x20");
                }
                texts.push(out, word.as_bytes());
            }
        }
    }
    out.extend_from_slice(b" [");
    out.extend_from_slice(time);
    out.extend_from_slice(b"] \"");
    texts.push(out, entry.method.as_bytes());
    out.push(b' ');
    texts.push(out, entry.target.as_bytes());
    out.push(b' ');
    out.extend_from_slice(entry.version.name().as_bytes());
    out.extend_from_slice(b"\" ");
    push_decimal(out, u64::from(ending.status));
    out.push(b' ');
    push_decimal(out, ending.bytes());
}

fn push_json(
    out: &mut Vec<u8>,
    time: &[u8],
    entry: &AccessRecord<'_>,
    ending: &Ending<'_>,
    texts: &mut Texts,
) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(time);
    out.extend_from_slice(b"\",\"remote\":\"");
    push_peer(out, entry.client);
    let version = entry.version.name().as_bytes();
    for (name, value) in [
        ("host", entry.authority.as_bytes()),
        ("method", entry.method.as_bytes()),
        ("target", entry.target.as_bytes()),
        ("version", version),
        ("referer", entry.referer),
        ("user_agent", entry.user_agent),
    ] {
        let _ = write!(out, "\",\"{name}\":\"");
        texts.push_json(out, value);
    }
    if let Some(user) = entry.user() {
        out.extend_from_slice(b"\",\"user\":\"");
        texts.push_json(out, user.as_bytes());
    }
    if let Some(tls) = entry.tls {
        let _ = write!(out, "\",\"tls\":\"{}\",\"tls_cipher\":\"{}", tls.version, tls.suite);
        if let Some(client) = &tls.client {
            for (name, value) in [
                ("client", &client.subject),
                ("client_issuer", &client.issuer),
                ("client_serial", &client.serial),
                ("client_fingerprint", &client.fingerprint),
            ] {
                let _ = write!(out, "\",\"{name}\":\"");
                texts.push_json(out, value.as_bytes());
            }
        }
    }
    if let Some(trace) = entry.trace {
        for (name, value) in [
            ("request_id", trace.id().unwrap_or_default()),
            ("trace_id", trace.trace_id()),
            ("site", trace.site()),
            ("route", trace.route()),
        ] {
            if !value.is_empty() {
                let _ = write!(out, "\",\"{name}\":\"");
                texts.push_json(out, value.as_bytes());
            }
        }
    }
    let micros = ending.nanos / 1000;
    let _ = write!(
        out,
        "\",\"scheme\":\"{}\",\"status\":{},\"bytes\":{},\"bytes_in\":{},\"duration_us\":{micros},\"duration_ms\":{}.{:03}",
        entry.scheme,
        ending.status,
        ending.bytes(),
        ending.received,
        micros / 1000,
        micros % 1000,
    );
    if let Some(trace) = entry.trace.filter(|trace| trace.tries() > 0) {
        push_json_tries(out, trace);
    }
    out.push(b'}');
}

/// The application that has answered, or was asked last, and of several each in its turn.
fn push_json_tries(out: &mut Vec<u8>, trace: &Trace) {
    let push_one = |out: &mut Vec<u8>, asked: &Asked<'_>, prefix: &str| {
        let _ = write!(out, "\"upstream\":\"");
        push_json_escaped(out, asked.member().as_bytes());
        out.push(b'"');
        if let Some(status) = asked.status() {
            let _ = write!(out, ",\"{prefix}status\":{status}");
        }
        for (name, stage) in [
            ("connect_ms", UpstreamStage::Connected),
            ("first_byte_ms", UpstreamStage::FirstByte),
            ("ms", UpstreamStage::Complete),
        ] {
            if let Some(nanos) = asked.nanos(stage) {
                let _ = write!(out, ",\"{prefix}{name}\":");
                push_fraction(out, nanos / 1000, 1000);
            }
        }
    };
    let (count, mut number) = (trace.tries(), 0);
    if count > 1 {
        out.extend_from_slice(b",\"upstream_tries\":[");
    }
    trace.each_try(|asked| {
        number += 1;
        if count > 1 {
            out.extend_from_slice(if number > 1 { b",{" } else { b"{" });
            push_one(out, asked, "");
            out.push(b'}');
        }
        if number == count {
            out.extend_from_slice(if count > 1 { b"]," } else { b"," });
            push_one(out, asked, "upstream_");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::Field;

    #[test]
    fn a_record_that_is_used_again_has_nothing_of_the_request_before() {
        let fields = [Field { name: "X-Secret", value: b"one" }];
        let trace = Trace::made(Some("id"), "a.test", "/", &[]);
        let long = "/".repeat(2 * SPARE_TEXT);
        let first = AccessRecord {
            client: Peer::Tcp("192.0.2.1:1".parse().unwrap()),
            scheme: "https",
            method: "POST",
            target: &long,
            authority: "a.test",
            version: Version::Http2,
            referer: b"from",
            user_agent: b"agent",
            tls: None,
            identity: None,
            trace: Some(&trace),
            fields: EntryFields::All(Fields::new(&fields)),
        };
        let second = AccessRecord {
            client: Peer::Unix,
            scheme: "http",
            method: "GET",
            target: "/b",
            authority: "b.test",
            version: Version::Http11,
            referer: b"",
            user_agent: b"",
            trace: None,
            fields: EntryFields::All(Fields::new(&[])),
            ..first
        };
        let pattern = AccessFormat::Pattern([LogPart::Request("x-secret".to_owned())].into());
        let mut record = Record::empty();
        for is_cleared in [true, false] {
            record.fill(&first, None, &pattern);
            let entry = record.entry();
            assert_eq!(
                (entry.target, entry.referer, entry.user_agent),
                (&*long, &b"from"[..], &b"agent"[..])
            );
            assert_eq!((entry.fields.first("x-secret"), Rc::strong_count(&trace)), (Some(&b"one"[..]), 2));
            if is_cleared {
                record.clear();
                assert!(Rc::strong_count(&trace) == 1 && record.text.capacity() == 0);
            }
            record.fill(&second, None, &AccessFormat::Common);
            let AccessRecord { client, scheme, version, fields, .. } = record.entry();
            assert_eq!((client, scheme, version), (Peer::Unix, "http", Version::Http11));
            let entry = record.entry();
            assert_eq!((entry.method, entry.target, entry.authority), ("GET", "/b", "b.test"));
            assert!(entry.referer.is_empty() && entry.user_agent.is_empty() && entry.trace.is_none());
            assert_eq!((fields.first("x-secret"), Rc::strong_count(&trace)), (None, 1));
        }
    }
}
