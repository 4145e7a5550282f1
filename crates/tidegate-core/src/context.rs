//! What of its worker a connection works with while it runs.

use crate::admission::{Admission, Shared};
use crate::batch::BatchMemory;
use crate::box_pool::BoxPool;
use crate::busiest::Busiest;
use crate::conn::Work;
use crate::crowd::Share;
use crate::engine::Engine;
use crate::log::{AccessBuffers, AccessRecord, Record, Sink};
use crate::recent::RecentAddresses;
use crate::slow::SlowRequests;
use crate::spans::Spans;
use crate::tail::Tails;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::Settings;
use tidegate_http::HttpDate;
use tidegate_io::Wheel;
use tidegate_io::clock::{begin_step, recent_ns, thread_cpu_ns, wall_seconds};
use tidegate_stats::{ListenerCounts, ListenerNumber, Worker as Stats};
use tidegate_wire::h1::HeadLimits;
use tidegate_wire::h2::Section;

/// Bytes read in one call.
const READ_BUFFER: usize = 64 << 10;
/// Bytes for which there is room from the start in what is kept for each connection. As long as nothing larger was freed the allocator
/// maps so much by itself (`M_MMAP_THRESHOLD` of mallopt(3)): it grows by moving pages, and leaves no holes where it was. What is not
/// used takes no memory.
pub(crate) const MAPPED: usize = 256 << 10;

/// What a running connection may touch: everything of the worker but the connections, so that none can
/// reach itself or another one while it is borrowed.
pub struct Ctx {
    /// Of the present revision; a request keeps the one that it began with.
    pub engine: Rc<Engine>,
    /// From the settings, in the form the codec takes.
    pub head_limits: HeadLimits,
    /// Deadlines of connections.
    pub wheel: Wheel,
    /// Counters.
    pub stats: Arc<Stats>,
    /// Those of its listeners, by their numbers.
    pub(crate) listeners: Vec<Arc<ListenerCounts>>,
    /// Access lines.
    pub log: AccessBuffers,
    /// Requests that were slow.
    pub(crate) slow: SlowRequests,
    /// Who and what it has most to do with.
    pub(crate) busiest: Busiest,
    /// Clients that have shown a ticket of TLS that is good for nothing here.
    pub(crate) ticket_clients: RecentAddresses,
    /// Operators who watch requests end.
    pub(crate) tails: Tails,
    /// Sampled requests that have ended.
    pub(crate) spans: Spans,
    /// Settings have requests sampled: their traces are told beside the times of routes.
    pub(crate) samples: bool,
    /// Who is let in, who waits, who is turned away.
    pub admission: Admission,
    /// Turns of the worker, modulo 2^32: the order in which connections fell idle.
    pub(crate) turn: u32,
    /// What the kernel may hold for each connection that sends much.
    pub(crate) share: Share,
    /// Unsent bytes of a connection without a crowd.
    pub(crate) wide: u32,
    /// Wall clock, seconds.
    pub now: i64,
    /// The `Date` field of this second.
    pub date: [u8; 29],
    /// Answers say that the connection ends.
    pub draining: bool,
    /// Connections end as soon as they are between requests.
    pub closes_idle: bool,
    /// Chunks and frames that were decoded for the connection that runs, in this turn.
    pub(crate) decoded: u32,
    pub(crate) read_buffer: Vec<u8>,
    pub(crate) path_buffer: Vec<u8>,
    /// Where fields of HTTP/2 are decoded; away while they are looked at.
    pub(crate) section: Option<Box<Section>>,
    /// Lent to whichever connection runs.
    pub(crate) batch_memory: BatchMemory,
    /// For requests that wait.
    pub(crate) works: BoxPool<Work>,
}

impl Ctx {
    pub(crate) fn new(
        number: usize,
        engine: Engine,
        stats: Arc<Stats>,
        mut log: AccessBuffers,
        shared: Arc<Shared>,
    ) -> Ctx {
        let now = wall_seconds();
        let admission = Admission::new(shared, stats.clone(), &engine.settings, number);
        log.tick(now);
        let head_limits = head_limits(&engine.settings);
        let samples = samples(&engine.settings, &stats);
        Ctx {
            engine: Rc::new(engine),
            head_limits,
            wheel: Wheel::with_capacity(MAPPED / <Wheel>::NODE_SIZE),
            listeners: stats.latency.all(),
            stats,
            log,
            slow: SlowRequests::default(),
            busiest: Busiest::new(now),
            ticket_clients: RecentAddresses::default(),
            tails: Tails::default(),
            spans: Spans::default(),
            samples,
            admission,
            turn: 0,
            share: Share::WIDE,
            wide: 0,
            now,
            date: HttpDate(now).format(),
            draining: false,
            closes_idle: false,
            decoded: 0,
            read_buffer: vec![0; READ_BUFFER],
            path_buffer: Vec::new(),
            section: None,
            batch_memory: BatchMemory::with_capacity(READ_BUFFER),
            works: BoxPool::new(),
        }
    }

    /// What is counted of a listener, where the worker has ever had it.
    #[inline]
    pub(crate) fn listener(&self, number: ListenerNumber) -> Option<&ListenerCounts> {
        self.listeners.get(usize::from(number.0)).map(Arc::as_ref)
    }

    /// Seconds that never run backwards, modulo 2^32.
    pub(crate) fn second(&self) -> u32 {
        (recent_ns() / 1_000_000_000) as u32
    }

    /// Whether anybody is told of a request that ends, whose log is this.
    #[inline]
    pub(crate) fn tells(&self, log: Option<Sink>) -> bool {
        log.is_some() || self.tails.is_active() || self.spans.is_active()
    }

    /// Copies what is told of a request at its end, where anybody is told: also the operator who asks what it waits for. What waits
    /// for its answer may be put off, and come again.
    pub(crate) fn capture(
        &mut self,
        entry: &AccessRecord<'_>,
        log: Option<Sink>,
        waits: bool,
    ) -> Option<Box<Record>> {
        let is_told = waits || self.tells(log) || entry.trace.is_some();
        is_told.then(|| self.log.capture(entry, log))
    }

    /// Begins a turn of the worker.
    pub(crate) fn tick(&mut self) {
        begin_step();
        let now = wall_seconds();
        if now != self.now {
            self.now = now;
            self.date = HttpDate(now).format();
            self.log.tick(now);
            self.stats.series.learn();
            self.stats.busy_micros.raise_to(thread_cpu_ns() / 1_000);
            self.tails.on_second(self.second());
            self.spans.on_second(self.second());
            self.busiest.on_second(now);
        }
    }
}

/// Whether requests may be sampled; the worker makes room for their traces then.
pub(crate) fn samples(settings: &Settings, stats: &Stats) -> bool {
    let is_so = settings.sites.iter().any(|site| site.sampling.is_some());
    if is_so {
        stats.series.prepare_exemplars();
    }
    is_so
}

pub(crate) fn head_limits(settings: &Settings) -> HeadLimits {
    let limits = &settings.limits;
    HeadLimits {
        head_size: limits.request.head_size as usize,
        target_size: limits.request.target_size as usize,
        fields: usize::from(limits.fields),
    }
}
