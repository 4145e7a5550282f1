//! One attempt at a request to an application: a connection, the exchange, and what its answer becomes. Whether there is
//! another attempt, `attempts` decides.
//!
//! `fastcgi`, `scgi` and `proxy` encode the request and say how its answer is read; everything else is here.

use super::abandon::{abandon, finish};
use super::about::About;
use super::answer::{AnswerError, AnswerHead, HeadOf};
use super::attempts::{self, AtOnce, Attempt, Begun, Failure, until_answered};
use super::backlog::Backlog;
use super::complaints::Complaints;
use super::gather::gather;
use super::head_deadlines::HeadDeadline;
use super::link::Link;
use super::redirects::Back;
use super::stream::{Checkout, Relay};
use super::upload::{REQUEST, Upload, UploadError};
use super::upstream::{RoutingState, Selection};
use super::{sendfile, tunnel};
use smallvec::SmallVec;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_client::http1::HeadReader;
use tidegate_client::{Connection, Pool};
use tidegate_core::body_stream::Splice;
use tidegate_core::interim::InterimQueue;
use tidegate_core::response::Head;
use tidegate_core::{Body, BodyStream, Chunk, InternalRedirect, Need, Reply, Response, answer};
use tidegate_http::field::list_elements;
use tidegate_http::{FieldLines, Status};
use tidegate_io::LocalFuture;
use tidegate_io::clock::{monotonic_ns, recent_ns, step_ns};
use tidegate_io::runtime;
use tidegate_stats::Elapsed;
use tidegate_stats::series::Phase;
use tidegate_stats::{GatewayFailure, Worker as Stats};
use tidegate_wire::fastcgi::ResponseDecoder;

/// Bytes read at once while the head is waited for: what is behind it is copied once.
const FIRST_READ: usize = 8 << 10;

/// A request, ready to be sent.
pub(super) struct Call {
    pub(super) link: Rc<Link>,
    pub(super) routing: RoutingState,
    pub(super) upload: Upload,
    pub(super) dialect: Dialect,
    /// Whether it may be sent again when the connection ends without an answer: only what is safe (RFC 9110 section
    /// 9.2.1). What is merely idempotent is not: of two that were begun nobody knows which one the answer is of, and the
    /// first may have ended the application (FAULTS 62).
    pub(super) may_repeat: bool,
    /// The answer has no content, whatever it says.
    pub(super) head_only: bool,
    /// 304 is an answer to it.
    pub(super) is_conditional: bool,
    pub(super) wants_trailers: bool,
    /// Where interim answers go.
    pub(super) interim: Option<InterimQueue>,
    /// Of the file that the application may have sent in its place.
    pub(super) range: Option<Vec<u8>>,
    /// What of an answer leads back to this server.
    pub(super) back: Option<Back>,
    /// For a path of this server in place of an answer.
    pub(super) elsewhere: Option<Box<InternalRedirect>>,
    /// The protocols that it asks to switch to; in a box, since few do.
    pub(super) upgrade: Option<Box<ShortText>>,
    /// What the client has asked for, for messages.
    pub(super) target: ShortText,
}

/// Text that is most often short, and then no memory of its own.
pub(super) struct ShortText(SmallVec<[u8; 36]>);

impl From<&str> for ShortText {
    fn from(text: &str) -> ShortText {
        ShortText(SmallVec::from_slice(text.as_bytes()))
    }
}

impl ShortText {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default() // it was made of such
    }
}

/// How an answer is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    /// HTTP/1.
    Http,
    FastCgi,
    Scgi,
    /// The same, by a stub that says where a script was ended before its answer was.
    Cgi,
}

/// Why an attempt has failed.
enum Fault {
    /// The connection was closed before anything of an answer came.
    Unanswered(io::Error),
    /// The same, while the client owed content.
    Owed(io::Error),
    /// It was closed, or failed, later.
    Broken(io::Error),
    Answer(AnswerError),
    Silent,
    /// No process is left that could accept the connection, and none has.
    Unaccepted,
    /// The client's content ended badly; the engine answers in place of whatever is said here.
    Client,
}

impl Attempt for Box<Call> {
    fn way(&mut self) -> (&Rc<Link>, &mut RoutingState) {
        let Call { link, routing, .. } = &mut **self;
        (link, routing)
    }

    fn about(&self) -> About {
        Call::about(self)
    }

    fn rewind(&mut self) {
        self.upload.rewind();
    }

    async fn attempt(
        &mut self,
        pick: &mut Option<Selection>,
        wants_new: bool,
    ) -> Result<Response, Box<Failure>> {
        let Some(pool) = self.link.pool(pick.as_ref().and_then(Selection::address)) else {
            return Ok(answer::error(Status::BAD_GATEWAY));
        };
        let idle = if wants_new { None } else { self.kept(&pool) };
        let connection = match idle {
            Some(connection) => connection,
            None => match Box::pin(self.connect(&pool, pick.as_ref())).await {
                Ok(connection) => connection,
                Err(error) => return Err(Failure::unreachable(error, pick.take())),
            },
        };
        let mut exchange = Exchange::new(self, connection, pool, pick.take(), monotonic_ns());
        let reply = match std::future::poll_fn(|cx| exchange.poll(cx, self)).await? {
            Answered::Reply(Reply::Ready(response)) => return Ok(response),
            Answered::Reply(reply) => reply,
            Answered::Beginning(begun) => Box::pin(self.gathered(*begun)).await?,
        };
        drop(exchange);
        Ok(Box::pin(reply.settled()).await)
    }
}

/// A request that is carried out. What most of them need, a place and an idle connection that are there at once and an answer
/// that comes on it, is done here in one piece of memory; all else by [`until_answered`].
///
/// Larger than 1,032 bytes it would not be among those pieces that the allocator has at hand.
struct Running {
    call: Option<Call>,
    stage: Stage,
}

const _: () = assert!(size_of::<Running>() <= 1032, "it would be more than the allocator has at hand");

#[expect(clippy::large_enum_variant, reason = "what most requests are in shall need no memory of its own")]
enum Stage {
    Begin,
    UnderWay(Exchange),
    Rest(LocalFuture<Response>),
    Over,
}

impl Future for Running {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let Running { call, stage } = self.get_mut();
        if let (Stage::Begin, Some(request)) = (&*stage, &mut *call) {
            attempts::count(&request.link);
            *stage = match request.begin() {
                Ok(exchange) => Stage::UnderWay(exchange),
                Err(begun) => rest(call.take(), |call| call.until_answered(begun)),
            };
        }
        if let (Stage::UnderWay(exchange), Some(request)) = (&mut *stage, &mut *call) {
            let answered = std::task::ready!(exchange.poll(cx, request));
            *stage = match answered {
                Ok(Answered::Reply(Reply::Ready(response))) => {
                    *stage = Stage::Over;
                    return Poll::Ready(response);
                }
                Ok(Answered::Reply(reply)) => Stage::Rest(Box::pin(reply.settled())),
                Ok(Answered::Beginning(begun)) => rest(call.take(), |call| call.gather(begun)),
                Err(failure) => {
                    let begun = Begun { failure: Some(failure), ..Begun::default() };
                    rest(call.take(), |call| call.until_answered(begun))
                }
            };
        }
        match stage {
            Stage::Rest(rest) => rest.as_mut().poll(cx),
            Stage::Begin | Stage::UnderWay(_) | Stage::Over => Poll::Pending, // it has ended
        }
    }
}

fn rest(call: Option<Call>, goes_on: impl FnOnce(Call) -> LocalFuture<Response>) -> Stage {
    call.map_or(Stage::Over, |call| Stage::Rest(goes_on(call)))
}

impl Call {
    /// An idle connection, where one will do.
    ///
    /// Processes of a pool end by themselves: one that has had its `requests`, a child of php-fpm or php-cgi that is
    /// not needed. It may close a connection that it has promised to keep right behind an answer, and nothing tells such a
    /// connection from a sound one before the request is lost in it. What cannot be sent again goes on a new one, which
    /// waits in the backlog until somebody accepts it; an idle one makes way, since it may hold up who would.
    fn kept(&self, pool: &Pool) -> Option<Connection> {
        let kept = pool.take(!self.may_repeat);
        kept.filter(|_| self.may_repeat || !self.link.upstream.is_pool())
    }

    /// A new connection, whose time is counted.
    async fn connect(&self, pool: &Rc<Pool>, pick: Option<&Selection>) -> io::Result<Connection> {
        let began = monotonic_ns();
        let connected = pool.connect().await;
        if connected.is_ok() {
            let elapsed = Elapsed::nanos(monotonic_ns().saturating_sub(began));
            self.link.took(&self.routing, pick, Phase::Connect, elapsed);
        }
        connected
    }

    /// Carries it out, once a small content has come whole, or a long one has begun to come: until then it takes nothing
    /// that others could use.
    #[inline]
    pub(super) fn run(self) -> Reply {
        if !self.upload.waits_for_content() {
            return self.running();
        }
        // Whatever a future takes by value it holds twice.
        let mut call = Box::new(self);
        Reply::Preparing(
            Need::Content,
            Box::pin(async move {
                match call.upload.collect(call.link.request_buffer).await {
                    Ok(()) => call.running(),
                    Err(_) => Reply::Ready(answer::error(Status::BAD_REQUEST)),
                }
            }),
        )
    }

    #[inline]
    fn running(self) -> Reply {
        Reply::Later(Box::pin(Running { call: Some(self), stage: Stage::Begin }))
    }

    /// Begins with it, where nothing has to be waited for.
    #[inline(always)]
    fn begin(&mut self) -> Result<Exchange, Begun> {
        let now = recent_ns();
        let Some(pick) = self.link.upstream.try_pick(&self.routing, now) else {
            return Err(Begun::default());
        };
        if let Some(pool) = self.link.pool(pick.address())
            && let Some(connection) = self.kept(&pool)
        {
            return Ok(Exchange::new(self, connection, pool, Some(pick), now));
        }
        Err(Begun { pick: Some(pick), failure: None })
    }

    #[cold]
    fn until_answered(self, begun: Begun) -> LocalFuture<Response> {
        Box::pin(until_answered(Box::new(self), begun))
    }

    /// Waits for the rest of an answer that has begun.
    fn gather(self, begun: Box<Beginning>) -> LocalFuture<Response> {
        let mut call = Box::new(self);
        Box::pin(async move {
            match call.gathered(*begun).await {
                Ok(reply) => reply.settled().await,
                Err(failure) => {
                    let begun = Begun { failure: Some(failure), ..Begun::default() };
                    until_answered(call, begun).await
                }
            }
        })
    }

    /// The request in messages.
    fn about(&self) -> About {
        About::new(&self.link, self.target.as_str()).counted_as(self.routing.series())
    }

    #[cold]
    fn failure(&self, fault: Fault, pick: Option<Selection>, is_reused: bool) -> Box<Failure> {
        let may_repeat = match fault {
            Fault::Unanswered(_) | Fault::Owed(_) => self.may_repeat || !self.upload.has_begun(),
            // It was not begun with.
            Fault::Answer(AnswerError::Overloaded) | Fault::Unaccepted => true,
            _ => false,
        } && self.upload.is_repeatable();
        // An idle connection that the other end closes at the same moment is nobody's fault; on a new one that is
        // no explanation. A process of a pool may as well have ended, and is left for another.
        let is_unanswered = matches!(fault, Fault::Unanswered(_) | Fault::Owed(_));
        let at_once = match is_unanswered && is_reused && !self.link.upstream.is_pool() {
            true => AtOnce::Coincidence,
            false => AtOnce::Never,
        };
        Box::new(Failure { fault: fault.into(), pick, may_repeat, at_once })
    }

    /// Whether it has switched to what it was asked for, and to nothing else (RFC 9110 section 7.8).
    #[cold]
    fn check_switch(&self, head: &AnswerHead) -> Result<(), Fault> {
        let asked = self.upgrade.as_ref().map_or("", |asked| asked.as_str());
        let is_asked =
            |to: &[u8]| list_elements(asked.as_bytes()).any(|protocol| protocol.eq_ignore_ascii_case(to));
        let to = head.lines.first("upgrade").unwrap_or_default();
        let mut protocols = list_elements(to).peekable();
        if protocols.peek().is_some() && protocols.all(is_asked) {
            return Ok(());
        }
        let to = String::from_utf8_lossy(to).into_owned();
        Err(Fault::Answer(AnswerError::OtherSwitch(to, asked.to_owned())))
    }

    fn stats(&self) -> &Stats {
        &self.link.shared.stats
    }

    fn reader(&self) -> HeadOf {
        match self.dialect {
            Dialect::Http => HeadOf::Http {
                reader: HeadReader::default(),
                method: if self.head_only { "HEAD" } else { "GET" },
                may_switch: self.upgrade.is_some(),
                body: None,
            },
            Dialect::FastCgi => HeadOf::FastCgi {
                decoder: ResponseDecoder::new(REQUEST),
                stdout: Vec::new(),
                complaints: Complaints::default(),
            },
            Dialect::Scgi | Dialect::Cgi => HeadOf::Scgi { stdout: Vec::new(), has_ended: false },
        }
    }

    /// The head of an answer has come that ends with its connection: what is behind it decides how it is passed on.
    async fn gathered(&mut self, begun: Beginning) -> Result<Reply, Box<Failure>> {
        let Beginning { head, mut reader, mut line } = begun;
        let is_reused = line.connection.is_reused();
        if let HeadOf::Scgi { stdout, has_ended } = &mut reader
            && let Err(error) = gather(&line.connection, head.len, stdout, has_ended).await
        {
            return Err(self.failure(Fault::Broken(error), line.pick.take(), is_reused));
        }
        self.answered(head, &mut reader, line, monotonic_ns())
            .map_err(|fault| self.failure(fault, None, is_reused))
    }

    /// The answer of this server to a local redirect.
    fn elsewhere(&mut self, head: &AnswerHead) -> Option<Reply> {
        let path = String::from_utf8_lossy(head.local_redirect()?).into_owned();
        let elsewhere = self.elsewhere.take()?;
        Some(Reply::Later(Box::pin(async move { elsewhere.answer(&path).await })))
    }

    /// The head of an answer has come; `now` is monotonic, nanoseconds.
    fn answered(
        &mut self,
        mut head: AnswerHead,
        reader: &mut HeadOf,
        mut line: Checkout,
        now: u64,
    ) -> Result<Reply, Fault> {
        if head.status == Status::NOT_MODIFIED && !self.is_conditional {
            return Err(Fault::Answer(AnswerError::UnaskedNotModified));
        }
        self.link.own_cookies.take_out_of(&mut head.lines);
        let cookie = line.pick.as_mut().and_then(|pick| pick.answered(&self.link.upstream, &self.routing));
        if let Some(cookie) = cookie {
            head.lines.push("Set-Cookie", &cookie);
        }
        if let Some(back) = self.back.as_ref().filter(|_| head.leads) {
            back.apply(&mut head.lines);
        }
        let has_body = head.status.has_body() && !self.head_only;
        if head.is_switch {
            let HeadOf::Http { reader, .. } = reader else {
                return Err(Fault::Answer(AnswerError::UnaskedSwitch));
            };
            self.check_switch(&head)?;
            return Ok(Reply::Ready(tunnel::open(head, reader.take_rest(), line, self.link.timeout)));
        }
        let len = head.len.filter(|_| has_body);
        if let Some((content, may_keep)) = reader.take_whole(len) {
            self.let_go(line, may_keep, now);
            return Ok(self.complete(head, content, FieldLines::new()));
        }
        let (mut content, early) = reader.take().into_content(len).map_err(Fault::Answer)?;
        if !content.is_complete() {
            content.is_about(|| self.about());
        }
        let is_sent = self.upload.is_complete();
        // A local redirect has nothing behind its head (RFC 3875 section 6.2.2), whether the end has come or not.
        if content.is_complete() || (head.local_redirect().is_some() && content.ends_with_connection()) {
            content.check_announced().map_err(Fault::Answer)?;
            let trailers = content.take_trailers();
            if is_sent && line.connection.awaits_end_mark() {
                finish(line, content, self.link.timeout);
            } else {
                self.let_go(line, content.may_keep(), now);
            }
            return Ok(self.complete(head, early, trailers));
        }
        if let Some(reply) = self.elsewhere(&head) {
            // By FastCGI the end is a record of its own, which may come later.
            if is_sent {
                finish(line, content, self.link.timeout);
            }
            return Ok(reply);
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
        let about = self.about();
        let mut relay = Relay::new(line, content, upload, early, &self.link, about, self.wants_trailers);
        relay.taken = std::mem::take(&mut self.upload.taken);
        Ok(respond(head, Body::Stream { len, has_trailers: false, stream: Box::new(relay) }))
    }

    /// The application has done its part; `may_keep` where its connection can be used again, `now` as above.
    fn let_go(&self, line: Checkout, may_keep: bool, now: u64) {
        if may_keep && self.upload.is_complete() {
            line.pool.put(line.connection, now);
        }
        drop(line.pick);
    }

    /// All of an answer is here.
    fn complete(&mut self, head: AnswerHead, content: Vec<u8>, trailers: FieldLines) -> Reply {
        if let Some(reply) = self.elsewhere(&head) {
            return reply;
        }
        if self.link.sendfile.is_asked(&head) {
            return self.sendfile(head);
        }
        let body = if !head.status.has_body() || self.head_only {
            announced(head.len)
        } else if self.wants_trailers && !trailers.is_empty() {
            Body::Stream {
                len: None,
                has_trailers: true,
                stream: Box::new(Short { early: content, trailers }),
            }
        } else {
            Body::Bytes(content)
        };
        respond(head, body)
    }

    /// A file in place of what has been answered.
    fn sendfile(&mut self, head: AnswerHead) -> Reply {
        let (link, range, about) = (self.link.clone(), self.range.take(), self.about());
        Reply::Later(Box::pin(async move {
            sendfile::respond(&link.sendfile, head, range.as_deref(), &about).await
        }))
    }
}

impl From<Fault> for attempts::Fault {
    fn from(fault: Fault) -> attempts::Fault {
        use attempts::Fault::{Application, Client, Silent, Unaccepted};
        match fault {
            Fault::Client => Client,
            Fault::Owed(error) => attempts::Fault::Owed(error.to_string()),
            Fault::Silent => Silent,
            Fault::Unaccepted => Unaccepted,
            Fault::Answer(error) => Application(
                match error {
                    AnswerError::Overloaded => GatewayFailure::Overloaded,
                    AnswerError::Truncated => GatewayFailure::Closed,
                    _ => GatewayFailure::Malformed,
                },
                error.to_string(),
            ),
            Fault::Unanswered(error) | Fault::Broken(error) => {
                Application(GatewayFailure::Closed, error.to_string())
            }
        }
    }
}

fn respond(head: AnswerHead, body: Body) -> Reply {
    Reply::Ready(Response { status: head.status, head: Head::Fields(head.lines), body, author: head.author })
}

/// What one attempt has come to.
enum Answered {
    Reply(Reply),
    /// More of it has to be waited for.
    Beginning(Box<Beginning>),
}

/// The head of an answer that ends with its connection.
struct Beginning {
    head: AnswerHead,
    reader: HeadOf,
    line: Checkout,
}

/// One request on a connection, up to the head of its answer. Given up on the way where the client goes: an
/// application is told where its protocol knows how.
struct Exchange {
    /// Gone once it is over.
    connection: Option<Connection>,
    reader: HeadOf,
    pool: Rc<Pool>,
    pick: Option<Selection>,
    is_reused: bool,
    is_sending: bool,
    /// Monotonic, nanoseconds; later by what the client has let the application wait for its content.
    began: u64,
    /// Since when the client is waited for: monotonic, nanoseconds.
    owed_since: Option<u64>,
    deadline: HeadDeadline,
    /// Of a new connection, until something comes.
    backlog: Option<Box<Backlog>>,
}

impl Exchange {
    /// Inlined, with who calls it, so that it is made where it stays. `began` is monotonic, nanoseconds.
    #[inline(always)]
    fn new(
        call: &mut Call,
        mut connection: Connection,
        pool: Rc<Pool>,
        pick: Option<Selection>,
        began: u64,
    ) -> Exchange {
        if matches!(call.dialect, Dialect::Cgi) {
            connection.expect_end_mark();
        }
        if let Some(pick) = &pick {
            pick.connected(began);
            pick.rename_span(call.upload.unsent());
        }
        Exchange {
            is_reused: connection.is_reused(),
            connection: Some(connection),
            reader: call.reader(),
            pool,
            pick,
            is_sending: true,
            began,
            owed_since: None,
            deadline: HeadDeadline::since(began),
            backlog: None,
        }
    }

    /// Carries it out.
    fn poll(&mut self, cx: &mut Context<'_>, call: &mut Call) -> Poll<Result<Answered, Box<Failure>>> {
        let head = std::task::ready!(self.poll_head(cx, call));
        self.backlog = None;
        Poll::Ready(match head {
            Ok(head) => self.answered(call, head),
            Err(fault) => {
                // Also of one that does not answer: where the time has gone is asked most often then.
                let elapsed = Elapsed::nanos(monotonic_ns().saturating_sub(self.began));
                call.link.took(&call.routing, self.pick.as_ref(), Phase::Application, elapsed);
                self.connection = None;
                Err(call.failure(fault, self.pick.take(), self.is_reused))
            }
        })
    }

    fn answered(&mut self, call: &mut Call, head: AnswerHead) -> Result<Answered, Box<Failure>> {
        let Some(connection) = self.connection.take() else {
            return Err(call.failure(Fault::Client, self.pick.take(), self.is_reused));
        };
        let now = step_ns();
        let elapsed = Elapsed::nanos(now.saturating_sub(self.began));
        call.stats().gateway_delay.record_elapsed(elapsed);
        call.link.took(&call.routing, self.pick.as_ref(), Phase::Application, elapsed);
        if let Some(pick) = &self.pick {
            pick.head_has_come(head.status, now);
        }
        let line = Checkout { connection, pool: self.pool.clone(), pick: self.pick.take() };
        if matches!(self.reader, HeadOf::Scgi { .. }) && call.upload.is_complete() {
            let reader = self.reader.take();
            return Ok(Answered::Beginning(Box::new(Beginning { head, reader, line })));
        }
        let answered = call.answered(head, &mut self.reader, line, now);
        answered.map(Answered::Reply).map_err(|fault| call.failure(fault, None, self.is_reused))
    }

    /// Sends the request and waits for the head of its answer.
    fn poll_head(&mut self, cx: &mut Context<'_>, call: &mut Call) -> Poll<Result<AnswerHead, Fault>> {
        let Call { link, upload, target, interim, .. } = call;
        let Some(connection) = &self.connection else { return Poll::Ready(Err(Fault::Client)) };
        let reader = &mut self.reader;
        let mut is_refused = None;
        // An application that gives up a client who owes it content has not failed.
        let is_owed = self.owed_since.is_some();
        let unanswered = |error| if is_owed { Fault::Owed(error) } else { Fault::Unanswered(error) };
        if let Some(since) = self.owed_since.take() {
            self.began += monotonic_ns().saturating_sub(since);
        }
        if self.is_sending {
            match upload.poll_send(cx, connection) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.is_sending = false,
                Poll::Ready(Err(UploadError::Client(_))) => return Poll::Ready(Err(Fault::Client)),
                // It takes no more of the request: perhaps it has answered already.
                Poll::Ready(Err(UploadError::Application(error))) => {
                    self.is_sending = false;
                    is_refused = Some(error);
                    connection.look_again();
                }
            }
            if upload.taken.is_alive() {
                self.deadline.ends();
                upload.taken.leaves(connection.send_queue_len());
            }
        }
        let is_owing = self.is_sending && upload.waits_for_client();
        // A new connection that is not served may stand behind idle ones, or before nobody.
        let mut is_unattended = false;
        if !connection.is_reused() && reader.is_empty() && !is_owing {
            let backlog = self.backlog.get_or_insert_with(|| Box::new(Backlog::new()));
            is_unattended = backlog.poll_left(cx, self.pool.peer(), self.pick.as_ref()).is_ready();
            if is_unattended {
                connection.look_again(); // who has accepted it has closed it
            }
        }
        loop {
            let mut pushed = Ok(None); // where it is made, not passed on: it is large
            let polled = runtime::with_scratch(|scratch| {
                let room = scratch.len().min(FIRST_READ);
                let polled = connection.poll_recv(cx, &mut scratch[..room]);
                if let Poll::Ready(Ok(count)) = polled {
                    let about = || About::new(link, target.as_str());
                    let (bytes, interim) = (&scratch[..count], interim.as_ref());
                    pushed = reader.push(bytes, || upload.take_memory(), about, interim, &link.own_cookies);
                }
                polled
            });
            match polled {
                Poll::Ready(Ok(0)) => {
                    let end = is_refused.unwrap_or_else(|| {
                        io::Error::other(match reader {
                            HeadOf::Scgi { .. } => {
                                "it has closed the connection without an answer; a script writes at least one field, such \
                                 as `Content-Type: text/plain`, and an empty line"
                            }
                            _ => "it has closed the connection without an answer",
                        })
                    });
                    return Poll::Ready(Err(if reader.is_empty() {
                        unanswered(end)
                    } else {
                        Fault::Answer(AnswerError::Truncated)
                    }));
                }
                Poll::Ready(Ok(_)) => match pushed {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => self.deadline.ends(),
                    Err(error) => return Poll::Ready(Err(Fault::Answer(error))),
                },
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(if reader.is_empty() {
                        unanswered(error)
                    } else {
                        Fault::Broken(error)
                    }));
                }
                Poll::Pending => break,
            }
        }
        if let Some(error) = is_refused {
            return Poll::Ready(Err(unanswered(error)));
        }
        if is_unattended && reader.is_empty() {
            return Poll::Ready(Err(Fault::Unaccepted));
        }
        if is_owing {
            self.deadline.ends(); // the client has a deadline of its own
            self.owed_since = Some(monotonic_ns());
            return Poll::Pending;
        }
        while self.deadline.poll(cx, &link.head_deadlines).is_ready() {
            if !upload.taken.has_drained(|| connection.send_queue_len()) {
                return Poll::Ready(Err(Fault::Silent));
            }
            self.deadline.ends();
        }
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // In the middle of the request the record would be taken for a part of it.
        if !self.is_sending
            && let Some(connection) = self.connection.take()
            && let HeadOf::FastCgi { decoder, .. } = self.reader.take()
        {
            abandon(connection, decoder);
        }
    }
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
