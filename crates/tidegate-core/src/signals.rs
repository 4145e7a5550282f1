//! What whoever answers a request asks of its connection: interim responses, to be given up with the client, a place
//! among those that wait for an application.

use crate::interim::InterimQueue;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use tidegate_http::Version;

/// What is asked of the connection of one request. Costs nothing before somebody asks.
#[derive(Default)]
pub(crate) struct Signals {
    own: SharedSignals,
    /// In the place of `own` once the request has been kept: its connection and whoever answers it later see what the
    /// other says.
    shared: OnceCell<Rc<SharedSignals>>,
}

/// The signals themselves. The default is that of a request that came from no client.
#[derive(Default)]
pub(crate) struct SharedSignals {
    abandons: Cell<bool>,
    ends_when_finished: Cell<bool>,
    upstream: Cell<u64>,
    interim: OnceCell<InterimQueue>,
    /// The client understands interim responses.
    takes_interim: bool,
}

impl SharedSignals {
    /// The answer is worth nothing once the client has gone.
    pub(crate) fn abandons(&self) -> bool {
        self.abandons.get()
    }

    /// It is worth nothing already once the client has finished sending.
    pub(crate) fn ends_when_finished(&self) -> bool {
        self.ends_when_finished.get()
    }

    /// The application that the request waits for; 0 for none.
    pub(crate) fn upstream(&self) -> u64 {
        self.upstream.get()
    }
}

impl Signals {
    /// To a client of this version; HTTP/1.0 knows no interim responses (RFC 9110 section 15.2).
    #[inline]
    pub(crate) fn of_client(version: Version) -> Signals {
        let own = SharedSignals { takes_interim: version != Version::Http10, ..SharedSignals::default() };
        Signals { own, shared: OnceCell::new() }
    }

    #[inline]
    fn signals(&self) -> &SharedSignals {
        self.shared.get().map_or(&self.own, |shared| shared)
    }

    /// The request is to be given up when the client goes away.
    pub(crate) fn abandon(&self) {
        self.signals().abandons.set(true);
    }

    /// The request is to be given up when the client has finished sending, whether it has gone or not.
    pub(crate) fn end_when_finished(&self) {
        self.signals().ends_when_finished.set(true);
    }

    #[inline]
    pub(crate) fn abandons(&self) -> bool {
        self.signals().abandons()
    }

    /// The answer waits for this application.
    pub(crate) fn wait_for(&self, upstream: u64) {
        self.signals().upstream.set(upstream);
    }

    #[inline]
    pub(crate) fn upstream(&self) -> u64 {
        self.signals().upstream()
    }

    /// Where interim responses are put; `None` where nobody understands them.
    pub(crate) fn interim(&self) -> Option<InterimQueue> {
        let signals = self.signals();
        signals.takes_interim.then(|| signals.interim.get_or_init(InterimQueue::default).clone())
    }

    /// Where interim responses will be found, if anyone has asked, or still may; and what is still asked later, if the request has
    /// been kept.
    #[inline]
    pub(crate) fn into_parts(self) -> (Option<InterimQueue>, Option<Rc<SharedSignals>>) {
        match self.shared.get() {
            None => (self.own.interim.into_inner(), None),
            Some(_) => (self.interim(), self.shared.into_inner()),
        }
    }

    /// The same signals for a request that is kept.
    pub(crate) fn share(&self) -> Signals {
        let shared = self.shared.get_or_init(|| {
            let SharedSignals { abandons, ends_when_finished, upstream, interim, takes_interim } = &self.own;
            Rc::new(SharedSignals {
                abandons: abandons.clone(),
                ends_when_finished: ends_when_finished.clone(),
                upstream: upstream.clone(),
                interim: interim.clone(),
                takes_interim: *takes_interim,
            })
        });
        Signals { own: SharedSignals::default(), shared: OnceCell::from(shared.clone()) }
    }
}
