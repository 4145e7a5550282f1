//! One request to an application that speaks HTTP/2, and its answer: content both ways at the same time, and
//! trailers, as gRPC needs them.
//!
//! What tells its length, and all of HTTP/1, is collected first as in `call`, so that a slow client takes no place. A
//! request of HTTP/2 that tells none is a stream: its call may answer before there is any content, and begins at once.

use super::about::About;
use super::answer::{AnswerError, AnswerHead, to_client};
use super::attempts::{self, AtOnce, Attempt, Begun, Failure, until_answered};
use super::call::announced;
use super::fields::RequestTrailers;
use super::link::Link;
use super::pool::Attended;
use super::redirects::Back;
use super::sendfile;
use super::stream::Silence;
use super::upload::{AHEAD, Taken};
use super::upstream::{RoutingState, Selection};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_client::http2::{Answer, Http2Error, Http2Stream};
use tidegate_core::body::{RequestBody, RequestBodyError};
use tidegate_core::body_stream::Splice;
use tidegate_core::interim::{Interim, InterimQueue};
use tidegate_core::memory::{self, Weight};
use tidegate_core::response::Head;
use tidegate_core::{Body, BodyStream, Chunk, Need, Reply, Response, answer};
use tidegate_http::{FieldLines, Status};
use tidegate_io::clock::monotonic_ns;
use tidegate_stats::Elapsed;
use tidegate_stats::series::Phase;
use tidegate_stats::{GatewayFailure, Worker as Stats};
use tidegate_wire::h2::{FieldSource, RequestParts};

/// A request, ready to be sent.
pub(super) struct Multiplexed {
    pub(super) link: Rc<Link>,
    pub(super) method: String,
    pub(super) scheme: &'static str,
    pub(super) authority: String,
    pub(super) target: String,
    pub(super) lines: FieldLines,
    pub(super) upload: Upload,
    pub(super) content_length: Option<u64>,
    /// 304 is an answer to it.
    pub(super) is_conditional: bool,
    /// Content goes both ways at the same time, perhaps, and the application may be first.
    pub(super) is_stream: bool,
    /// Whether it may be sent again when it has been lost: only what is safe (RFC 9110 section 9.2.1, FAULTS 62).
    pub(super) may_repeat: bool,
    /// The answer has no content, whatever it says.
    pub(super) head_only: bool,
    pub(super) wants_trailers: bool,
    /// Where interim answers go.
    pub(super) interim: Option<InterimQueue>,
    /// Of the file that the application may have sent in its place.
    pub(super) range: Option<Vec<u8>>,
    pub(super) routing: RoutingState,
    /// What of an answer leads back to this server.
    pub(super) back: Option<Back>,
    pub(super) about: About,
}

/// Why an attempt has failed.
enum Fault {
    Stream(Http2Error),
    /// The same, while the client owed content.
    Owed(Http2Error),
    Silent,
    /// No process is left that could accept the connection.
    Unaccepted,
    Client,
    Answer(AnswerError),
}

impl Attempt for Multiplexed {
    fn way(&mut self) -> (&Rc<Link>, &mut RoutingState) {
        (&self.link, &mut self.routing)
    }

    fn about(&self) -> About {
        self.about.clone()
    }

    fn rewind(&mut self) {
        self.upload.rewind();
    }

    async fn attempt(&mut self, pick: &mut Option<Selection>, _: bool) -> Result<Response, Box<Failure>> {
        let Some(pool) = self.link.multiplexed(pick.as_ref().and_then(Selection::address)) else {
            return Ok(answer::error(Status::BAD_GATEWAY));
        };
        if let Some(pick) = &*pick {
            pick.rename_span_in(&mut self.lines);
        }
        let parts = RequestParts {
            method: &self.method,
            scheme: self.scheme,
            authority: &self.authority,
            target: &self.target,
            protocol: None,
            fields: FieldSource::Lines(&self.lines),
            content_length: self.content_length,
        };
        let stream = match pool.open(&parts, self.upload.is_done).await {
            Ok(stream) => stream,
            Err(error) => return Err(Failure::unreachable(error, pick.take())),
        };
        let began = monotonic_ns();
        if let Some(pick) = &*pick {
            pick.connected(began);
        }
        let mut weight = Weight::default();
        weight.set(stream.held());
        let attended = pick.as_ref().and_then(Selection::attended);
        match self.head(&stream, attended).await {
            Ok((head, owed)) => {
                let now = monotonic_ns();
                let elapsed = Elapsed::nanos(now.saturating_sub(began).saturating_sub(owed));
                self.stats().gateway_delay.record_elapsed(elapsed);
                self.link.took(&self.routing, pick.as_ref(), Phase::Application, elapsed);
                let mut pick = pick.take();
                if let Some(pick) = &pick {
                    pick.head_has_come(Status(head.status), now);
                }
                if head.status == Status::NOT_MODIFIED.0 && !self.is_conditional {
                    let fault = Fault::Answer(AnswerError::UnaskedNotModified).into();
                    let (may_repeat, at_once) = (false, AtOnce::Never);
                    return Err(Box::new(Failure { fault, pick: None, may_repeat, at_once }));
                }
                let answered = |pick: &mut Selection| pick.answered(&self.link.upstream, &self.routing);
                let cookie = pick.as_mut().and_then(answered);
                Ok(self.respond(head, cookie, stream, pick).await)
            }
            Err(fault) => {
                let elapsed = Elapsed::nanos(monotonic_ns().saturating_sub(began));
                self.link.took(&self.routing, pick.as_ref(), Phase::Application, elapsed);
                let is_lost =
                    matches!(&fault, Fault::Stream(error) | Fault::Owed(error) if self.repeats(error));
                // It may have been accepted a moment ago, and nothing of it seen yet.
                let is_unaccepted =
                    matches!(fault, Fault::Unaccepted) && self.may_repeat && self.upload.is_held;
                let may_repeat = is_lost || is_unaccepted;
                // The connection was on its way out, most often.
                let at_once = match &fault {
                    Fault::Stream(Http2Error::PassedOver) | Fault::Owed(Http2Error::PassedOver) => {
                        AtOnce::BehindOthers
                    }
                    _ if is_lost => AtOnce::Coincidence,
                    _ => AtOnce::Never,
                };
                Err(Box::new(Failure { fault: fault.into(), pick: pick.take(), may_repeat, at_once }))
            }
        }
    }
}

impl Multiplexed {
    /// Carries it out, once a small content has come whole, or a long one has begun to come.
    pub(super) fn run(self) -> Reply {
        if self.is_stream || !self.upload.has_content {
            return Reply::Later(Box::pin(self.counted()));
        }
        let mut call = Box::new(self);
        Reply::Preparing(
            Need::Content,
            Box::pin(async move {
                match call.upload.collect().await {
                    Ok(()) => Reply::Later(Box::pin(call.counted())),
                    Err(_) => Reply::Ready(answer::error(Status::BAD_REQUEST)),
                }
            }),
        )
    }

    async fn counted(self) -> Response {
        attempts::count(&self.link);
        until_answered(self, Begun::default()).await
    }

    fn stats(&self) -> &Stats {
        &self.link.shared.stats
    }

    /// What was not looked at may be sent again; what was lost only where that changes nothing. Content that is no
    /// longer held cannot.
    fn repeats(&self, error: &Http2Error) -> bool {
        let is_safe = match error {
            Http2Error::Unprocessed | Http2Error::PassedOver => true,
            Http2Error::Lost(_) | Http2Error::Broken(_) => self.may_repeat,
            Http2Error::Reset(_) | Http2Error::Misbehaved(_) => false,
        };
        is_safe && self.upload.is_held
    }

    /// Sends content, and waits for the head of the answer. For how long content of the client was waited for comes with it,
    /// nanoseconds.
    async fn head(
        &mut self,
        stream: &Http2Stream,
        attended: Option<Attended>,
    ) -> Result<(Answer, u64), Fault> {
        let Multiplexed { upload, interim, link, .. } = self;
        let mut silence = Silence::new(link.timeout);
        let (mut owed, mut owed_since) = (0u64, None::<u64>);
        std::future::poll_fn(|cx| {
            let is_owed = owed_since.is_some();
            if let Some(since) = owed_since.take() {
                owed += monotonic_ns().saturating_sub(since);
            }
            if let Poll::Ready(Err(fault)) = upload.poll(cx, stream) {
                return Poll::Ready(Err(fault));
            }
            if upload.taken.is_alive() {
                silence.ends();
            }
            loop {
                match stream.poll_head(cx) {
                    Poll::Ready(Ok(Answer { status, lines, .. })) if status < 200 => {
                        silence.ends();
                        if let Some(queue) = interim {
                            let AnswerHead { status, mut lines, .. } =
                                AnswerHead::of(Status(status), None, &lines);
                            link.own_cookies.take_out_of(&mut lines);
                            queue.push(Interim { status, lines });
                        }
                    }
                    Poll::Ready(Ok(head)) => return Poll::Ready(Ok((head, owed))),
                    Poll::Ready(Err(error)) if is_owed => return Poll::Ready(Err(Fault::Owed(error))),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(Fault::Stream(error))),
                    // Where somebody has accepted the connection, its end says what has become of the request.
                    Poll::Pending
                        if !stream.is_accepted()
                            && attended.as_ref().is_some_and(|own| own.poll_left(cx).is_ready()) =>
                    {
                        return Poll::Ready(Err(Fault::Unaccepted));
                    }
                    Poll::Pending if upload.waits_for_client => {
                        silence.ends(); // the client has a deadline of its own
                        owed_since = Some(monotonic_ns());
                        return Poll::Pending;
                    }
                    Poll::Pending => {
                        std::task::ready!(silence.poll(cx));
                        stream.has_waited(link.timeout);
                        return Poll::Ready(Err(Fault::Silent));
                    }
                }
            }
        })
        .await
    }

    async fn respond(
        &mut self,
        answer: Answer,
        cookie: Option<String>,
        stream: Http2Stream,
        pick: Option<Selection>,
    ) -> Response {
        self.upload.let_go();
        let mut head = AnswerHead::of(Status(answer.status), answer.content_length, &answer.lines);
        self.link.own_cookies.take_out_of(&mut head.lines);
        if let Some(cookie) = cookie {
            head.lines.push("Set-Cookie", &cookie);
        }
        if let Some(back) = self.back.as_ref().filter(|_| head.leads) {
            back.apply(&mut head.lines);
        }
        if self.link.sendfile.is_asked(&head) {
            return sendfile::respond(&self.link.sendfile, head, self.range.as_deref(), &self.about).await;
        }
        let has_body = head.status.has_body() && !self.head_only;
        // Behind a length that is known they come only where they are announced.
        let has_trailers = self.wants_trailers && head.lines.contains("trailer");
        let body = if !has_body {
            announced(head.len)
        } else if answer.is_end {
            Body::Empty
        } else {
            let flow = Flow {
                stream,
                upload: self.upload.take(),
                silence: Silence::new(self.link.timeout),
                left: head.len,
                about: self.about.clone(),
                wants_trailers: self.wants_trailers,
                _pick: pick,
            };
            Body::Stream { len: head.len, has_trailers, stream: Box::new(flow) }
        };
        Response { status: head.status, head: Head::Fields(head.lines), body, author: head.author }
    }
}

impl From<Fault> for attempts::Fault {
    fn from(fault: Fault) -> attempts::Fault {
        match fault {
            Fault::Client => attempts::Fault::Client,
            Fault::Silent => attempts::Fault::Silent,
            Fault::Unaccepted => attempts::Fault::Unaccepted,
            Fault::Answer(error) => {
                attempts::Fault::Application(GatewayFailure::Malformed, error.to_string())
            }
            Fault::Owed(error) => attempts::Fault::Owed(error.to_string()),
            Fault::Stream(error) => attempts::Fault::Application(kind_of(&error), error.to_string()),
        }
    }
}

/// Content of the request on its way.
pub(super) struct Upload {
    body: Option<RequestBody>,
    /// Read from the client: all of it from the start while it is held, else what was read last.
    content: Vec<u8>,
    rules: Rc<RequestTrailers>,
    /// What is sent behind all of it.
    trailers: FieldLines,
    /// Bytes of `content` that are sent.
    sent: usize,
    /// What has been sent could be sent once more.
    is_held: bool,
    /// Bytes that are held for that at most.
    limit: usize,
    has_content: bool,
    is_done: bool,
    /// All that the client has sent so far is with the application.
    waits_for_client: bool,
    taken: Taken,
    /// Of `content`, while the answer is waited for.
    weight: Weight,
}

impl Upload {
    /// Of which `limit` bytes are held at most, to be sent once more. `rules` are for what comes behind it.
    pub(super) fn of(body: Option<RequestBody>, limit: usize, rules: Rc<RequestTrailers>) -> Upload {
        let has_content = body.is_some();
        Upload {
            weight: Weight::default(),
            body,
            content: Vec::new(),
            rules,
            trailers: FieldLines::new(),
            sent: 0,
            is_held: true,
            limit,
            has_content,
            is_done: !has_content,
            waits_for_client: false,
            taken: Taken::default(),
        }
    }

    /// All of it, from here on in the hands of another.
    fn take(&mut self) -> Upload {
        let rest = Upload::of(None, 0, self.rules.clone());
        std::mem::replace(self, rest)
    }

    /// Waits until all content is here, or more than is held of it; of what is announced to be longer, until it has
    /// begun to come. It is sent as it comes where memory is short.
    async fn collect(&mut self) -> Result<(), RequestBodyError> {
        while let Some(body) = &mut self.body {
            let is_long = body.len.is_some_and(|len| len > self.limit as u64);
            let is_enough = self.content.len() > self.limit || is_long && !self.content.is_empty();
            if is_enough || !memory::take(AHEAD) || body.read(&mut self.content).await? == 0 {
                break;
            }
            self.weight.set(self.content.capacity());
        }
        Ok(())
    }

    /// Begins anew, with what is held.
    fn rewind(&mut self) {
        self.sent = 0;
        self.is_done = !self.has_content;
    }

    /// Nothing will have to be sent again.
    fn let_go(&mut self) {
        self.is_held = false;
        if self.is_done {
            (self.body, self.content) = (None, Vec::new());
        }
    }

    /// Sends what there is. Ready when all of it is sent.
    fn poll(&mut self, cx: &mut Context<'_>, stream: &Http2Stream) -> Poll<Result<(), Fault>> {
        self.waits_for_client = false;
        while !self.is_done {
            while self.sent < self.content.len() && !self.is_done {
                match stream.poll_send(cx, self.content.get(self.sent..).unwrap_or_default(), false) {
                    Poll::Ready(Ok(count)) => {
                        self.sent += count;
                        self.taken.add(count);
                    }
                    // It shows in the answer, or in its absence.
                    Poll::Ready(Err(_)) => self.is_done = true,
                    Poll::Pending => {
                        self.taken.waits_for_room();
                        return Poll::Pending;
                    }
                }
            }
            if self.is_done {
                break;
            }
            self.is_held &= self.content.len() <= self.limit;
            if !self.is_held {
                (self.content, self.sent) = (Vec::new(), 0);
            }
            let read = match &mut self.body {
                Some(body) => body.poll_read(&mut self.content),
                None => Poll::Ready(Ok(0)),
            };
            self.weight.set(self.content.capacity());
            match read {
                Poll::Ready(Ok(0)) => {
                    if let Some(mut body) = self.body.take() {
                        self.trailers = self.rules.pass(&body.take_trailers());
                    }
                    if !self.trailers.is_empty() {
                        stream.send_trailers(&self.trailers);
                        self.is_done = true;
                        continue;
                    }
                    match stream.poll_send(cx, &[], true) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(_) => self.is_done = true,
                    }
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(client_fault(error))),
                Poll::Pending => {
                    self.waits_for_client = true;
                    return Poll::Pending;
                }
            }
        }
        if !self.is_held {
            self.let_go();
        }
        Poll::Ready(Ok(()))
    }
}

fn kind_of(error: &Http2Error) -> GatewayFailure {
    match error {
        Http2Error::Misbehaved(_) | Http2Error::Broken(_) => GatewayFailure::Malformed,
        _ => GatewayFailure::Closed,
    }
}

/// The engine answers in place of whatever is said here.
fn client_fault(_: RequestBodyError) -> Fault {
    Fault::Client
}

/// Content of the answer, while that of the request may still flow.
struct Flow {
    stream: Http2Stream,
    upload: Upload,
    silence: Silence,
    /// Bytes of content that are announced and still to come.
    left: Option<u64>,
    about: About,
    wants_trailers: bool,
    _pick: Option<Selection>,
}

impl Flow {
    /// Says that it was silent for too long, unless all that was announced is here.
    #[cold]
    fn was_silent(&self) {
        let timeout = self.silence.timeout();
        let how = format_args!("nothing for {timeout:?}");
        if self.upload.waits_for_client {
            return self.about.was_given_up(&how);
        }
        self.stream.has_waited(timeout);
        if self.left != Some(0) {
            self.about.broke_off(GatewayFailure::Silent, &how);
        }
    }
}

impl BodyStream for Flow {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        if let Poll::Ready(Err(_)) = self.upload.poll(cx, &self.stream) {
            return Poll::Ready(Err(io::Error::other("the request broke off")));
        }
        if self.upload.taken.is_alive() {
            self.silence.ends();
        }
        match self.stream.poll_data(cx, buffer) {
            Poll::Ready(Ok(0)) => {
                let trailers = self.stream.take_trailers();
                let passes = self.wants_trailers && !trailers.is_empty();
                Poll::Ready(Ok(if passes { Chunk::end(to_client(trailers.iter())) } else { Chunk::End }))
            }
            Poll::Ready(Ok(count)) => {
                self.stream.widen(memory::take);
                self.silence.ends();
                self.left = self.left.map(|left| left.saturating_sub(count as u64));
                Poll::Ready(Ok(Chunk::of(count)))
            }
            Poll::Ready(Err(error)) => {
                if self.left != Some(0) {
                    self.about.broke_off(kind_of(&error), &error);
                }
                Poll::Ready(Err(io::Error::other(error)))
            }
            Poll::Pending => {
                std::task::ready!(self.silence.poll(cx));
                self.was_silent();
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        // What comes meanwhile waits within the window, and whoever weighs this looks again: an end gives room back.
        let _ = self.upload.poll(cx, &self.stream);
        self.stream.watch(cx);
        self.silence.ends();
    }

    fn held(&self) -> usize {
        size_of::<Flow>() + self.stream.held() + self.upload.content.capacity()
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}
