//! What one client does on one connection after the other: requests, how it behaves while they are answered, and
//! how long it is silent between them. Generated from the seed, before anything is sent.

use std::time::Duration;

use super::answer::Expected;
use super::content::Nonce;
use super::generator::Generator;
use super::origin::Origin;
use super::plan::{AnswerPlan, Framing};
use super::settings::{Listener, Plan, Target};

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) host: String,
    /// Path and query.
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    /// What is sent with it.
    pub(super) upload: Option<(Nonce, u64)>,
    /// The upload is in chunks, where the protocol has them.
    pub(super) is_chunked: bool,
    /// A field `X-End` with this nonce follows it, where the protocol has a place for it.
    pub(super) trailer: Option<Nonce>,
    pub(super) expected: Expected,
}

/// How a client behaves while a batch is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientBehaviour {
    /// It reads as fast as it can.
    Honest,
    /// It reads so many bytes at a time and rests between them; when the time is over it leaves.
    Slow { bytes: usize, pause: Duration, time: Duration },
    /// It stops reading once, for a while, behind so many bytes.
    Pause { after: u64, time: Duration },
    /// It leaves behind so many bytes of answers.
    Abort { after: u64, is_reset: bool },
    /// It leaves in the middle of the request.
    Unfinished { is_reset: bool },
    /// It asks, reads nothing for a while and leaves.
    NeverRead { time: Duration },
    /// It says that it will send nothing more, and reads on.
    HalfClose,
    /// It resets so many of a hundred streams, each behind a few bytes (HTTP/2).
    ResetStreams { percent: u64 },
}

/// Requests that are sent at once.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) conduct: ClientBehaviour,
    /// Silence behind it.
    pub(super) gap: Duration,
}

/// All that a client does.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// Index of the listener.
    pub(super) listener: usize,
    pub(super) is_http2: bool,
    pub(super) origin: Origin,
    pub(super) start: Duration,
    pub(super) receive_buffer: Option<usize>,
    /// Of each stream and of the connection (HTTP/2).
    pub(super) window: u32,
    pub(super) batches: Vec<Batch>,
    /// For what is decided while it is played.
    pub(super) random: Generator,
}

/// Clients that play at the same time.
pub(super) struct Wave {
    pub(super) crowd: Crowd,
    pub(super) sessions: Vec<Session>,
}

/// What most clients of a wave do. Crowds that do the same find what a mixture of everything hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowd {
    /// Everything.
    Mixed,
    /// Short requests to one application, many clients.
    Burst(usize),
    /// Many requests at once on few connections, answers that do not fit into a socket.
    Multiplexed,
    /// Readers that are slow but steady.
    SlowReaders,
    /// Clients that ask one application for all they can and read nothing.
    Greedy(usize),
}

/// The sessions of one wave.
pub(super) fn wave(plan: &Plan, random: &mut Generator, first_number: u64) -> Wave {
    let mut crowds = vec![
        (6, Crowd::Mixed),
        (3, Crowd::Multiplexed),
        (if plan.limits.is_quick { 3 } else { 0 }, Crowd::SlowReaders),
    ];
    for application in 0..plan.applications.len() {
        crowds.push((1, Crowd::Burst(application)));
        if plan.limits.is_tight {
            crowds.push((3, Crowd::Greedy(application)));
        }
    }
    let crowd = random.weighted(&crowds);
    let clients = match crowd {
        Crowd::Mixed => random.between(8, 48),
        Crowd::Burst(_) => random.between(16, 64),
        Crowd::Multiplexed => random.between(3, 16),
        Crowd::SlowReaders => random.between(4, 16),
        Crowd::Greedy(_) => random.between(8, 16),
    };
    let session = |client| {
        Author { plan, crowd, random: random.fork(client), number: first_number + client * 4096 }.session()
    };
    Wave { crowd, sessions: (0..clients).map(session).collect() }
}

/// Writes one session.
struct Author<'a> {
    plan: &'a Plan,
    crowd: Crowd,
    random: Generator,
    number: u64,
}

impl Author<'_> {
    fn session(mut self) -> Session {
        let plan = self.plan;
        let multiplexing: Vec<usize> = plan.indices(Listener::speaks_http2);
        let any: Vec<usize> = plan.indices(|_| true);
        let wants_http2 = match self.crowd {
            Crowd::Multiplexed => 85,
            Crowd::Greedy(_) => 90,
            _ => 40,
        };
        let is_http2 = !multiplexing.is_empty() && self.random.chance(wants_http2);
        let listener = self.random.pick(if is_http2 { &multiplexing } else { &any });
        let origin = self.random.pick(plan.listeners[listener].origins());
        let batches = match self.crowd {
            Crowd::Burst(_) => self.random.between(2, 8),
            Crowd::SlowReaders | Crowd::Greedy(_) => 1,
            _ => self.random.between(1, 5),
        };
        let receive_buffer = match self.crowd {
            Crowd::SlowReaders => self.random.pick(&[None, Some(8 << 10), Some(64 << 10)]),
            _ => self.random.weighted(&[(6, None), (1, Some(4 << 10)), (1, Some(64 << 10))]),
        };
        let window = match self.crowd {
            Crowd::Greedy(_) => self.random.pick(&[1 << 24, 0x7fff_ffff]),
            _ => self.random.pick(&[1 << 10, 65_535, 65_535, 1 << 20, 1 << 24, 0x7fff_ffff]),
        };
        let latest = self.random.pick(&[5, 400]);
        let start = self.random.millis(0, latest);
        let mut session = Session {
            listener,
            is_http2,
            origin,
            start,
            receive_buffer,
            window,
            batches: Vec::new(),
            random: self.random.fork(7),
        };
        for _ in 0..batches {
            let batch = self.batch(&session);
            session.batches.push(batch);
        }
        session
    }

    fn batch(&mut self, session: &Session) -> Batch {
        let conduct = self.conduct(session);
        let most = match (self.crowd, session.is_http2) {
            (Crowd::SlowReaders, _) => 1,
            (Crowd::Greedy(_), _) => self.plan.limits.streams.min(128),
            (Crowd::Multiplexed, true) => self.plan.limits.streams.min(100),
            (Crowd::Burst(_), true) => self.plan.limits.streams.min(3),
            (Crowd::Burst(_), false) => 3,
            (_, true) => self.plan.limits.streams.min(32),
            (_, false) => 8,
        };
        let count = match self.crowd {
            Crowd::Multiplexed | Crowd::Greedy(_) => self.random.between(most / 2, most).max(1),
            _ => self.random.size(most).max(1),
        };
        let requests =
            (0..count).map(|_| self.request(session, conduct, count == 1 || session.is_http2)).collect();
        let gap = match self.crowd {
            Crowd::Burst(_) | Crowd::Multiplexed => self.random.millis(0, 20),
            _ => self.random.weighted(&[
                (6, Duration::ZERO),
                (3, Duration::from_millis(50)),
                (1, Duration::from_millis(700)),
            ]),
        };
        Batch { requests, conduct, gap }
    }

    fn conduct(&mut self, session: &Session) -> ClientBehaviour {
        let plan = self.plan;
        match self.crowd {
            Crowd::SlowReaders => {
                // Steadily above the rate, and so that a window of its own opens several times in the grace.
                let buffer = session.receive_buffer.unwrap_or(128 << 10) as u64 * 2;
                let grace = plan.limits.rate_grace.as_millis() as u64;
                let rate = (plan.limits.send_rate * 2).max(buffer * 6 * 1000 / grace);
                let pause = self.random.between(5, 50);
                return ClientBehaviour::Slow {
                    bytes: (rate * pause / 1000).max(1) as usize,
                    pause: Duration::from_millis(pause),
                    time: plan.limits.rate_grace * 4 + Duration::from_secs(2),
                };
            }
            Crowd::Greedy(_) => {
                return ClientBehaviour::NeverRead { time: self.random.millis(3000, 6000) };
            }
            Crowd::Burst(_) if self.random.chance(95) => return ClientBehaviour::Honest,
            Crowd::Multiplexed if self.random.chance(70) => return ClientBehaviour::Honest,
            _ => {}
        }
        let is_reset = self.random.chance(50);
        let after = self.random.size(1 << 20);
        let mut conducts = vec![
            (10, ClientBehaviour::Honest),
            (
                2,
                ClientBehaviour::Pause {
                    after,
                    time: (plan.limits.rate_grace / 4).min(Duration::from_millis(500)),
                },
            ),
            (2, ClientBehaviour::Abort { after, is_reset }),
            (1, ClientBehaviour::Unfinished { is_reset }),
            (1, ClientBehaviour::NeverRead { time: self.random.millis(10, 1500) }),
        ];
        if session.is_http2 {
            conducts.push((3, ClientBehaviour::ResetStreams { percent: self.random.between(5, 90) }));
        } else if !plan.listeners[session.listener].is_tls() {
            conducts.push((1, ClientBehaviour::HalfClose));
        }
        self.random.weighted(&conducts)
    }

    fn request(&mut self, session: &Session, conduct: ClientBehaviour, may_upload: bool) -> Request {
        let plan = self.plan;
        let site = self.random.below(plan.sites.len() as u64) as usize;
        let wants_application = match self.crowd {
            Crowd::Burst(_) => 100,
            Crowd::Greedy(_) => 90,
            Crowd::Multiplexed => 70,
            _ => 60,
        };
        if self.random.chance(wants_application) && !plan.applications.is_empty() {
            return self.application_request(site, conduct, may_upload);
        }
        let targets = &plan.sites[site].targets;
        let big: Vec<&Target> = targets.iter().filter(|target| target.is_big()).collect();
        let target = match self.crowd {
            Crowd::SlowReaders | Crowd::Greedy(_) | Crowd::Multiplexed if !big.is_empty() => {
                self.random.pick(&big).clone()
            }
            _ => self.random.pick(targets),
        };
        let served = target.served_to(session.origin).clone();
        // A Range means nothing to other methods than GET.
        let method = if self.random.chance(8) && served.pieces.is_empty() { "HEAD" } else { "GET" };
        Request {
            method,
            host: plan.sites[site].host.clone(),
            target: target.path,
            fields: target.fields,
            upload: None,
            is_chunked: false,
            trailer: None,
            expected: Expected::Served(served),
        }
    }

    fn application_request(&mut self, site: usize, conduct: ClientBehaviour, may_upload: bool) -> Request {
        let plan = self.plan;
        let index = match self.crowd {
            Crowd::Burst(index) | Crowd::Greedy(index) => index,
            _ => self.random.below(plan.applications.len() as u64) as usize,
        };
        let application = &plan.applications[index];
        let nonce = Nonce::of_request(plan.seed, self.number);
        self.number += 1;
        let most: u64 = match (self.crowd, conduct) {
            (Crowd::Burst(_), _) => 20_000,
            (Crowd::SlowReaders, _) => 8 << 20,
            // Enough to fill what reads ahead; more would be memory of this process and of the kernel.
            (Crowd::Greedy(_), _) => 3 << 19,
            (Crowd::Multiplexed, _) if self.random.chance(30) => 4 << 20,
            _ => 1 << 20,
        };
        let most = most.min(application.kind.largest_answer());
        let faults = if matches!(self.crowd, Crowd::SlowReaders | Crowd::Greedy(_)) {
            0
        } else {
            application.fault_percent
        };
        let mut answer = if self.random.chance(faults) && application.kind.can_fail() {
            AnswerPlan::faulty(&mut self.random, nonce, most)
        } else {
            AnswerPlan::honest(&mut self.random, nonce, most)
        };
        if matches!(self.crowd, Crowd::SlowReaders | Crowd::Greedy(_)) {
            (answer.length, answer.pace) = (most, None);
        }
        let upload = if may_upload && self.random.chance(25) { self.random.size(300 << 10) } else { 0 };
        answer.upload = upload;
        let is_chunked = answer.framing == Framing::Chunked;
        answer.sends_trailer = upload > 0 && is_chunked && self.random.chance(30);
        let mut fields = Vec::new();
        if self.random.chance(40) {
            fields.push(("TE".to_owned(), "trailers".to_owned()));
        }
        if self.random.chance(30) {
            fields.push(("Accept-Encoding".to_owned(), "gzip".to_owned()));
        }
        Request {
            method: if upload > 0 { "POST" } else { "GET" },
            host: plan.sites[site].host.clone(),
            target: format!("{}?{}", application.request_path(), answer.query()),
            fields,
            upload: (upload > 0).then_some((nonce.upload(), upload)),
            is_chunked,
            trailer: answer.sends_trailer.then_some(nonce),
            expected: Expected::Application {
                plan: answer,
                shows_cuts: application.kind.shows_cuts(),
                has_trailers: application.kind.has_trailers(),
            },
        }
    }
}
