//! One connection driven by hand, without listener and without a thread of its own: for tests and benches
//! that count what a request costs. Nothing of a server in use may need it.

use crate::admission::{Account, Admission, Later, Shared};
use crate::conn::{Connection, Next};
use crate::context::Ctx;
use crate::log::{AccessBuffers, Writer};
use crate::registry::{LogSet, MakeRegistry, Registry};
use crate::reply::Reply;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_config::settings::Settings;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::runtime::Runtime;
use tidegate_io::socket::{Peer, Stream};
use tidegate_io::{Key, Kind, Poller, Ready, Slab};
use tidegate_stats::series::SeriesId;
use tidegate_stats::{ListenerNumber, Worker as Stats};

/// How long an answer may wait for other threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// By which connections come: the first number of a worker.
const LISTENER: ListenerNumber = ListenerNumber(0);

/// A worker with a single connection. Makes its thread a worker.
pub struct Solo {
    cx: Ctx,
    connections: Slab<Connection>,
    key: Key,
    runtime: Rc<Runtime>,
    poller: Poller,
    /// Room for what the poller and the runtime have to say.
    events: Vec<Ready>,
    woken: Vec<Key>,
    _registry: Box<dyn Registry>,
}

impl Solo {
    /// Makes this thread the worker of one connection: `stream`, which is non-blocking.
    ///
    /// # Errors
    /// This thread is a worker already, the system has no descriptor or thread left, or the registry can make
    /// no engine out of the settings.
    pub fn new(settings: &Arc<Settings>, make: &MakeRegistry, stream: Stream) -> io::Result<Solo> {
        let poller = Poller::new()?;
        let runtime = Runtime::install(poller.registry()?)?;
        let (stats, writer) = (Arc::new(Stats::default()), Writer::start()?);
        stats.latency.of("-");
        let mut registry = make(stats.clone());
        let mut logs = LogSet::new(writer.clone());
        let engine = registry.engine(settings, &mut logs)?;
        registry.in_force(settings);
        let mut cx = Ctx::new(0, engine, stats, AccessBuffers::new(writer), Arc::<Shared>::default());
        for (sink, format) in logs.opened {
            cx.log.add(sink, &format);
        }
        cx.engine.number(&[Some(LISTENER)], None);
        let opening = cx.engine.opening(0, Peer::Unix);
        let mut connections = Slab::default();
        let key = connections.insert(Connection::new(stream, Peer::Unix, LISTENER, opening));
        let (events, woken) = (Vec::new(), Vec::new());
        Ok(Solo { cx, connections, key, runtime, poller, events, woken, _registry: registry })
    }

    /// Serves another one in its place.
    pub fn connect(&mut self, stream: Stream) {
        self.close();
        self.connect_beside(stream);
    }

    /// Serves another one, and leaves what there is as it stands. Returns the one before, for [`Solo::change_to`].
    pub fn connect_beside(&mut self, stream: Stream) -> Key {
        let opening = self.cx.engine.opening(0, Peer::Unix);
        let key = self.connections.insert(Connection::new(stream, Peer::Unix, LISTENER, opening));
        self.change_to(key)
    }

    /// Ends the connection, as a worker does that has had enough of it.
    pub fn close(&mut self) {
        self.follow(Next::Close);
    }

    /// Turns to a connection that was left. Returns the one before.
    pub fn change_to(&mut self, key: Key) -> Key {
        std::mem::replace(&mut self.key, key)
    }

    /// Reads no more than so many bytes in one call, which otherwise takes a client that sends very much at once.
    pub fn read_at_most(&mut self, bytes: usize) {
        self.cx.read_buffer = vec![0; bytes];
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.cx.stats
    }

    /// Who is let in, who waits, who is turned away.
    pub fn admission(&mut self) -> &mut Admission {
        &mut self.cx.admission
    }

    /// Takes a place among those in flight, as another request for the first site would.
    pub fn hold_place(&mut self) -> Option<Later> {
        let site = self.cx.engine.site_for(0, "")?.account();
        let account = Account { site, upstream: 0, peer: Peer::Unix, head: 0, series: SeriesId::NONE };
        Some(self.cx.admission.later(Reply::Later(Box::pin(std::future::pending())), account, false))
    }

    /// The client has sent something, or taken something: one turn of the worker. `Close` has closed it.
    pub fn turn(&mut self) -> Next {
        self.cx.tick();
        let Some(connection) = self.connections.get_mut(self.key) else { return Next::Close };
        connection.on_edge(true, false);
        let next = connection.drive(self.key, &mut self.cx);
        self.follow(next)
    }

    /// Waits, this long at most, for what other threads have for the connection, and runs it again.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Next> {
        self.events.clear();
        if !self.runtime.has_ready() {
            self.poller.wait(Some(timeout), &mut self.events)?;
        }
        self.runtime.expire(monotonic_ns());
        for event in &self.events {
            match event.kind() {
                Kind::Io => self.runtime.on_io(event),
                Kind::Remote => self.runtime.on_remote(),
                Kind::Connection | Kind::Listener => {}
            }
        }
        self.runtime.run_tasks();
        self.runtime.take_ready(&mut self.woken);
        self.woken.clear(); // there is only the one
        let Some(connection) = self.connections.get_mut(self.key) else { return Ok(Next::Close) };
        let next = connection.drive(self.key, &mut self.cx);
        Ok(self.follow(next))
    }

    /// Whether an answer is under way.
    pub fn is_answering(&self) -> bool {
        self.connections.get(self.key).is_some_and(|connection| !connection.is_free())
    }

    /// The client has sent something: one turn of the worker, and as many more as the answer needs that has
    /// to wait for another thread. The client must take answers larger than its socket holds meanwhile.
    ///
    /// # Errors
    /// `TimedOut`: the answer is not there after ten seconds. Otherwise as [`Solo::wait`].
    #[inline]
    pub fn on_readable(&mut self) -> io::Result<Next> {
        let next = self.turn();
        if next == Next::Wait && !self.is_answering() { Ok(next) } else { self.settle(next) }
    }

    #[cold]
    fn settle(&mut self, mut next: Next) -> io::Result<Next> {
        let until = Instant::now() + PATIENCE;
        while next == Next::Again || (next == Next::Wait && self.is_answering()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            next = self.wait(if next == Next::Again { Duration::ZERO } else { left })?;
        }
        Ok(next)
    }

    fn follow(&mut self, next: Next) -> Next {
        debug_assert!(self.cx.batch_memory.is_home(), "invariant: output belongs to one connection alone");
        if next == Next::Close
            && let Some(mut connection) = self.connections.remove(self.key)
        {
            connection.on_close(self.key, &mut self.cx);
        }
        next
    }
}
