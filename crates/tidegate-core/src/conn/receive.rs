//! Reading: bytes to requests, requests to the engine, content to whoever takes it.

use super::preface::is_meant_for_http1;
use super::send::Output;
use super::{Connection, Request, Timer, Work, faults};
use crate::admission::{Account, Entry};
use crate::answer;
use crate::batch::Batch;
use crate::body::{self, RequestBody};
use crate::context::Ctx;
use crate::engine::Engine;
use crate::exchange::{Exchange, ExchangeContext, Wishes};
use crate::https::Arrival;
use crate::interim::{Interim, InterimQueue};
use crate::log::{self, EntryFields, Sink};
use crate::remote::Remote;
use crate::reply::Reply;
use crate::response::Response;
use crate::site::Site;
use std::io;
use std::task::{Context, Poll};
use tidegate_http::{Fields, Method, Status, Target, Version};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::text::ascii;
use tidegate_io::{Key, runtime};
use tidegate_stats::ParseError;
use tidegate_wire::h1::{self, BodyDecoder, BodyLength, FieldSpace, HeadScanner, RequestHead};

/// A request whose target has been understood.
pub(super) struct Located<'a> {
    pub path: &'a str,
    pub query: Option<&'a str>,
}

impl Connection {
    /// Enough is held that cannot be worked on yet: the rest stays in the kernel.
    pub(super) fn is_backed_up(&self, cx: &Ctx) -> bool {
        !self.is_free() && !self.input.is_empty() && self.input.len() >= cx.head_limits.head_size
    }

    pub(super) fn accept_bytes(&mut self, key: Key, cx: &mut Ctx, new: &[u8]) -> io::Result<()> {
        if self.input.is_empty() {
            let used = self.consume(key, cx, new)?;
            if used < new.len() {
                self.input.extend_from_slice(&new[used..]);
                self.begin_scan(cx);
            }
            return Ok(());
        }
        self.input.extend_from_slice(new);
        self.work_off_input(key, cx).map(drop)
    }

    /// Takes what it can of the input that is held. Returns the bytes used.
    pub(super) fn work_off_input(&mut self, key: Key, cx: &mut Ctx) -> io::Result<usize> {
        // A head that comes byte by byte is not read again for each of them.
        if self.input.is_empty()
            || (self.is_ready_for_more() && !self.scanner.needs_parse(&self.input, &cx.head_limits))
        {
            return Ok(0);
        }
        let mut held = std::mem::take(&mut self.input);
        let used = self.consume(key, cx, &held)?;
        if used < held.len() {
            held.drain(..used);
            self.input = held;
            if used > 0 {
                self.begin_scan(cx);
            }
        }
        Ok(used)
    }

    /// The input begins with something else than before: a head that was read as far as it goes, or what is
    /// not its turn yet and has not been looked at.
    fn begin_scan(&mut self, cx: &Ctx) {
        self.scanner = HeadScanner::new();
        if self.is_free() {
            self.scanner.needs_parse(&self.input, &cx.head_limits);
        }
    }

    /// Takes complete requests, and content, until the input ends or a response cannot be finished at
    /// once. Returns the bytes used.
    fn consume(&mut self, key: Key, cx: &mut Ctx, data: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while at < data.len() {
            if self.is_receiving() {
                let used = self.feed(cx, &data[at..])?;
                at += used;
                if self.is_receiving() {
                    break;
                }
                continue;
            }
            if !self.is_ready_for_more() || !self.keep_alive {
                break;
            }
            let mut space = FieldSpace::new();
            match h1::parse_request(&data[at..], &cx.head_limits, &mut space) {
                Ok(Some(head)) => {
                    at += head.len;
                    self.begin(key, cx, &head, at == data.len())?;
                }
                Ok(None) => break,
                Err(_) if at == 0 && self.may_become_h2(cx) && !is_meant_for_http1(data) => {
                    self.begin_h2(cx);
                    self.take_first_frames(cx, data)?;
                    return Ok(data.len());
                }
                Err(error) => {
                    cx.stats.parse_errors.add(faults::kind_of(error), 1);
                    // Who asks for the head alone gets it, however the rest of the request reads (RFC 9110 section 9.3.2).
                    let head_only = data[at..].starts_with(b"HEAD ");
                    (self.unread, at) = (true, data.len());
                    self.refuse(cx, Status(error.status()), Some(&error.to_string()), head_only)?;
                    break;
                }
            }
        }
        self.flush_batch()?;
        Ok(at)
    }

    /// A complete head: decide, answer, and set up what is left of it.
    fn begin(&mut self, key: Key, cx: &mut Ctx, head: &RequestHead<'_, '_>, is_last: bool) -> io::Result<()> {
        let engine = cx.engine.clone();
        let limits = &engine.settings.limits;
        cx.stats.requests.add(1);
        if self.served > 0 {
            cx.stats.keep_alive_hits.add(1);
        }
        self.served = self.served.saturating_add(1);
        self.keep_alive = head.keep_alive
            && !cx.draining
            && !matches!(self.entry, Entry::Reserved(_))
            && limits.keep_alive_requests.is_none_or(|most| self.served < most);
        // Our decision, which the client learns from the answer: it may have sent more by then.
        if head.keep_alive && !self.keep_alive {
            self.unread = true;
            cx.stats.keep_alive_refusals.add(1);
        }
        if self.timer == Timer::Head {
            self.timer = Timer::Off; // the deadline was this head's; the next one gets its own
        }
        let request = Request {
            head_only: head.method == "HEAD",
            version: if head.version == h1::Version::Http10 { Version::Http10 } else { Version::Http11 },
            expects_continue: head.expects_continue,
            is_upgrade: false,
            ends_with_client: false,
            started: monotonic_ns(),
            received: head.len as u64,
        };
        cx.admission.on_request(request.started);
        let fields = Fields::new(head.fields);
        let method = Method::from_token(head.method);

        let (decoder, len) = match head.body {
            BodyLength::Empty | BodyLength::Length(0) => (None, None),
            BodyLength::Length(len) => (Some(BodyDecoder::new(head.body, cx.head_limits)), Some(len)),
            _ => (Some(BodyDecoder::new(head.body, cx.head_limits)), None),
        };
        let made = self.transport.handshake().cloned(); // for the access line; nothing on a plain connection
        let authority = head.host.and_then(ascii).unwrap_or("");
        let site = engine.site_for(usize::from(self.listener), authority);
        let remote = site.map_or(Remote::direct(self.peer), |site| site.remote(self.peer, &fields));
        let mut entry = log::Entry {
            client: remote.client,
            method: head.method,
            target: head.target,
            authority,
            version: request.version,
            referer: &[],
            user_agent: &[],
            tls: None,
            fields: EntryFields::All(fields),
        };
        let mut path_buffer = std::mem::take(&mut cx.path_buffer);
        let located = locate(method, head.target);
        let sink = site.and_then(|site| site.access_log);
        if sink.is_some() {
            entry.referer = fields.first("referer").unwrap_or(&[]);
            entry.user_agent = fields.first("user-agent").unwrap_or(&[]);
            entry.tls = made.as_ref();
        }

        let is_early = self.transport.is_early();
        let (mut content_sink, mut is_exempt) = (None, false);
        let mut account = 0;
        let mut wishes = Wishes::of_client(request.version);
        let reply = match (site, located) {
            _ if len.is_some_and(|len| len > limits.body_size) => {
                (self.keep_alive, self.unread) = (false, true);
                cx.stats.parse_errors.add(ParseError::BodyTooLarge, 1);
                Reply::Ready(answer::error(Status::CONTENT_TOO_LARGE))
            }
            (_, Err(Unlocated::Server)) => Reply::Ready(answer::options_of_the_server()),
            (_, Err(Unlocated::Refused(status))) => Reply::Ready(answer::error(status)),
            (None, _) => Reply::Ready(answer::error(Status::NOT_FOUND)),
            _ if self.is_misdirected(&engine, entry.authority) => {
                Reply::Ready(answer::error(Status::MISDIRECTED_REQUEST))
            }
            _ if is_early && !method.is_safe() => Reply::Ready(answer::error(Status::TOO_EARLY)),
            (Some(site), Ok(located))
                if let Some(response) = self.entrance(&engine, site, &entry, &located) =>
            {
                Reply::Ready(response)
            }
            (Some(site), Ok(located)) => match site.path_of(located.path, &mut path_buffer) {
                Err(error) => Reply::Ready(answer::error(error.status())),
                Ok((path, _)) if self.is_turned_away(cx, &engine, site, path) => {
                    // Opening a connection anew would cost both sides more than the answer.
                    if decoder.is_some() || !matches!(self.entry, Entry::Plain | Entry::Counted) {
                        cx.stats.keep_alive_refusals.add(self.keep_alive.into());
                        (self.keep_alive, self.unread) = (false, decoder.is_some() || !is_last);
                    }
                    Reply::Ready(cx.admission.busy())
                }
                Ok((path, has_encoded_slash)) => {
                    let content = decoder.is_some().then(|| {
                        let (sink, content) = body::pipe(len);
                        content_sink = Some(sink);
                        content
                    });
                    let mut exchange = Exchange {
                        method,
                        method_token: head.method,
                        target: head.target,
                        path,
                        query: located.query,
                        scheme: if self.transport.is_tls() { "https" } else { "http" },
                        authority,
                        fields,
                        protocol: None,
                        version: request.version,
                        remote,
                        tls: self.transport.handshake(),
                        is_early,
                        now: cx.now,
                        started: request.started,
                        body: content,
                        context: ExchangeContext::new(self.transport.stream(), &self.local, site, &wishes)
                            .with_encoded_slash(has_encoded_slash),
                    };
                    let reply = engine.handle(site, &mut exchange);
                    if sink.is_some() {
                        entry.client = exchange.remote.client;
                    }
                    if !matches!(reply, Reply::Ready(_)) {
                        is_exempt = engine.always_answers(site, path);
                        account = site.account();
                    }
                    match (reply, exchange.body.take()) {
                        // What has chunks may turn out to be no request at all, or so long that the answer has to
                        // say that the connection ends.
                        (Reply::Ready(response), Some(content))
                            if len.is_none() && !head.expects_continue =>
                        {
                            let answer = once_read(response, content, limits.discard_size);
                            Reply::Preparing(Box::pin(async move { Reply::Ready(answer.await) }))
                        }
                        (reply, _) => reply,
                    }
                }
            },
        };
        cx.path_buffer = path_buffer;

        let request = Request { ends_with_client: wishes.abandons(), ..request };
        let interim = wishes.take_interim();
        // A future that is ready at once takes the inline path, so that pipelined answers still leave in
        // one write.
        let ready = match reply {
            Reply::Ready(response) => Ok(response),
            waiting => {
                let account = Account { site: account, upstream: wishes.upstream(), peer: remote.client };
                let mut later = cx.admission.later(waiting, account, is_exempt).hearing(wishes.late());
                let polled = later.poll(&mut Context::from_waker(&runtime::waker(key)), false);
                if let Some(interim) = &interim {
                    push_interim(cx, interim, &mut self.batch);
                }
                match polled {
                    Poll::Ready(response) => Ok(response),
                    Poll::Pending => Err(later),
                }
            }
        };
        let incoming = decoder.and_then(|decoder| self.receive_content(cx, decoder, content_sink, &request));
        let ready = match ready {
            Ok(response) if incoming.is_none() => {
                return self.respond_inline(cx, response, request, is_last, sink, &entry);
            }
            ready => ready,
        };
        let record = sink.map(|sink| cx.log.capture(&entry, sink));
        let (output, response) = match ready {
            Ok(response) => (Output::unbegun(), Some(response)),
            Err(later) => (Output::later(later), None),
        };
        self.work = Some(Box::new(Work { request, output: Some(output), incoming, interim, record }));
        self.flush_batch()?; // from here on the request is not lost where that fails
        match response {
            Some(response) => self.respond(cx, response),
            None => self.invite(cx),
        }
    }

    /// What answers in the place of the site, on a plain connection.
    #[inline]
    pub(super) fn entrance(
        &self,
        engine: &Engine,
        site: &Site,
        entry: &log::Entry<'_>,
        located: &Located<'_>,
    ) -> Option<Response> {
        if self.transport.is_tls() {
            return None;
        }
        let Located { path, query } = *located;
        engine.entrance(site, &Arrival { listener: self.listener, authority: entry.authority, path, query })
    }

    /// The site asks other things of its clients than the one that this connection was made to.
    #[inline]
    pub(super) fn is_misdirected(&self, engine: &Engine, authority: &str) -> bool {
        let handshake = self.transport.handshake();
        handshake.is_some_and(|made| !engine.admits_on(made, usize::from(self.listener), authority))
    }

    /// Whether the server is too busy for a request. The status page is always served, and only that to who
    /// was let in for it.
    #[inline]
    pub(super) fn is_turned_away(&self, cx: &mut Ctx, engine: &Engine, site: &Site, path: &[u8]) -> bool {
        let why = if let Entry::Reserved(why) = self.entry { Some(why) } else { None };
        if (why.is_none() && !cx.admission.may_shed_request()) || engine.always_answers(site, path) {
            return false;
        }
        let Some(why) = why else {
            let is_shed = cx.admission.sheds_request();
            cx.stats.requests_shed.add(is_shed.into());
            return is_shed;
        };
        cx.stats.connections_refused.add(1);
        cx.stats.connection_refusals.add(why, 1);
        true
    }

    /// Answers for the server itself, in place of whatever was being made, and closes. `head_only` is for a request that
    /// could not be read.
    pub(super) fn refuse(
        &mut self,
        cx: &mut Ctx,
        status: Status,
        why: Option<&str>,
        head_only: bool,
    ) -> io::Result<()> {
        self.keep_alive = false;
        let response = match why {
            Some(why) => answer::explained(status, &answer::sentence(why)),
            None => answer::error(status),
        };
        if let Some(work) = &mut self.work {
            work.incoming = None;
            work.output = Some(Output::unbegun());
            return self.respond(cx, response);
        }
        cx.stats.requests_unread.add(1);
        let request = Request {
            head_only,
            version: Version::Http11,
            expects_continue: false,
            is_upgrade: false,
            ends_with_client: false,
            started: monotonic_ns(),
            received: 0,
        };
        let entry = log::Entry {
            client: self.peer,
            method: "-",
            target: "-",
            authority: "",
            version: Version::Http11,
            referer: &[],
            user_agent: &[],
            tls: None,
            fields: EntryFields::Kept(&[]),
        };
        let engine = cx.engine.clone();
        let sink = engine.site_for(usize::from(self.listener), "").and_then(|site| site.access_log);
        self.respond_inline(cx, response, request, true, sink, &entry)?;
        self.flush_batch()
    }

    #[inline]
    fn respond_inline(
        &mut self,
        cx: &mut Ctx,
        response: Response,
        request: Request,
        is_last: bool,
        sink: Option<Sink>,
        entry: &log::Entry<'_>,
    ) -> io::Result<()> {
        if let Some(mut output) = self.start_and_count(cx, response, &request, is_last, sink, entry)? {
            let record = sink.map(|sink| cx.log.capture(entry, sink));
            let incoming = output.take_tunnel();
            self.work =
                Some(Box::new(Work { request, output: Some(output), incoming, interim: None, record }));
        }
        Ok(())
    }
}

/// Appends what is to be told before the answer.
pub(super) fn push_interim(cx: &Ctx, queue: &InterimQueue, batch: &mut Batch) {
    while let Some(Interim { status, lines }) = queue.pop() {
        cx.stats.responses.add(status.0);
        h1::encode_interim(batch, status.0, status.reason(), lines.as_bytes());
    }
}

/// Why a target leads to no path.
pub(super) enum Unlocated {
    /// `OPTIONS *`.
    Server,
    Refused(Status),
}

/// RFC 9112 section 3.2. The codec has settled which authority counts.
#[inline]
pub(super) fn locate(method: Method, target: &str) -> Result<Located<'_>, Unlocated> {
    match Target::parse(method, target) {
        Ok(Target::Asterisk) => Err(Unlocated::Server),
        Ok(Target::Authority(_)) => Err(Unlocated::Refused(Status::NOT_IMPLEMENTED)),
        Err(_) => Err(Unlocated::Refused(Status::BAD_REQUEST)),
        Ok(target) => match target.path() {
            Some(path) => Ok(Located { path, query: target.query() }),
            None => Err(Unlocated::Server), // `OPTIONS http://host` is `OPTIONS *`, section 3.2.4
        },
    }
}

/// An answer to a request with content in chunks that nobody reads: given once that is complete, or more than is
/// read for nothing. So who sends a malformed chunk hears 400 and nothing before.
async fn once_read(response: Response, mut content: RequestBody, most: u64) -> Response {
    let (mut bytes, mut read) = (Vec::new(), 0u64);
    while let Ok(count @ 1..) = content.read(&mut bytes).await {
        read = read.saturating_add(count as u64);
        if read > most {
            break;
        }
        bytes.clear();
    }
    response
}
