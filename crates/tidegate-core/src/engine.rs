//! One [`Engine`] for each worker and settings revision: the sites behind their names, and what their listeners ask of a
//! connection. A request keeps the one it began with.

use crate::hosts::Hosts;
use crate::opening::Opening;
use crate::series;
use crate::site::Site;
use crate::tls::{TlsError, TlsSites, TlsStore};
use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{ListenAddress, PathPattern, Settings};
use tidegate_io::socket::Peer;
use tidegate_stats::ListenerNumber;
use tidegate_stats::series::SeriesNames;
use tidegate_tls::{Handshake, Hello, SiteConfig};

/// Sites and routes ready to serve.
pub struct Engine {
    /// The revision this was made from.
    pub settings: Arc<Settings>,
    sites: Vec<Rc<Site>>,
    hosts: Hosts,
    /// By the numbers of the worker's listeners.
    places: OnceCell<Vec<Whereabouts>>,
    /// The patterns of all status routes.
    status: Vec<PathPattern>,
    /// `None` in tests without TLS.
    pub(crate) tls: Option<Secure>,
    /// Plain requests may have to be sent to `https`, or be an authority's.
    pub(crate) has_entrance: Cell<bool>,
}

/// Where the listener that a connection has come by is now.
#[derive(Debug, Clone, Copy)]
enum Whereabouts {
    /// At this place in the settings. Plain requests on it went to `https` at this port by the settings before, where they did.
    At { place: u16, redirected_to_https: Option<u16> },
    /// Not in force any more. Plain requests on it went to `https` at this port, and still do.
    Gone { redirects_to_https: Option<u16> },
}

/// What an engine needs for connections with TLS.
pub(crate) struct Secure {
    pub(crate) store: Arc<TlsStore>,
    sites: Arc<TlsSites>,
}

impl Engine {
    /// Puts the sites, in the order of the settings, behind their names.
    #[expect(clippy::mutable_key_type, reason = "an expression is hashed by its text, which stays")]
    pub fn new(settings: Arc<Settings>, sites: Vec<Site>) -> Engine {
        let hosts = Hosts::new(&settings, sites.iter().map(Site::config));
        let routes = sites.iter().flat_map(|site| &site.config().routes);
        let status = routes.filter(|route| route.action.always_answers()).map(|route| &route.pattern);
        let mut seen = HashSet::new();
        let status = status.filter(|pattern| seen.insert(*pattern)).cloned().collect();
        let sites = sites.into_iter().map(Rc::new).collect();
        let has_entrance = settings.listeners.iter().any(|listener| listener.redirects_to_https.is_some())
            || settings.sites.iter().any(|site| site.is_https_only);
        Engine {
            settings,
            sites,
            hosts,
            places: OnceCell::new(),
            status,
            tls: None,
            has_entrance: Cell::new(has_entrance),
        }
    }

    /// Whether a path of a site leads to the status page, which is served however busy the server is.
    pub fn always_answers(&self, site: &Site, path: &[u8]) -> bool {
        !self.status.is_empty() && site.may_always_answer(path)
    }

    /// Whether these first bytes of a connection may be a request to a status page: cheap, for connections
    /// that are otherwise turned away unread. [`Engine::always_answers`] has the last word.
    pub fn may_ask_for_status(&self, bytes: &[u8]) -> bool {
        if self.status.is_empty() {
            return false;
        }
        let mut words = bytes.splitn(3, |byte| *byte == b' ');
        let (Some(_method), Some(target), Some(_rest)) = (words.next(), words.next(), words.next()) else {
            return false;
        };
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        self.status.iter().any(|pattern| pattern.matches(path))
    }

    /// Adds what TLS needs, also where no listener speaks it any more: connections that were made before are still there.
    ///
    /// # Errors
    /// As [`TlsStore::sites`].
    pub fn with_tls(mut self, store: &Arc<TlsStore>) -> Result<Engine, TlsError> {
        self.tls = Some(Secure { store: store.clone(), sites: store.sites(&self.settings)? });
        if self.settings.listeners.iter().any(|listener| listener.tls.is_some()) {
            self.has_entrance.set(true);
        }
        Ok(self)
    }

    /// What the listeners of the settings have as numbers, in their order, where this worker listens on them, and what there was
    /// by the engine `before`. It is said once; a worker that stops to listen and begins again does so with the same.
    pub(crate) fn number(&self, listeners: &[Option<ListenerNumber>], before: Option<&Engine>) {
        if listeners.iter().all(Option::is_none) && before.is_none() {
            return; // it does not listen yet
        }
        self.places.get_or_init(|| {
            let known = before.and_then(|before| before.places.get()).map_or(0, Vec::len);
            let was = |number| before.and_then(|before| before.redirects_to_https(ListenerNumber(number)));
            let gone = |number| Whereabouts::Gone { redirects_to_https: was(number) };
            let mut places: Vec<_> = (0..=u16::MAX).take(known).map(gone).collect();
            for (place, number) in listeners.iter().enumerate() {
                let Some(ListenerNumber(number)) = *number else { continue };
                let room = places.len().max(usize::from(number) + 1);
                places.resize(room, Whereabouts::Gone { redirects_to_https: None });
                places[usize::from(number)] =
                    Whereabouts::At { place: place as u16, redirected_to_https: was(number) };
            }
            let redirects =
                |place: &Whereabouts| matches!(place, Whereabouts::Gone { redirects_to_https: Some(_) });
            if places.iter().any(redirects) {
                self.has_entrance.set(true);
            }
            places
        });
    }

    fn whereabouts(&self, listener: ListenerNumber) -> Option<Whereabouts> {
        self.places.get().and_then(|places| places.get(usize::from(listener.0))).copied()
    }

    /// The port that plain requests of a connection are sent to with `https`, where they are. A listener that speaks TLS now serves
    /// nobody in the clear who has come before that, and one that is gone keeps to what it did.
    pub(crate) fn redirects_to_https(&self, listener: ListenerNumber) -> Option<u16> {
        match self.whereabouts(listener)? {
            Whereabouts::Gone { redirects_to_https } => redirects_to_https,
            Whereabouts::At { place, redirected_to_https } => self.redirects_at(place, redirected_to_https),
        }
    }

    fn redirects_at(&self, place: u16, before: Option<u16>) -> Option<u16> {
        let listener = self.settings.listeners.get(usize::from(place))?;
        match (&listener.tls, &listener.address) {
            (None, _) => listener.redirects_to_https,
            (Some(_), _) if before.is_some() => before,
            (Some(_), ListenAddress::Tcp(address)) => Some(address.port()),
            (Some(_), ListenAddress::Unix(_)) => self.https_port().or(Some(443)),
        }
    }

    /// The place in the settings of the listener that a connection has come by, and [`Engine::nowhere`] where that is not in
    /// force any more.
    #[inline]
    pub(crate) fn place_of(&self, listener: ListenerNumber) -> u16 {
        match self.whereabouts(listener) {
            Some(Whereabouts::At { place, .. }) => place,
            Some(Whereabouts::Gone { .. }) | None => self.nowhere(),
        }
    }

    /// The place of no listener: how many there are.
    fn nowhere(&self) -> u16 {
        self.settings.listeners.len() as u16
    }

    /// How connections begin on a listener.
    #[inline]
    pub(crate) fn opening(&self, listener: usize, peer: Peer) -> Opening {
        let Some(listener) = self.settings.listeners.get(listener) else {
            return Opening::Plain;
        };
        let then_tls = listener.tls.is_some();
        if listener.proxies.covers(peer.ip()) {
            return Opening::Proxy { then_tls };
        }
        if then_tls { Opening::Tls } else { Opening::Plain }
    }

    /// What the kernel may hold of what is sent on connections of a listener.
    pub(crate) fn send_buffer(&self, listener: u16) -> Option<u32> {
        self.settings.listeners.get(usize::from(listener))?.send_buffer
    }

    /// The terms for a TLS connection on a listener. `local` is the address that the client has connected to: asked for
    /// where the client names no site, as clients do that were given an address.
    pub(crate) fn terms(
        &self,
        listener: u16,
        hello: &Hello,
        local: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<Arc<SiteConfig>> {
        let Secure { store, sites } = self.tls.as_ref()?;
        if hello.server_name.is_none()
            && let Some(terms) = sites.at_address(usize::from(listener), local)
        {
            return Some(terms.clone());
        }
        let name = hello.server_name.as_deref().unwrap_or("");
        if hello.is_challenge
            && let Some(config) = store.challenges().find(name)
        {
            return Some(SiteConfig::of_challenge(config));
        }
        sites.terms(usize::from(listener), self.hosts.site_index(usize::from(listener), name).0).cloned()
    }

    /// Whether a connection was made under terms that hold for the site as well. Where the rules for client certificates are
    /// others, or the site does not speak the connection's version of TLS or protocol, the client has to come again under the
    /// right name (RFC 9110 section 15.5.20).
    pub(crate) fn admits_on(&self, handshake: &Handshake, listener: u16, authority: &str) -> bool {
        let Some(Secure { sites, .. }) = &self.tls else { return false };
        sites.admits(self.hosts.site_index(usize::from(listener), authority).0, handshake)
    }

    /// The site that answers for `authority` (host and port) on a listener.
    #[inline]
    pub fn site_for(&self, listener: u16, authority: &str) -> Option<&Rc<Site>> {
        self.sites.get(self.hosts.site_index(usize::from(listener), authority).0)
    }

    /// It is in force from now on.
    pub(crate) fn begin(&self) {
        self.sites.iter().for_each(|site| site.series.in_force(site.config()));
    }

    /// Each site, with what it and its routes are called in statistics.
    pub(crate) fn each_site(&self, mut tell: impl FnMut(&Site, &SeriesNames)) {
        for (site, names) in self.sites.iter().zip(series::names(&self.settings)) {
            tell(site, &names);
        }
    }

    /// The site that answers, and why it is that one.
    pub(crate) fn site_and_reason(
        &self,
        listener: u16,
        authority: &str,
    ) -> (Option<&Rc<Site>>, &'static str) {
        let (index, why) = self.hosts.site_index(usize::from(listener), authority);
        (self.sites.get(index), why)
    }
}
