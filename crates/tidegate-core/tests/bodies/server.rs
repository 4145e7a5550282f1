//! Starts a worker with the handlers of these tests.

use crate::handlers::{Capitals, Gate, Table};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_config::settings::{ListenAddress, Settings};
use tidegate_core::Filter;
use tidegate_core::decoration::Decoration;
use tidegate_core::listen::{self, Listener};
use tidegate_core::log::Writer;
use tidegate_core::worker::{self, Command, Handle, LogSet, MakeRegistry, Registry};
use tidegate_core::{Engine, Route, Site};

/// A wait that only a broken server lets pass.
pub const PATIENCE: Duration = Duration::from_secs(20);

struct Tables {
    gate: Arc<Gate>,
    outcomes: Sender<String>,
}

impl Registry for Tables {
    fn engine(&mut self, settings: &Arc<Settings>, logs: &mut LogSet) -> io::Result<Engine> {
        let config = settings.sites[0].clone();
        let handler = Rc::new(Table { gate: self.gate.clone(), outcomes: self.outcomes.clone() });
        let filters: Vec<Rc<dyn Filter>> = vec![
            Rc::new(Capitals { field: "X-All", sees_finished: true }),
            Rc::new(Capitals { field: "X-Open", sees_finished: false }),
        ];
        let route = Route::new(handler, filters, Decoration::of(&config.routes[0]));
        let log = settings.access_log.as_ref().map(|log| logs.open(log)).transpose()?;
        Ok(Engine::new(settings.clone(), vec![Site::new(config, vec![route], log)]))
    }

    fn ask(&mut self, _: &str) -> String {
        String::new()
    }
}

/// Settings with these lines in front of the only site.
pub fn settings(lines: &str) -> Settings {
    let text = format!("listen \"127.0.0.1:0\" {{ h2c }}\n{lines}\nsite {{ respond 200 }}\n");
    let loaded = tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new());
    assert!(!loaded.has_errors(), "{}", loaded.render(false));
    loaded.settings.unwrap()
}

/// Makes the registry of these tests; the gate, and what handlers have to tell.
pub fn registry() -> (MakeRegistry, Arc<Gate>, Receiver<String>) {
    let gate = Arc::new(Gate::default());
    let (outcomes, told) = channel();
    let (outcomes, given) = (Mutex::new(outcomes), gate.clone());
    let make: MakeRegistry = Arc::new(move |_| {
        Box::new(Tables { gate: given.clone(), outcomes: outcomes.lock().unwrap().clone() })
    });
    (make, gate, told)
}

/// A running worker.
pub struct Server {
    pub handle: Handle,
    pub address: SocketAddr,
    pub gate: Arc<Gate>,
    pub writer: Arc<Writer>,
    told: Receiver<String>,
}

impl Server {
    pub fn start(lines: &str) -> Server {
        Server::with(settings(lines))
    }

    /// One whose grace for slow clients is shorter than an operator may make it.
    pub fn impatient(lines: &str) -> Server {
        let mut settings = settings(lines);
        settings.limits.request.rate_grace = Duration::from_millis(300);
        Server::with(settings)
    }

    fn with(settings: Settings) -> Server {
        let (make, gate, told) = registry();
        Server::running(settings, make, gate, told)
    }

    /// With another registry.
    pub fn serving<R: Registry + 'static>(
        settings: Settings,
        make: impl Fn(Arc<Gate>, Sender<String>) -> R + Send + Sync + 'static,
    ) -> Server {
        let gate = Arc::new(Gate::default());
        let (outcomes, told) = channel();
        let (outcomes, given) = (Mutex::new(outcomes), gate.clone());
        let make: MakeRegistry =
            Arc::new(move |_| Box::new(make(given.clone(), outcomes.lock().unwrap().clone())));
        Server::running(settings, make, gate, told)
    }

    fn running(settings: Settings, make: MakeRegistry, gate: Arc<Gate>, told: Receiver<String>) -> Server {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let settings = Arc::new(settings);
        let (mut sockets, address) =
            listen::open(&settings.listeners[0].address, 64, 1, &|_| Ok(())).unwrap();
        let ListenAddress::Tcp(tcp) = address else { panic!("a TCP address was asked for") };
        let listeners = vec![Listener { fd: sockets.remove(0), address }];
        let number = NUMBER.fetch_add(1, Relaxed);
        let writer = Writer::start().unwrap();
        let on_end = Box::new(|| {});
        let shared = Arc::default();
        let handle =
            worker::start(shared, number, settings, listeners, make, writer.clone(), on_end).unwrap();
        Server { handle, address: tcp, gate, writer, told }
    }

    /// Waits until something holds of what the worker has counted.
    pub fn until(&self, what: &str, holds: impl Fn(&tidegate_stats::Snapshot) -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !holds(&self.handle.stats.snapshot()) {
            assert!(std::time::Instant::now() < deadline, "{what}: {:?}", self.handle.stats.snapshot());
            std::thread::yield_now();
        }
    }

    /// How much handlers have told that nobody has asked for.
    pub fn told_until_now(&self) -> usize {
        self.told.try_iter().count()
    }

    /// What a handler tells next.
    pub fn told(&self) -> String {
        self.told.recv_timeout(PATIENCE).expect("a handler tells something")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.gate.open();
        self.handle.send(Command::Stop);
        self.handle.join();
    }
}
