//! Settings to TLS: which certificates there are in this process, and which terms hold for a site on a
//! listener.
//!
//! One [`TlsStore`] for each process: certificates, tickets and challenges outlive every revision of the
//! settings and are shared by all workers. One [`TlsSites`] for each revision.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use thiserror::Error;
use tidegate_config::settings::{CertificateFiles, HostPattern, Listener, Origin, Settings, Site};
use tidegate_tls::ticket::{ROTATION, TicketKeysError};
use tidegate_tls::{
    Certificate, CertificateError, Challenges, ClientAuthorities, ClientPolicy, Pair, Protocols, SiteConfig,
    Slot, Terms, TermsError, TicketKeys, Versions,
};

/// Why TLS cannot be served as the settings want it (FAULTS 52).
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TlsError {
    /// A file is at fault.
    #[error("{origin}: {error}")]
    Certificate {
        /// Where the settings name it.
        origin: Origin,
        /// What is wrong with it.
        error: CertificateError,
    },
    /// The settings contradict themselves.
    #[error("{origin}: {error}")]
    Terms {
        /// The site.
        origin: Origin,
        /// What is wrong.
        error: TermsError,
    },
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
    }
}

/// The files of a pair: what a slot is known by.
pub type PairKey = (PathBuf, PathBuf);

/// What the TLS connections of a process share.
pub struct TlsStore {
    /// Of files that the settings name.
    slots: Mutex<HashMap<PairKey, Arc<Slot>>>,
    /// Of names whose certificates are automatic.
    automatic: Mutex<HashMap<String, Arc<Slot>>>,
    tickets: Arc<TicketKeys>,
    challenges: Challenges,
    /// `HTTP-01`: token to key authorisation (RFC 8555 section 8.3).
    tokens: RwLock<HashMap<String, String>>,
    /// The revisions that are in use, so that all workers share one.
    made: Mutex<Vec<(Weak<Settings>, Arc<TlsSites>)>>,
}

impl TlsStore {
    /// An empty one, with ticket keys of its own.
    pub fn new() -> Result<Arc<TlsStore>, TicketKeysError> {
        Ok(Arc::new(TlsStore {
            slots: Mutex::default(),
            automatic: Mutex::default(),
            tickets: Arc::new(TicketKeys::new(ROTATION)?),
            challenges: Challenges::default(),
            tokens: RwLock::default(),
            made: Mutex::default(),
        }))
    }

    /// The keys of session tickets, for whoever hands them over.
    pub fn tickets(&self) -> &Arc<TicketKeys> {
        &self.tickets
    }

    /// Challenges of authorities under way.
    pub fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Answers `/.well-known/acme-challenge/{token}` from now on; `None` ends that.
    pub fn set_token(&self, token: &str, answer: Option<&str>) {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Some(answer) => drop(tokens.insert(token.to_owned(), answer.to_owned())),
            None => drop(tokens.remove(token)),
        }
    }

    /// The answer to a token.
    pub fn token(&self, token: &str) -> Option<String> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    /// Reads every file that the settings name for TLS and makes the terms of all sites. Fails without having
    /// changed what is served; for the start and for a reload, before anything else is taken up.
    pub fn load(&self, settings: &Arc<Settings>) -> Result<Arc<TlsSites>, TlsError> {
        let mut read = Vec::new();
        for files in certificate_files(settings) {
            let at_fault = |error| TlsError::Certificate { origin: files.origin.clone(), error };
            let pair = Pair::read(&files.certificate, &files.key).map_err(at_fault)?;
            read.push((key_of(files), Certificate::new(&pair).map_err(at_fault)?));
        }
        let before = lock(&self.slots).clone();
        for (key, certificate) in read {
            self.slot(&key).fill(certificate);
        }
        self.sites(settings).inspect_err(|_| *lock(&self.slots) = before)
    }

    /// The terms of a revision; its certificates have been put in before.
    pub fn sites(&self, settings: &Arc<Settings>) -> Result<Arc<TlsSites>, TlsError> {
        let mut made = lock(&self.made);
        made.retain(|(settings, _)| settings.strong_count() > 0);
        let same = |known: &&(Weak<Settings>, Arc<TlsSites>)| known.0.as_ptr() == Arc::as_ptr(settings);
        if let Some((_, sites)) = made.iter().find(same) {
            return Ok(sites.clone());
        }
        let sites = Arc::new(TlsSites::new(self, settings)?);
        made.push((Arc::downgrade(settings), sites.clone()));
        Ok(sites)
    }

    /// Puts a pair in the place of what its files held before.
    pub fn fill(&self, key: &PairKey, pair: &Pair) -> Result<(), CertificateError> {
        self.slot(key).fill(Certificate::new(pair)?);
        Ok(())
    }

    /// The slot of a pair of files; empty where they have not been read.
    pub fn slot(&self, key: &PairKey) -> Arc<Slot> {
        lock(&self.slots).entry(key.clone()).or_insert_with(Slot::empty).clone()
    }

    /// The slot of a name whose certificate is automatic; `*.` in front for every name below one.
    pub fn automatic_slot(&self, name: &str) -> Arc<Slot> {
        lock(&self.automatic).entry(name.to_owned()).or_insert_with(Slot::empty).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the slot of a pair is known by.
pub fn key_of(files: &CertificateFiles) -> PairKey {
    (files.certificate.clone(), files.key.clone())
}

/// Every pair that the settings name, where it stands.
pub fn certificate_files(settings: &Settings) -> impl Iterator<Item = &CertificateFiles> {
    let listeners =
        settings.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.certificate.as_ref());
    listeners.chain(settings.sites.iter().flat_map(|site| &site.tls.certificates))
}

/// The names whose certificates are automatic: those of sites without one of their own, where a listener has
/// none for them either. In the order of the settings, each once.
pub fn automatic_names(settings: &Settings) -> Vec<String> {
    let is_wanted = settings
        .listeners
        .iter()
        .any(|listener| listener.tls.as_ref().is_some_and(|tls| tls.certificate.is_none()));
    let mut names: Vec<String> = Vec::new();
    for site in settings.sites.iter().filter(|site| is_wanted && site.tls.certificates.is_empty()) {
        for name in site.names.iter().map(ToString::to_string) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The terms of every site on every listener.
pub struct TlsSites {
    /// By listener, then by site; empty for a plain listener.
    terms: Vec<Vec<Arc<SiteConfig>>>,
}

impl TlsSites {
    fn new(store: &TlsStore, settings: &Settings) -> Result<TlsSites, TlsError> {
        let mut authorities: HashMap<&Path, Arc<ClientAuthorities>> = HashMap::new();
        let mut policies = Vec::with_capacity(settings.sites.len());
        for site in &settings.sites {
            let Some(clients) = &site.tls.clients else {
                policies.push(ClientPolicy::None);
                continue;
            };
            let path = clients.authorities.as_path();
            let known = match authorities.get(path) {
                Some(known) => known.clone(),
                None => ClientAuthorities::read(path)
                    .map_err(|error| TlsError::Certificate { origin: clients.origin.clone(), error })?,
            };
            authorities.insert(path, known.clone());
            policies.push(if clients.is_required {
                ClientPolicy::Required(known)
            } else {
                ClientPolicy::Optional(known)
            });
        }
        let mut terms = Vec::with_capacity(settings.listeners.len());
        for listener in &settings.listeners {
            let mut of_listener = Vec::new();
            for (site, clients) in settings.sites.iter().zip(&policies).filter(|_| listener.tls.is_some()) {
                let wanted = terms_of(store, listener, site, clients.clone());
                let made = SiteConfig::new(&wanted, &store.tickets);
                of_listener
                    .push(made.map_err(|error| TlsError::Terms { origin: site.origin.clone(), error })?);
            }
            terms.push(of_listener);
        }
        Ok(TlsSites { terms })
    }

    /// The terms of a site on a listener; `None` where that is plain.
    #[inline]
    pub fn terms(&self, listener: usize, site: usize) -> Option<&Arc<SiteConfig>> {
        self.terms.get(listener)?.get(site)
    }
}

fn terms_of(store: &TlsStore, listener: &Listener, site: &Site, clients: ClientPolicy) -> Terms {
    let of_listener = listener.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
    let certificates: Vec<Arc<Slot>> = if !site.tls.certificates.is_empty() {
        site.tls.certificates.iter().map(|files| store.slot(&key_of(files))).collect()
    } else if let Some(files) = of_listener {
        vec![store.slot(&key_of(files))]
    } else {
        site.names.iter().map(|name| store.automatic_slot(&name.to_string())).collect()
    };
    Terms {
        scope: scope(site),
        certificates,
        versions: Versions { tls12: !site.tls.without_tls12, tls13: !site.tls.without_tls13 },
        protocols: protocols(),
        clients,
        takes_early_data: site.tls.takes_early_data,
    }
}

/// What tells a site from others, in every revision of the settings and in every process.
fn scope(site: &Site) -> String {
    site.names.iter().map(HostPattern::to_string).collect::<Vec<_>>().join(" ")
}

/// The protocols that the connection machinery drives, best first.
fn protocols() -> Protocols {
    vec![b"http/1.1".to_vec()]
}
