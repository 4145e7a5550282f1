//! One HTTP/2 connection of the generator (RFC 9113): its streams, and the bytes that wait to be sent on it.
//!
//! A state machine over the client role of `tidegate-wire`; `worker/streams.rs` drives it for lists of requests,
//! `scenario/engine/streams.rs` for users of scenarios. It decides nothing: which request comes next and what an answer counts
//! as is the worker's. What a stream is for is [`Carried`], of which it only wants the bytes that follow the head.

use crate::connection::Channel;
use crate::record::Failure;
use crate::response::INTERIM_MAX;
use std::io;
use tidegate_wire::h1::HeadLimits;
use tidegate_wire::h2::{
    CannotOpen, Connection, ConnectionError, ErrorCode, Event, Flood, Limits, RequestParts, Section,
    StreamError, StreamKey,
};

/// Windows of streams and connection: what comes is consumed at once, so they shall never bound a rate.
const WINDOW: u32 = 1 << 30;

/// Streams before the server has said how many it takes: what it should take at least (section 6.5.2).
const BEFORE_SETTINGS: u32 = 100;

/// Bytes that wait to be sent before bodies have to.
const OUT_MAX: usize = 128 << 10;

/// Bytes of answers to frames of the server that may wait for a server that does not read them.
const REPLIES_MAX: usize = 1 << 20;

/// What a server does wrong that lets more than those wait.
pub(crate) const FLOODED: &str = "frames that have to be answered, by a server that reads no answer";

/// More memory than this is not kept for the next requests.
const OUT_KEPT: usize = 64 << 10;

/// Fields as of HTTP/1: a generator should not be stricter than browsers.
const HEAD: HeadLimits = HeadLimits { head_size: 64 << 10, target_size: 8 << 10, fields: 200 };

/// So often a request that the server has turned away unread is sent; then it has failed.
pub(crate) const ATTEMPTS: u8 = 8;

/// What a request has failed by whose stream is broken.
pub(crate) fn failure_of_stream(error: StreamError) -> Failure {
    match error {
        StreamError::FieldSectionTooLarge => Failure::HeadTooLarge,
        _ => Failure::Malformed,
    }
}

/// What requests have failed by whose connection is broken.
pub(crate) fn failure_of_connection(error: ConnectionError) -> Failure {
    match error {
        // The block of a head, which goes on beyond what is read of one.
        ConnectionError::Flood(Flood::Continuation) => Failure::HeadTooLarge,
        _ => Failure::Malformed,
    }
}

/// What a stream is for.
pub(crate) trait Carried {
    /// Where the bytes of requests are, if not with each.
    type Bytes: ?Sized;

    /// The bytes of a request, of which its body is the end.
    fn bytes<'b>(&'b self, all: &'b Self::Bytes) -> &'b [u8];
}

/// A request under way, and what has come of its answer.
pub(crate) struct Stream<C> {
    key: StreamKey,
    pub carried: C,
    /// 0 before the head.
    pub status: u16,
    pub first_byte: u64,
    pub body_bytes: u64,
    /// Interim answers that have come.
    interim: u8,
    /// It was begun before the server had said how many streams it takes: it may be one too many.
    pub is_before_settings: bool,
    /// When it counts as timed out.
    pub deadline: u64,
    /// Where in the request's bytes its unsent body begins; `None` when all is sent.
    unsent: Option<usize>,
}

/// A connection's HTTP/2.
pub(crate) struct Session<C> {
    wire: Connection,
    out: Vec<u8>,
    /// Bytes of `out` that are gone.
    sent: usize,
    /// Bytes of what waits that answer frames of the server: its settings, its pings.
    replies: usize,
    /// The beginning of a frame that is not complete.
    pub held: Vec<u8>,
    /// By the slot of their keys.
    streams: Vec<Option<Stream<C>>>,
    open: usize,
    /// Streams whose body is not sent to its end.
    uploading: usize,
    has_settings: bool,
    /// It takes no further requests.
    pub is_leaving: bool,
    /// The server has said goodbye (GOAWAY).
    pub is_dismissed: bool,
    /// It has carried a request.
    pub has_carried: bool,
    /// It is in the worker's list of connections with room.
    pub is_listed: bool,
    second: u32,
}

impl<C: Carried> Session<C> {
    /// A session whose preface waits to be sent.
    pub fn new() -> Session<C> {
        let limits =
            Limits { head: HEAD, connection_window: WINDOW, stream_window: WINDOW, ..Limits::default() };
        let mut out = Vec::with_capacity(512);
        let wire = Connection::client(limits, &mut out);
        Session {
            wire,
            out,
            sent: 0,
            replies: 0,
            held: Vec::new(),
            streams: Vec::new(),
            open: 0,
            uploading: 0,
            has_settings: false,
            is_leaving: false,
            is_dismissed: false,
            has_carried: false,
            is_listed: false,
            second: 0,
        }
    }

    /// Requests under way.
    #[inline]
    pub fn open(&self) -> usize {
        self.open
    }

    /// How many requests may be begun, where `streams` are wanted at once.
    #[inline]
    pub fn room(&self, streams: u32) -> usize {
        if self.is_leaving {
            return 0;
        }
        let taken = if self.has_settings {
            self.wire.peer_settings().max_concurrent_streams
        } else {
            BEFORE_SETTINGS
        };
        (streams.min(taken) as usize).saturating_sub(self.open.max(self.wire.open_streams()))
    }

    /// Begins a request; where there is a body it begins at `body_from` of what [`Carried::bytes`] gives. One that cannot be begun
    /// on this connection comes back with the reason; the connection is leaving then.
    pub fn begin(
        &mut self,
        carried: C,
        parts: &RequestParts<'_>,
        body_from: Option<usize>,
        deadline: u64,
    ) -> Result<(), (CannotOpen, C)> {
        let key = match self.wire.send_request(parts, body_from.is_none(), &mut self.out) {
            Ok(key) => key,
            Err(error) => {
                self.is_leaving = true;
                return Err((error, carried));
            }
        };
        self.uploading += usize::from(body_from.is_some());
        if self.streams.len() <= key.slot() {
            self.streams.resize_with(key.slot() + 1, || None);
        }
        if let Some(place) = self.streams.get_mut(key.slot()) {
            *place = Some(Stream {
                key,
                carried,
                status: 0,
                first_byte: 0,
                body_bytes: 0,
                interim: 0,
                is_before_settings: !self.has_settings,
                deadline,
                unsent: body_from,
            });
            self.open += 1;
        }
        self.has_carried = true;
        Ok(())
    }

    /// Reads up to the next event; how many bytes are done with.
    ///
    /// # Errors
    /// The server broke the protocol.
    #[inline]
    pub fn read<'b>(
        &mut self,
        input: &'b [u8],
        section: &mut Section,
    ) -> Result<(usize, Option<Event<'b>>), ConnectionError> {
        // The bounds on floods are for strangers; this server was chosen, and answers as fast as it can. A
        // clock that runs ahead keeps them out of the figures.
        self.second = self.second.wrapping_add(100);
        let before = self.out.len();
        let read = self.wire.read(input, self.second, section, &mut self.out)?;
        self.replies += self.out.len() - before;
        self.has_settings |= read.consumed > 0;
        Ok((read.consumed, read.event))
    }

    /// Whether the server makes answers necessary and reads none of them: they would be held without end.
    #[inline]
    pub fn is_flooded(&self) -> bool {
        self.replies > REPLIES_MAX
    }

    /// What an event says that the server did wrong, where no request fails for it: the streams that it names are over.
    pub fn stray_error(&mut self, event: &Event<'_>) -> Option<StreamError> {
        let Event::Broken { stream, error } = event else { return None };
        let is_stray = stream.is_none_or(|stream| self.stream(stream).is_none());
        is_stray.then_some(*error)
    }

    /// A request under way.
    #[inline]
    pub fn stream(&mut self, key: StreamKey) -> Option<&mut Stream<C>> {
        self.streams.get_mut(key.slot())?.as_mut().filter(|stream| stream.key == key)
    }

    /// An interim answer of a request has come, which has until `deadline` now. The request, where there are too many: it is
    /// over.
    pub fn interim(&mut self, key: StreamKey, deadline: u64) -> Option<Stream<C>> {
        let stream = self.stream(key)?;
        stream.deadline = deadline;
        stream.interim = stream.interim.saturating_add(1);
        let is_over = stream.interim > INTERIM_MAX;
        is_over.then(|| self.take_all(|stream| stream.key == key).pop()).flatten()
    }

    /// So much of a body was consumed.
    #[inline]
    pub fn release(&mut self, key: StreamKey, count: usize) {
        self.wire.release(key, count, &mut self.out);
    }

    /// Takes a request out that is over. What was not sent of it stays unsent.
    pub fn take(&mut self, key: StreamKey) -> Option<Stream<C>> {
        let stream = self.streams.get_mut(key.slot())?.take_if(|stream| stream.key == key)?;
        self.open -= 1;
        if stream.unsent.is_some() {
            self.uploading -= 1;
            self.wire.reset(key, ErrorCode::CANCEL, &mut self.out);
        }
        Some(stream)
    }

    /// Takes those out that `is_wanted` names, and resets them.
    pub fn take_all(&mut self, is_wanted: impl Fn(&Stream<C>) -> bool) -> Vec<Stream<C>> {
        let keys: Vec<StreamKey> = self
            .streams
            .iter()
            .flatten()
            .filter(|stream| is_wanted(stream))
            .map(|stream| stream.key)
            .collect();
        let mut taken = Vec::with_capacity(keys.len());
        for key in keys {
            taken.extend(self.take(key));
            self.wire.reset(key, ErrorCode::CANCEL, &mut self.out);
        }
        taken
    }

    /// Whether the answer to one of them has begun.
    pub fn has_begun(&self) -> bool {
        self.streams.iter().flatten().any(|stream| stream.status != 0)
    }

    /// How many are over their time.
    pub fn overdue(&self, now: u64) -> usize {
        self.streams.iter().flatten().filter(|stream| stream.deadline <= now).count()
    }

    /// The deadline that comes first.
    pub fn next_deadline(&self) -> Option<u64> {
        self.streams.iter().flatten().map(|stream| stream.deadline).min()
    }

    /// Whether something waits for the socket, or may wait for a window.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.sent < self.out.len() || self.uploading > 0
    }

    /// Sends what there is, as far as socket and windows go; how many bytes went. A request whose body moves on
    /// has until its `deadline`.
    ///
    /// # Errors
    /// The socket fails, or the data cannot be sealed.
    pub fn send(
        &mut self,
        channel: &mut Channel,
        all: &C::Bytes,
        deadline: impl Fn(&C) -> u64,
    ) -> io::Result<usize> {
        let mut total = 0;
        loop {
            if self.uploading > 0 {
                self.push_bodies(all, &deadline);
            }
            if channel.has_pending() && !channel.flush()? {
                return Ok(total);
            }
            let rest = self.out.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(total);
            }
            let length = rest.len();
            let count = channel.send(rest)?;
            total += count;
            if count < length {
                self.sent += count;
                return Ok(total);
            }
            (self.sent, self.replies) = (0, 0);
            self.out.clear();
            self.out.shrink_to(OUT_KEPT);
        }
    }

    /// Nothing will be asked for a while: gives back what only the next requests would want.
    pub fn rest(&mut self) {
        if !self.has_unsent() {
            (self.out, self.sent) = (Vec::new(), 0);
        }
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// Appends what windows and room allow of bodies.
    fn push_bodies(&mut self, all: &C::Bytes, deadline: &impl Fn(&C) -> u64) {
        for stream in self.streams.iter_mut().flatten() {
            let Some(from) = stream.unsent else { continue };
            let room = OUT_MAX.saturating_sub(self.out.len() - self.sent);
            if room == 0 {
                return;
            }
            let rest = stream.carried.bytes(all).get(from..).unwrap_or_default();
            let piece = rest.get(..room).unwrap_or(rest);
            let is_end = piece.len() == rest.len();
            let count = self.wire.send_data(stream.key, piece, is_end, &mut self.out);
            if count > 0 {
                stream.deadline = deadline(&stream.carried);
            }
            if is_end && count == piece.len() {
                stream.unsent = None;
                self.uploading -= 1;
            } else {
                stream.unsent = Some(from + count);
            }
        }
    }
}

impl<C> Stream<C> {
    /// Its number on the wire.
    pub fn id(&self) -> u32 {
        self.key.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Asked;
    use crate::request::{Description, Mix, Prepared};
    use crate::target::Url;
    use tidegate_wire::h2::{FieldSource, ResponseParts};

    const NO_FIELDS: &tidegate_http::FieldLines = &tidegate_http::FieldLines::new();

    /// Begins one of the requests.
    fn begin(session: &mut Session<Asked>, prepared: &[Prepared], request: u32, deadline: u64) {
        let exchange = crate::connection::Exchange { intended: 0, sent: 0, request, attempts: 0 };
        let (parts, body_from) = prepared[request as usize].parts();
        assert!(session.begin(Asked { exchange, check: None }, &parts, body_from, deadline).is_ok());
    }

    /// A GET and a POST whose body is larger than the first window.
    fn prepared() -> Vec<Prepared> {
        let url = Url::parse("http://a.test/path").unwrap();
        let post =
            Description { method: "POST".into(), body: vec![b'b'; 100_000], ..Description::get(url.clone()) };
        let addressed = |mut description: Description| {
            description.url.host = "127.0.0.1".into();
            description
        };
        Mix::build(&[addressed(Description::get(url)), addressed(post)], true, None).unwrap().prepared
    }

    /// A session and the far end of its channel.
    fn pair() -> (Session<Asked>, Channel, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Session::new(), Channel::new(tidegate_io::socket::Stream::new(ours.into())), theirs)
    }

    #[test]
    fn bodies_wait_for_windows_and_answers_find_their_requests() {
        use std::io::Read;
        let prepared = prepared();
        let (mut session, mut channel, mut theirs) = pair();
        let mut answers = Vec::new();
        let mut server = Connection::server(Limits::default(), &mut answers);
        let (mut section, mut received) = (Section::new(), 0);
        begin(&mut session, &prepared, 1, 9);
        begin(&mut session, &prepared, 0, 9);
        assert_eq!((session.open(), session.room(10), session.room(2)), (2, 8, 0));
        let mut done = Vec::new();
        let mut kept = Vec::new();
        for _ in 0..100 {
            session.send(&mut channel, &prepared, |_| 20).unwrap();
            let mut buffer = vec![0; 1 << 20];
            if let Ok(count) = theirs.read(&mut buffer) {
                kept.extend_from_slice(&buffer[..count]);
            }
            let mut at = 0;
            loop {
                let read = server.read(&kept[at..], 0, &mut section, &mut answers).unwrap();
                at += read.consumed;
                let (stream, is_end) = match read.event {
                    None => break,
                    Some(Event::Request { stream, is_end }) => (stream, is_end),
                    Some(Event::Data { stream, data, is_end }) => {
                        received += data.len();
                        server.release(stream, data.len(), &mut answers);
                        (stream, is_end)
                    }
                    Some(other) => panic!("{other:?}"),
                };
                if is_end {
                    let fields = FieldSource::Lines(NO_FIELDS);
                    let parts = ResponseParts {
                        status: 200,
                        date: None,
                        server: None,
                        fields,
                        content_length: Some(2),
                    };
                    server.send_response(stream, &parts, false, &mut answers);
                    server.send_data(stream, b"hi", true, &mut answers);
                }
            }
            kept.drain(..at);
            let mut at = 0;
            while let (consumed, Some(event)) = session.read(&answers[at..], &mut section).unwrap() {
                at += consumed;
                if let Event::Data { stream, is_end: true, .. } = event {
                    done.push(session.take(stream).unwrap().carried.exchange.request);
                }
            }
            answers.clear();
            if done.len() == 2 {
                break;
            }
        }
        assert_eq!((done, received), (vec![0, 1], 100_000));
        assert_eq!((session.open(), session.uploading, session.has_unsent()), (0, 0, false));
    }

    #[test]
    fn a_server_that_pings_and_does_not_read_is_a_flood() {
        let (mut session, mut channel, _theirs) = pair();
        let mut section = Section::new();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert!(session.read(&settings, &mut section).is_ok());
        let mut pings = 0;
        while !session.is_flooded() {
            assert!(session.read(&ping, &mut section).is_ok());
            pings += 1;
        }
        assert!((REPLIES_MAX / ping.len()..=REPLIES_MAX / ping.len() + 2).contains(&pings), "{pings}");
        // What the socket has taken waits no more.
        let mut session = Session::<Asked>::new();
        for _ in 0..3 {
            assert!(session.read(&settings, &mut section).is_ok());
            assert!(session.replies > 0);
            session.send(&mut channel, &[], |_| 0).unwrap();
            assert_eq!(session.replies, 0);
        }
    }

    #[test]
    fn what_is_taken_is_reset_and_late_keys_find_nothing() {
        let prepared = prepared();
        let mut session = Session::new();
        for request in [0, 1, 0] {
            begin(&mut session, &prepared, request, u64::from(request) * 10 + 5);
        }
        assert_eq!((session.overdue(4), session.overdue(5), session.next_deadline()), (0, 2, Some(5)));
        let taken = session.take_all(|stream| stream.deadline <= 5);
        assert_eq!(taken.iter().map(Stream::id).collect::<Vec<_>>(), [1, 5]);
        assert_eq!((session.open(), session.next_deadline()), (1, Some(15)));
        assert!(session.take(taken[0].key).is_none());
        begin(&mut session, &prepared, 0, 5);
        assert!(session.stream(taken[1].key).is_none(), "the slot is another's now");
    }
}
