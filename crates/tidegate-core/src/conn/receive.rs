//! Reading: bytes to requests, requests to the engine, content to whoever takes it.

use super::content::Incoming;
use super::decide::{Decision, Outcome, RequestHead};
use super::preface::{FirstBytes, judge_first_bytes};
use super::send::{Output, Told};
use super::{
    Connection, DECODED_BY_REQUEST, DECODED_PER_TURN, Request, Timer, Work, faults, is_https, kind_of,
};
use crate::admission::Admitted;
use crate::answer;
use crate::batch::Batch;
use crate::context::Ctx;
use crate::interim::{Interim, InterimQueue};
use crate::log::{self, EntryFields, Sink};
use crate::rate::Held;
use crate::reply::{Need, Reply};
use crate::response::Response;
use std::io;
use std::task::{Context, Poll};
use tidegate_http::{Fields, Method, Status, Version};
use tidegate_io::clock::step_ns;
use tidegate_io::{Key, runtime};
use tidegate_stats::series::{RequestKind, SeriesId};
use tidegate_wire::h1::{self, BodyDecoder, BodyLength, FieldSpace, HeadScanner};

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
        let is_ready = self.is_ready_for_more();
        let Some((input, scanner)) = self.input.with_known() else { return Ok(0) };
        // A head that comes byte by byte is not read again for each of them.
        if is_ready && !scanner.needs_parse(input, &cx.head_limits) {
            return Ok(0);
        }
        let mut held = std::mem::take(&mut self.input);
        let used = self.consume(key, cx, &held)?;
        if used < held.len() {
            held.remove_front(used);
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
        let is_known = self.is_free() && cx.decoded < DECODED_PER_TURN;
        let Some((input, scanner)) = self.input.with_known() else { return };
        *scanner = HeadScanner::new();
        if is_known {
            scanner.needs_parse(input, &cx.head_limits);
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
            if !self.is_ready_for_more() || !self.keep_alive || cx.decoded >= DECODED_PER_TURN {
                break;
            }
            let mut space = FieldSpace::new();
            match h1::parse_request(&data[at..], &cx.head_limits, &mut space) {
                Ok(Some(head)) => {
                    at += head.len;
                    cx.decoded += DECODED_BY_REQUEST;
                    self.begin(key, cx, &head, at == data.len())?;
                }
                Ok(None) => break,
                Err(error) => {
                    if at == 0 && self.may_become_h2(cx) {
                        match judge_first_bytes(data) {
                            FirstBytes::Http1 => {}
                            FirstBytes::Http2 => {
                                self.begin_h2(cx);
                                self.take_first_frames(cx, data)?;
                                return Ok(data.len());
                            }
                            FirstBytes::Unknown => {
                                cx.stats.parse_errors.add(faults::kind_of(error), 1);
                                let peer = self.peer;
                                log::info(format_args!(
                                    "no answer for {peer}, which speaks no HTTP: {error}"
                                ));
                                return Err(io::ErrorKind::InvalidData.into());
                            }
                        }
                    }
                    cx.stats.parse_errors.add(faults::kind_of(error), 1);
                    self.count_unread(cx, Status(error.status()));
                    log::info(format_args!("{} for {}: {error}", error.status(), self.peer));
                    // Who asks for the head alone gets it, however the rest of the request reads (RFC 9110 section 9.3.2).
                    let request = data[at..].trim_ascii_start(); // behind empty lines
                    let head_only = request.starts_with(b"HEAD ");
                    (self.unread, at) = (true, data.len());
                    self.refuse(cx, Status(error.status()), Some(&error.to_string()), head_only)?;
                    break;
                }
            }
        }
        self.flush_batch()?;
        Ok(at)
    }

    /// A complete head: decide, answer, and set up what is left of it. Not a part of [`Connection::consume`], whose loops
    /// over bytes and fields would find no register free.
    #[inline(never)]
    fn begin(
        &mut self,
        key: Key,
        cx: &mut Ctx,
        head: &h1::RequestHead<'_, '_>,
        is_last: bool,
    ) -> io::Result<()> {
        let engine = cx.engine.clone();
        self.count_request(cx);
        let may_stay = head.keep_alive;
        if self.timer == Timer::Head {
            self.timer = Timer::Off; // the deadline was this head's; the next one gets its own
        }
        let method = Method::from_token(head.method);
        let version = if head.version == h1::Version::Http10 { Version::Http10 } else { Version::Http11 };
        let request = Request {
            kind: kind_of(method, version),
            version,
            expects_continue: head.expects_continue,
            is_upgrade: false,
            ends_with_client: false,
            series: SeriesId::NONE,
            listener: self.listener,
            started: step_ns(),
            received: head.len as u64,
            discard_size: 0,
        };
        cx.admission.on_request(request.started);
        let (decoder, content_length) = match head.body {
            BodyLength::Empty | BodyLength::Length(0) => (None, None),
            BodyLength::Length(len) => (Some(BodyDecoder::new(head.body, cx.head_limits)), Some(len)),
            _ => (Some(BodyDecoder::new(head.body, cx.head_limits)), None),
        };
        let expects_continue = head.expects_continue;
        let head = RequestHead {
            version: request.version,
            method,
            method_token: head.method,
            target: head.target,
            scheme: None,
            authority: head.host.unwrap_or(""),
            fields: Fields::new(head.fields),
            protocol: None,
            has_content: decoder.is_some(),
            content_length,
            refused: None,
            size: request.received as usize,
            started: request.started,
        };
        let mut entry = head.entry();
        let decision = self.decide(cx, &engine, &head, &mut entry);
        let Decision { reply, outcome, content_sink, content, account, is_exempt, log: sink, .. } = decision;
        let Decision { ends_with_client, interim, signals, tls, identity, trace, limits, held, .. } =
            decision;
        let Decision { series, about, .. } = decision;
        (entry.tls, entry.identity, entry.trace) = (tls.as_ref(), identity.as_ref(), trace.as_ref());
        self.goes_by(limits);
        self.keep_alive =
            may_stay && !cx.draining && !self.is_last_request(&engine.settings.limits.request, cx.now);
        // Our decision, which the client learns from the answer: it may have sent more by then.
        if may_stay && !self.keep_alive {
            self.unread = true;
            cx.stats.keep_alive_refusals.add(1);
        }
        match outcome {
            Outcome::Answered => {}
            Outcome::TooLarge => (self.keep_alive, self.unread) = (false, true),
            // Opening a connection anew would cost both sides more than the answer.
            Outcome::TurnedAway => {
                if decoder.is_some() || !matches!(self.entry, Admitted::Plain | Admitted::Counted) {
                    cx.stats.keep_alive_refusals.add(self.keep_alive.into());
                    (self.keep_alive, self.unread) = (false, decoder.is_some() || !is_last);
                }
            }
        }
        let kind = request.kind.with_https(is_https(entry.scheme));
        let request = Request { kind, ends_with_client, series, ..request };
        // Answered, and nothing is left of it: the usual request ends here.
        if decoder.is_none()
            && held.as_ref().is_none_or(|held| !held.is_paced())
            && let Reply::Ready(response) = reply
        {
            return self.respond_inline(cx, response, request, is_last, sink, &entry, held);
        }
        let is_read_off = content_length.is_none() && !expects_continue;
        if let Some(sink) = content_sink.as_ref().filter(|_| is_read_off) {
            sink.is_read_off(self.limits(&engine).discard_size);
        }
        let reply = match content {
            Some(content) if is_read_off => {
                let read = async move {
                    content.read_off().await;
                    reply
                };
                Reply::Preparing(Need::Content, Box::pin(read))
            }
            left => {
                drop(left); // nobody reads what the handler has left
                reply
            }
        };
        // A future that is ready at once takes the inline path, so that pipelined answers still leave in
        // one write.
        let mut later = None;
        let ready = match reply {
            Reply::Ready(response) => Some(response),
            waiting => {
                let waiting = later.insert(cx.admission.later(waiting, account, is_exempt));
                waiting.hears(signals);
                waiting.traces(trace.as_ref());
                let polled = waiting.poll(&mut Context::from_waker(&runtime::waker(key)), false);
                if let Some(interim) = &interim {
                    push_interim(cx, interim, &mut self.batch);
                }
                match polled {
                    Poll::Ready(response) => {
                        cx.admission.on_answer(&response, || Some(entry));
                        later = None;
                        Some(response)
                    }
                    Poll::Pending => None,
                }
            }
        };
        let incoming =
            decoder.and_then(|decoder| self.receive_content(cx, decoder, content_sink, about, &request));
        if incoming.is_none()
            && held.as_ref().is_none_or(|held| !held.is_paced())
            && let Some(response) = ready
        {
            return self.respond_inline(cx, response, request, is_last, sink, &entry, held);
        }
        let record = cx.capture(&entry, sink, later.is_some());
        let mut output = match later {
            Some(later) => Output::later(later),
            None => Output::unbegun(),
        };
        // Content that has come with its head may be what is waited for.
        output.framing.was_asked = output.is_awaited() && incoming.is_none();
        let output = Some(output);
        self.work = Some(cx.works.boxed(Work { request, output, incoming, interim, record, held }));
        self.flush_batch()?; // from here on the request is not lost where that fails
        match ready {
            Some(response) => self.respond(cx, response),
            None => self.invite(cx),
        }
    }

    /// Counts a request that has come.
    #[inline]
    pub(super) fn count_request(&mut self, cx: &Ctx) {
        cx.stats.requests.add(1);
        if self.served > 0 {
            cx.stats.keep_alive_hits.add(1);
        }
        self.served = self.served.saturating_add(1);
    }

    /// A request that cannot be read belongs to no site: it counts where its line of the log goes.
    pub(super) fn count_unread(&self, cx: &Ctx, status: Status) {
        if let Some(site) = cx.engine.site_for(cx.engine.place_of(self.listener), "") {
            site.count_unread(self.peer, status);
        }
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
        let kind = if head_only { kind_of(Method::Head, Version::Http11) } else { RequestKind::UNKNOWN };
        let request = Request {
            kind: kind.with_https(self.transport.is_tls()),
            version: Version::Http11,
            expects_continue: false,
            is_upgrade: false,
            ends_with_client: false,
            series: SeriesId::NONE,
            listener: self.listener,
            started: step_ns(),
            received: 0,
            discard_size: 0,
        };
        let entry = log::AccessRecord {
            client: self.peer,
            scheme: if self.transport.is_tls() { "https" } else { "http" },
            method: "-",
            target: "-",
            authority: "",
            version: Version::Http11,
            referer: &[],
            user_agent: &[],
            tls: None,
            identity: None,
            trace: None,
            fields: EntryFields::Kept(&[]),
        };
        let engine = cx.engine.clone();
        let sink = engine.site_for(engine.place_of(self.listener), "").and_then(|site| site.access_log);
        self.respond_inline(cx, response, request, true, sink, &entry, None)?;
        self.flush_batch()
    }

    #[expect(clippy::too_many_arguments, reason = "what is known of a request")]
    #[inline]
    fn respond_inline(
        &mut self,
        cx: &mut Ctx,
        response: Response,
        request: Request,
        is_last: bool,
        sink: Option<Sink>,
        entry: &log::AccessRecord<'_>,
        held: Option<Held>,
    ) -> io::Result<()> {
        if held.as_ref().is_some_and(|held| held.on_answer(response.status)) {
            return self.sever(cx, response.status, &request, Told::AtHand(sink, entry));
        }
        if let Some(mut output) = self.start_and_count(cx, response, &request, is_last, sink, entry)? {
            let record = cx.capture(entry, sink, false);
            let incoming = output.take_tunnel().map(|sink| Box::new(Incoming::Tunnel(sink)));
            let (output, interim) = (Some(output), None);
            self.work = Some(cx.works.boxed(Work { request, output, incoming, interim, record, held }));
        }
        Ok(())
    }
}

/// Appends what is to be told before the answer: nothing, most often.
#[inline]
pub(super) fn push_interim(cx: &Ctx, queue: &InterimQueue, batch: &mut Batch) {
    if !queue.is_empty() {
        push_all_interim(cx, queue, batch);
    }
}

#[cold]
fn push_all_interim(cx: &Ctx, queue: &InterimQueue, batch: &mut Batch) {
    while let Some(Interim { status, lines }) = queue.pop() {
        cx.stats.responses.add(status.0);
        h1::encode_interim(batch, status.0, status.reason(), lines.as_bytes());
    }
}
