//! One request to an application and its answer: a place, a connection, the exchange, and what becomes of the
//! client when any of them fails.
//!
//! `fastcgi`, `scgi` and `proxy` encode the request and say how its answer is read; everything else is here.

use super::abandon::{abandon, finish};
use super::about::About;
use super::answer::{AnswerError, AnswerHead, HeadOf};
use super::complaints::Complaints;
use super::gather::gather;
use super::link::Link;
use super::places::Refused;
use super::redirects::Back;
use super::stream::{Line, Relay, Silence};
use super::upload::{REQUEST, Upload, UploadError};
use super::upstream::{Errand, Pick, Upstream};
use super::{sendfile, tunnel};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_client::http1::HeadReader;
use tidegate_client::{Connection, Pool, Starving};
use tidegate_core::body_stream::Splice;
use tidegate_core::interim::InterimQueue;
use tidegate_core::response::Head;
use tidegate_core::{Author, Body, BodyStream, Chunk, Elsewhere, Reply, Response, answer, log};
use tidegate_http::{FieldLines, Status};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::Address;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};
use tidegate_stats::{GatewayFailure, Worker as Stats};
use tidegate_wire::fastcgi::ResponseDecoder;

/// Bytes read at once while the head is waited for: what is behind it is copied once.
const FIRST_READ: usize = 8 << 10;
/// How long a request on a new connection waits until idle ones are suspected to stand in its way.
const PATIENCE: Duration = Duration::from_millis(50);
/// A request, ready to be sent.
pub(super) struct Call {
    pub(super) link: Rc<Link>,
    pub(super) errand: Errand,
    pub(super) upload: Upload,
    pub(super) dialect: Dialect,
    /// Whether it may be sent again when the connection ends without an answer: only what is safe (RFC 9110 section
    /// 9.2.1). What is merely idempotent is not: of two that were begun nobody knows which one the answer is of, and the
    /// first may have ended the application (FAULTS 62).
    pub(super) may_repeat: bool,
    /// The answer has no content, whatever it says.
    pub(super) head_only: bool,
    pub(super) wants_trailers: bool,
    /// Where interim answers go.
    pub(super) interim: Option<InterimQueue>,
    /// Of the file that the application may have sent in its place.
    pub(super) range: Option<Vec<u8>>,
    /// What of an answer leads back to this server.
    pub(super) back: Option<Back>,
    /// For a path of this server in place of an answer.
    pub(super) elsewhere: Option<Elsewhere>,
    pub(super) about: About,
}

/// How an answer is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    /// HTTP/1; `may_switch` when the request has asked for a switch of protocols.
    Http {
        may_switch: bool,
    },
    FastCgi,
    Scgi,
}

/// Why an attempt has failed.
enum Fault {
    /// The connection was closed before anything of an answer came.
    Unanswered(io::Error),
    /// It was closed, or failed, later.
    Broken(io::Error),
    Answer(AnswerError),
    Silent,
    /// The client's content ended badly; the engine answers in place of whatever is said here.
    Client,
}

impl Call {
    /// Carries it out, once a small content has come whole, or a long one has begun to come: until then it takes nothing
    /// that others could use.
    pub(super) fn run(self) -> Reply {
        // Whatever a future takes by value it holds twice.
        let mut call = Box::new(self);
        if !call.upload.waits_for_content() {
            return Reply::Later(Box::pin(call.carry_out()));
        }
        Reply::Preparing(Box::pin(async move {
            match call.upload.collect(call.link.request_buffer).await {
                Ok(()) => Reply::Later(Box::pin(call.carry_out())),
                Err(_) => Reply::Ready(answer::error(Status::BAD_REQUEST)),
            }
        }))
    }

    /// What seldom has to be waited for is in a box of its own: the future is made anew for each request, and all
    /// that it could ever wait for is a part of it.
    async fn carry_out(mut self: Box<Self>) -> Response {
        self.stats().gateway_requests.add(1);
        let mut wants_new = false;
        // Why an earlier member has failed: what the client hears when there is no other.
        let mut before: Option<Box<Response>> = None;
        loop {
            let pick = match self.link.upstream.try_pick(&self.errand) {
                Some(pick) => Ok(pick),
                None => Box::pin(self.place()).await,
            };
            let mut pick = match pick {
                Ok(pick) => Some(pick),
                Err(refused) => return before.map_or_else(|| self.refused(&refused), |answer| *answer),
            };
            let Some(pool) = self.link.pool(pick.as_ref().and_then(Pick::address)) else {
                return answer::error(Status::BAD_GATEWAY);
            };
            let idle = if wants_new { None } else { pool.take(!self.may_repeat) };
            let connection = match idle {
                Some(connection) => connection,
                None => match Box::pin(pool.connect()).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        let answer = self.unreachable(pool.peer().address(), &error);
                        if let Some(pick) = &mut pick {
                            pick.failed(&mut self.errand);
                        }
                        // Nothing was sent: whatever the request is, somebody else may have it.
                        if !self.link.upstream.may_retry(&mut self.errand, false) {
                            return answer;
                        }
                        self.stats().gateway_retries.add(1);
                        before = Some(Box::new(answer));
                        continue;
                    }
                },
            };
            let is_reused = connection.is_reused();
            let began = monotonic_ns();
            let mut exchange = Exchange::new(connection, self.reader(), self.link.timeout);
            let head = std::future::poll_fn(|cx| exchange.poll_head(cx, &mut self.upload, &pool)).await;
            let answered = match (head, exchange.end()) {
                (Ok(head), Some((connection, mut reader))) => {
                    self.stats().gateway_delay.record_nanos(monotonic_ns().saturating_sub(began));
                    let rest = match &mut reader {
                        HeadOf::Scgi { stdout, has_ended } if self.upload.is_complete() => {
                            Box::pin(gather(&connection, head.len, stdout, has_ended)).await
                        }
                        _ => Ok(()),
                    };
                    match rest {
                        Ok(()) => {
                            let line = Line { connection, pool, pick: pick.take() };
                            self.answered(head, reader, line)
                        }
                        Err(error) => Err(Fault::Broken(error)),
                    }
                }
                (Err(fault), _) => Err(fault),
                (Ok(_), None) => Err(Fault::Client),
            };
            let fault = match answered {
                Ok(Reply::Ready(response)) => return response,
                Ok(reply) => return Box::pin(reply.settled()).await,
                Err(fault) => fault,
            };
            let may_repeat = match fault {
                Fault::Unanswered(_) => self.may_repeat || !self.upload.has_begun(),
                // It was not begun with.
                Fault::Answer(AnswerError::Overloaded) => true,
                _ => false,
            } && self.upload.is_repeatable();
            // An idle connection that the other end closes at the same moment is nobody's fault; on a new one that is
            // no explanation. A process of a pool may as well have ended, and is left for another.
            let is_coincidence = matches!(fault, Fault::Unanswered(_)) && is_reused;
            if is_coincidence && may_repeat && !wants_new && !self.link.upstream.is_pool() {
                wants_new = true;
                self.stats().gateway_retries.add(1);
                self.upload.rewind();
                continue;
            }
            match (&fault, pick) {
                (Fault::Client, _) | (_, None) => {}
                (Fault::Silent, Some(pick)) => pick.hung(&mut self.errand),
                (_, Some(mut pick)) => pick.failed(&mut self.errand),
            }
            let answer = self.failed(&fault);
            if !may_repeat || !self.link.upstream.may_retry(&mut self.errand, true) {
                return answer;
            }
            self.stats().gateway_retries.add(1);
            // The idle connections to a pool's process may be as old as the one that has failed.
            wants_new = self.link.upstream.is_pool();
            before = Some(Box::new(answer));
            self.upload.rewind();
        }
    }

    fn stats(&self) -> &Stats {
        &self.link.shared.stats
    }

    /// Waits for a place; how long is counted where it has to.
    async fn place(&self) -> Result<Pick, Refused> {
        let mut pick = std::pin::pin!(self.link.upstream.pick(&self.errand));
        let mut since = None;
        let outcome = std::future::poll_fn(|cx| {
            let polled = pick.as_mut().poll(cx);
            if polled.is_pending() && since.is_none() {
                since = Some(monotonic_ns());
            }
            polled
        })
        .await;
        if let Some(since) = since {
            self.stats().gateway_queue_delay.record_nanos(monotonic_ns().saturating_sub(since));
        }
        outcome
    }

    fn reader(&self) -> HeadOf {
        match self.dialect {
            Dialect::Http { may_switch } => HeadOf::Http {
                reader: HeadReader::default(),
                method: if self.head_only { "HEAD" } else { "GET" },
                may_switch,
                body: None,
                interim: self.interim.clone(),
            },
            Dialect::FastCgi => HeadOf::FastCgi {
                decoder: ResponseDecoder::new(REQUEST),
                stdout: Vec::new(),
                complaints: Complaints::about(self.about.clone()),
            },
            Dialect::Scgi => HeadOf::Scgi { stdout: Vec::new(), has_ended: false },
        }
    }

    /// The head of an answer has come.
    fn answered(&mut self, mut head: AnswerHead, reader: HeadOf, mut line: Line) -> Result<Reply, Fault> {
        let cookie = line.pick.as_mut().and_then(|pick| pick.answered(&self.link.upstream, &self.errand));
        if let Some(cookie) = cookie {
            head.lines.push("Set-Cookie", &cookie);
        }
        if let Some(back) = self.back.as_ref().filter(|_| head.leads) {
            back.apply(&mut head.lines);
        }
        let has_body = head.status.has_body() && !self.head_only;
        if head.is_switch {
            let HeadOf::Http { mut reader, .. } = reader else {
                return Err(Fault::Answer(AnswerError::UnaskedSwitch));
            };
            return Ok(Reply::Ready(tunnel::open(head, reader.take_rest(), line, self.link.timeout)));
        }
        let (mut content, early) =
            reader.into_content(head.len.filter(|_| has_body)).map_err(Fault::Answer)?;
        let is_sent = self.upload.is_complete();
        // A local redirect has nothing behind its head (RFC 3875 section 6.2.2), whether the end has come or not.
        if content.is_complete() || (head.local_redirect.is_some() && content.ends_with_connection()) {
            content.check_announced().map_err(Fault::Answer)?;
            if content.may_keep() && is_sent {
                line.pool.put(line.connection);
            }
            drop(line.pick);
            if let Some(path) = &head.local_redirect
                && let Some(elsewhere) = self.elsewhere.take()
            {
                let path = String::from_utf8_lossy(path).into_owned();
                return Ok(Reply::Later(Box::pin(async move { elsewhere.answer(&path).await })));
            }
            if self.link.sendfile.is_asked(&head) {
                return Ok(self.sendfile(head));
            }
            let trailers = content.take_trailers();
            let body = match has_body {
                true if self.wants_trailers && !trailers.is_empty() => {
                    let stream = Box::new(Short { early, trailers });
                    Body::Stream { len: None, has_trailers: true, stream }
                }
                true => Body::Bytes(early),
                false => announced(head.len),
            };
            return Ok(respond(head, body));
        }
        let is_file = self.link.sendfile.is_asked(&head);
        if is_file || !has_body {
            // What it still sends is for nobody.
            if is_sent {
                finish(line, content, self.link.timeout);
            }
            return Ok(if is_file {
                self.sendfile(head)
            } else {
                let body = announced(head.len);
                respond(head, body)
            });
        }
        let len = content.remaining().map(|left| left.saturating_add(early.len() as u64));
        let upload = (!is_sent).then(|| std::mem::replace(&mut self.upload, Upload::whole(Vec::new())));
        let about = self.about.clone();
        let relay = Relay::new(line, content, upload, early, &self.link, about, self.wants_trailers);
        Ok(respond(head, Body::Stream { len, has_trailers: false, stream: Box::new(relay) }))
    }

    /// A file in place of what has been answered.
    fn sendfile(&mut self, head: AnswerHead) -> Reply {
        let (link, range, about) = (self.link.clone(), self.range.take(), self.about.clone());
        Reply::Later(Box::pin(async move {
            sendfile::respond(&link.sendfile, head, range.as_deref(), &about).await
        }))
    }

    fn refused(&self, refused: &Refused) -> Response {
        refuse(self.stats(), refused)
    }

    fn unreachable(&self, address: &Address, error: &io::Error) -> Response {
        self.stats().gateway_failures.add(GatewayFailure::Unreachable, 1);
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        let why = if is_late { "no connection in time".to_owned() } else { error.to_string() };
        match &self.link.upstream {
            Upstream::Address { .. } => {
                log::error(format_args!("{}: {} cannot be reached: {why}", self.about, self.link.name));
            }
            Upstream::Pool(_) | Upstream::Group(_) => {
                let name = &self.link.name;
                log::error(format_args!("{}: {address} of {name} cannot be reached: {why}", self.about));
            }
        }
        answer::error(if is_late { Status::GATEWAY_TIMEOUT } else { Status::BAD_GATEWAY })
    }

    fn failed(&self, fault: &Fault) -> Response {
        let status = match fault {
            Fault::Client => return answer::error(Status::BAD_REQUEST),
            Fault::Silent => Status::GATEWAY_TIMEOUT,
            Fault::Answer(AnswerError::Overloaded) => Status::SERVICE_UNAVAILABLE,
            Fault::Unanswered(_) | Fault::Broken(_) | Fault::Answer(_) => Status::BAD_GATEWAY,
        };
        self.stats().gateway_failures.add(
            match fault {
                Fault::Silent => GatewayFailure::Silent,
                Fault::Answer(AnswerError::Overloaded) => GatewayFailure::Overloaded,
                Fault::Answer(AnswerError::Truncated) => GatewayFailure::Closed,
                Fault::Answer(_) => GatewayFailure::Malformed,
                Fault::Client | Fault::Unanswered(_) | Fault::Broken(_) => GatewayFailure::Closed,
            },
            1,
        );
        let (about, name) = (&self.about, &self.link.name);
        match fault {
            Fault::Client => {}
            Fault::Silent => {
                log::error(format_args!("{about}: {name}: no answer within {:?}", self.link.timeout));
            }
            Fault::Answer(error) => log::error(format_args!("{about}: {name}: {error}")),
            Fault::Unanswered(error) | Fault::Broken(error) => {
                log::error(format_args!("{about}: {name}: {error}"));
            }
        }
        match status {
            Status::SERVICE_UNAVAILABLE => answer::busy(Some(1)),
            status => answer::error(status),
        }
    }
}

fn respond(head: AnswerHead, body: Body) -> Reply {
    Reply::Ready(Response {
        status: head.status,
        head: Head::Fields(head.lines),
        body,
        author: Author::Application,
    })
}

/// One request on a connection, up to the head of its answer. Given up on the way where the client goes: an
/// application is told where its protocol knows how.
struct Exchange {
    under_way: Option<(Connection, HeadOf)>,
    is_sending: bool,
    silence: Silence,
    /// Armed on a new connection only.
    suspicion: Option<Pin<Box<Deadline>>>,
    starving: Option<Starving>,
}

impl Exchange {
    fn new(connection: Connection, reader: HeadOf, timeout: Duration) -> Exchange {
        Exchange {
            under_way: Some((connection, reader)),
            is_sending: true,
            silence: Silence::new(timeout),
            suspicion: None,
            starving: None,
        }
    }

    /// It has come to something.
    fn end(mut self) -> Option<(Connection, HeadOf)> {
        self.under_way.take()
    }

    /// Sends the request and waits for the head of its answer.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        pool: &Pool,
    ) -> Poll<Result<AnswerHead, Fault>> {
        let Some((connection, reader)) = &mut self.under_way else { return Poll::Ready(Err(Fault::Client)) };
        let mut is_refused = None;
        if self.is_sending {
            match upload.poll_send(cx, connection) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.is_sending = false,
                Poll::Ready(Err(UploadError::Client(_))) => return Poll::Ready(Err(Fault::Client)),
                // It takes no more of the request: perhaps it has answered already.
                Poll::Ready(Err(UploadError::Application(error))) => {
                    self.is_sending = false;
                    is_refused = Some(error);
                }
            }
        }
        loop {
            let polled = runtime::with_scratch(|scratch| {
                let room = scratch.len().min(FIRST_READ);
                let polled = connection.poll_recv(cx, &mut scratch[..room]);
                polled.map(|received| received.map(|count| (count, reader.push(&scratch[..count]))))
            });
            match polled {
                Poll::Ready(Ok((0, _))) => {
                    let end = is_refused.unwrap_or_else(|| {
                        io::Error::other("it has closed the connection without an answer")
                    });
                    return Poll::Ready(Err(if reader.is_empty() {
                        Fault::Unanswered(end)
                    } else {
                        Fault::Answer(AnswerError::Truncated)
                    }));
                }
                Poll::Ready(Ok((_, Ok(Some(head))))) => return Poll::Ready(Ok(head)),
                Poll::Ready(Ok((_, Ok(None)))) => self.silence.ends(),
                Poll::Ready(Ok((_, Err(error)))) => return Poll::Ready(Err(Fault::Answer(error))),
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(if reader.is_empty() {
                        Fault::Unanswered(error)
                    } else {
                        Fault::Broken(error)
                    }));
                }
                Poll::Pending => break,
            }
        }
        if let Some(error) = is_refused {
            return Poll::Ready(Err(Fault::Unanswered(error)));
        }
        if self.is_sending && upload.waits_for_client() {
            self.silence.ends(); // the client has a deadline of its own
            return Poll::Pending;
        }
        // A new connection that is not served may stand behind idle ones.
        if !connection.is_reused() && self.starving.is_none() && reader.is_empty() {
            let suspicion = self.suspicion.get_or_insert_with(|| Box::pin(timer::after(PATIENCE)));
            if suspicion.as_mut().poll(cx).is_ready() {
                self.starving = Some(Starving::new(pool.peer()));
            }
        }
        if self.silence.poll(cx).is_ready() {
            return Poll::Ready(Err(Fault::Silent));
        }
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // In the middle of the request the record would be taken for a part of it.
        if let Some((connection, HeadOf::FastCgi { decoder, .. })) = self.under_way.take()
            && !self.is_sending
        {
            abandon(connection, decoder);
        }
    }
}

/// The answer to a request that got no place.
pub(super) fn refuse(stats: &Stats, refused: &Refused) -> Response {
    let why = match refused {
        Refused::Full { .. } => GatewayFailure::QueueFull,
        Refused::TooOld { .. } => GatewayFailure::QueueAge,
        Refused::Down { .. } => GatewayFailure::Down,
    };
    stats.gateway_failures.add(why, 1);
    answer::busy(Some(refused.retry_after_seconds()))
}

/// No content, with the length that it would have had.
pub(super) fn announced(len: Option<u64>) -> Body {
    Body::Stream { len, has_trailers: false, stream: Box::new(Nothing) }
}

/// Content that is all here, with trailers behind it.
struct Short {
    early: Vec<u8>,
    trailers: FieldLines,
}

impl BodyStream for Short {
    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        if self.early.is_empty() {
            return Poll::Ready(Ok(Chunk::end(std::mem::take(&mut self.trailers))));
        }
        let count = self.early.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.early[..count]);
        self.early.drain(..count);
        Poll::Ready(Ok(Chunk::of(count)))
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn held(&self) -> usize {
        size_of::<Short>() + self.early.capacity() + self.trailers.as_bytes().len()
    }
}

struct Nothing;

impl BodyStream for Nothing {
    fn poll_chunk(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<Chunk>> {
        Poll::Ready(Ok(Chunk::End))
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn held(&self) -> usize {
        0
    }
}
