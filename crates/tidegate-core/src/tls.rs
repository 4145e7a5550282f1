//! Settings to TLS: which certificates there are in this process, and which terms hold for a site on a
//! listener.
//!
//! One [`TlsStore`] for each process: certificates, tickets and challenges outlive every revision of the
//! settings and are shared by all workers. One [`TlsSites`] for each revision. A process that serves reads no
//! file: the master does, and hands over [`TlsUpdate`]s.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use thiserror::Error;
use tidegate_config::settings::gateway::{BackendProtocol, BackendTls, BackendTrust};
use tidegate_config::settings::{
    CertificateFiles, ClientCertificates, HostPattern, Listener, Origin, Settings, Site, SiteTls,
};
use tidegate_io::locking::lock;
use tidegate_tls::ticket::{ROTATION, TicketKeysError};
use tidegate_tls::{
    Certificate, CertificateError, Challenges, ClientAuthorities, ClientPolicy, Connector, ConnectorError,
    ConnectorOptions, Handshake, Pair, Protocols, SiteConfig, Slot, Terms, TermsError, TicketKeys, Trust,
    TrustedRoots, Versions, system_roots,
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
    /// TLS with an application is not possible as it is set.
    #[error("{origin}: {error}")]
    Backend {
        /// The `proxy` or its `tls`.
        origin: Origin,
        /// What is wrong.
        error: ConnectorError,
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

/// The files of a revision, read and found to be good: what a server process does not read itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsFiles {
    /// Certificates and their keys.
    pub pairs: Vec<(PairKey, Pair)>,
    /// Certificates of the clients' authorities, PEM.
    pub authorities: Vec<(PathBuf, String)>,
    /// Certificates of the applications' authorities, PEM; without a path those of the system.
    pub roots: Vec<(PathBuf, String)>,
}

impl TlsFiles {
    /// Reads every file that the settings name for TLS, but for the pairs that were `found` to be good just before. One
    /// that cannot be used is what it is in `present`: it belongs to a site that stays as it was.
    ///
    /// # Errors
    /// A file cannot be read or used, or the name of a backend is none, and `present` has nothing in its
    /// place.
    pub fn read(
        settings: &Settings,
        present: &TlsFiles,
        found: &HashMap<PairKey, Pair>,
    ) -> Result<TlsFiles, TlsError> {
        let mut read = TlsFiles::default();
        let mut seen: HashSet<PairKey> = HashSet::new();
        for files in pair_files(settings) {
            let key = key_of(files);
            if !seen.insert(key.clone()) {
                continue;
            }
            if let Some(pair) = found.get(&key) {
                read.pairs.push((key, pair.clone()));
                continue;
            }
            let kept = || present.pairs.iter().find(|(known, _)| *known == key).map(|(_, pair)| pair.clone());
            let found = usable(files).or_else(|error| kept().ok_or(error));
            let at_fault = |error| TlsError::Certificate { origin: files.origin.clone(), error };
            let pair = found.map_err(at_fault)?;
            read.pairs.push((key, pair));
        }
        read.authorities.clone_from(&present.authorities);
        read.roots.clone_from(&present.roots);
        read.read_authorities(settings)?;
        Ok(read)
    }

    /// Reads the certificates of authorities anew. One that cannot be used stays as it was, and comes back as an error: those
    /// of one site keep no other's from being renewed.
    ///
    /// # Errors
    /// There is none from before; all are as they were.
    pub fn read_authorities(&mut self, settings: &Settings) -> Result<Vec<TlsError>, TlsError> {
        let mut stayed = Vec::new();
        let clients = settings.sites.iter().filter_map(|site| site.tls.clients.as_ref());
        let clients = clients.map(|clients| (clients.authorities.clone(), clients));
        let authorities = read_or_kept(clients, read_clients, &self.authorities, &mut stayed)?;
        let backends = backends(settings).filter_map(|backend| Some((roots_key(&backend.trust)?, backend)));
        let roots = |backend: &BackendTls| Ok(read_roots(backend)?.map(|(_, pem)| pem).unwrap_or_default());
        self.roots = read_or_kept(backends, roots, &self.roots, &mut stayed)?;
        self.authorities = authorities;
        Ok(stayed)
    }

    /// Puts a pair in the place of the one before.
    pub fn renew(&mut self, key: PairKey, pair: Pair) {
        self.pairs.retain(|(known, _)| *known != key);
        self.pairs.push((key, pair));
    }
}

/// What tells one way to applications from another.
struct Way {
    roots: Option<Arc<TrustedRoots>>,
    identity: Option<PairKey>,
    protocol: BackendProtocol,
}

/// What there is to tell a process that serves: all of it at its start, then what has changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsUpdate {
    /// Of the settings.
    pub files: TlsFiles,
    /// Of names whose certificates are automatic.
    pub automatic: Vec<(String, Pair)>,
    /// [`TicketKeys::to_bytes`].
    pub tickets: Option<Vec<u8>>,
    /// `HTTP-01`: token to answer; `None`: over.
    pub tokens: Vec<(String, Option<String>)>,
    /// `TLS-ALPN-01`: name to certificate; `None`: over.
    pub challenges: Vec<(String, Option<Pair>)>,
}

/// What the TLS connections of a process share.
pub struct TlsStore {
    /// Of files that the settings name.
    slots: Mutex<HashMap<PairKey, Arc<Slot>>>,
    /// Of the clients' authorities.
    authorities: Mutex<HashMap<PathBuf, Arc<ClientAuthorities>>>,
    /// Of the applications' authorities.
    roots: Mutex<HashMap<PathBuf, Arc<TrustedRoots>>>,
    /// The ways to applications that are in use, so that what asks for the same shares one, with its sessions.
    connectors: Mutex<Vec<(Way, Weak<Connector>)>>,
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
    ///
    /// # Errors
    /// The system gives no random bytes for the ticket keys.
    pub fn new() -> Result<Arc<TlsStore>, TicketKeysError> {
        Ok(Arc::new(TlsStore {
            slots: Mutex::default(),
            authorities: Mutex::default(),
            roots: Mutex::default(),
            connectors: Mutex::default(),
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

    /// The answer to a token.
    pub fn token(&self, token: &str) -> Option<String> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    /// Takes in what has changed. Each part stands for itself; what is wrong with any is returned.
    pub fn apply(&self, update: &TlsUpdate) -> Vec<String> {
        let mut wrong = self.take(&update.files);
        for (name, pair) in &update.automatic {
            match Certificate::new(pair) {
                Ok(certificate) => self.automatic_slot(name).fill(certificate),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        if let Some(tickets) = &update.tickets {
            wrong.extend(self.tickets.replace(tickets).err().map(|error| error.to_string()));
        }
        {
            let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
            for (token, answer) in &update.tokens {
                match answer {
                    Some(answer) => drop(tokens.insert(token.clone(), answer.clone())),
                    None => drop(tokens.remove(token)),
                }
            }
        }
        for (name, pair) in &update.challenges {
            match pair {
                Some(pair) => {
                    wrong.extend(self.challenges.set(name, pair).err().map(|error| error.to_string()));
                }
                None => self.challenges.remove(name),
            }
        }
        wrong
    }

    /// Takes in the files of a revision; what is wrong with any.
    pub fn take(&self, files: &TlsFiles) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, pair) in &files.pairs {
            wrong.extend(self.fill(key, pair).err().map(|error| error.to_string()));
        }
        for (path, pem) in &files.authorities {
            match ClientAuthorities::new(&path.display().to_string(), pem.as_bytes()) {
                Ok(known) => drop(lock(&self.authorities).insert(path.clone(), known)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        for (path, pem) in &files.roots {
            let name = if path.as_os_str().is_empty() { "the system's" } else { "its" };
            match TrustedRoots::new(&format!("{name} list of authorities {}", path.display()), pem.as_bytes())
            {
                Ok(read) => {
                    let mut roots = lock(&self.roots);
                    // The same text keeps its connectors, and those the sessions that may be resumed.
                    if roots.get(path).is_none_or(|known| !known.is_same_as(&read)) {
                        roots.insert(path.clone(), read);
                    }
                }
                Err(error) => wrong.push(error.to_string()),
            }
        }
        wrong
    }

    /// The way to an application; its files have been put in before.
    ///
    /// # Errors
    /// Its list of authorities has not been put in, or no connections can be made by these terms.
    pub fn connector(&self, backend: &BackendTls) -> Result<Arc<Connector>, TlsError> {
        let roots = roots_key(&backend.trust);
        let unread = || TlsError::Certificate {
            origin: backend.origin.clone(),
            error: CertificateError::Unreadable {
                path: roots.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
                why: "it has not been read".into(),
            },
        };
        let roots = match &roots {
            None => None,
            Some(path) => Some(lock(&self.roots).get(path).cloned().ok_or_else(unread)?),
        };
        let identity = backend.identity.as_ref().map(key_of);
        let mut connectors = lock(&self.connectors);
        connectors.retain(|(_, connector)| connector.strong_count() > 0);
        let is_same = |way: &Way| {
            let same_roots = match (&way.roots, &roots) {
                (None, None) => true,
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                _ => false,
            };
            same_roots && way.identity == identity && way.protocol == backend.protocol
        };
        let known = connectors.iter().find(|(way, _)| is_same(way));
        if let Some(connector) = known.and_then(|(_, connector)| connector.upgrade()) {
            return Ok(connector);
        }
        let trust = roots.clone().map_or(Trust::Anybody, Trust::Roots);
        let protocols = match backend.protocol {
            BackendProtocol::Http1 => vec![b"http/1.1".to_vec()],
            BackendProtocol::Http2 => vec![b"h2".to_vec()],
            BackendProtocol::Ldap => Vec::new(),
        };
        let options = ConnectorOptions {
            protocols,
            identity: identity.as_ref().map(|key| self.slot(key)),
            ..ConnectorOptions::new(trust)
        };
        let made = Connector::new(&options)
            .map_err(|error| TlsError::Backend { origin: backend.origin.clone(), error })?;
        let way = Way { roots, identity, protocol: backend.protocol };
        connectors.push((way, Arc::downgrade(&made)));
        Ok(made)
    }

    /// The terms of a revision; its certificates have been put in before.
    ///
    /// # Errors
    /// The authorities of a site's clients have not been put in, or the terms of a site cannot be served.
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

    /// Lets go of what neither `present`, the files of the revision in force, nor anybody who still serves by another
    /// one uses: a revision that was given up leaves nothing.
    pub fn settle(&self, present: &TlsFiles) {
        lock(&self.made).retain(|(settings, _)| settings.strong_count() > 0);
        lock(&self.connectors).retain(|(_, connector)| connector.strong_count() > 0);
        let is_named = |key: &PairKey| present.pairs.iter().any(|(known, _)| known == key);
        lock(&self.slots).retain(|key, slot| Arc::strong_count(slot) > 1 || is_named(key));
        let is_named = |path: &PathBuf| present.authorities.iter().any(|(known, _)| known == path);
        lock(&self.authorities).retain(|path, known| Arc::strong_count(known) > 1 || is_named(path));
        let is_named = |path: &PathBuf| present.roots.iter().any(|(known, _)| known == path);
        lock(&self.roots).retain(|path, known| Arc::strong_count(known) > 1 || is_named(path));
    }

    /// Certificates and lists of authorities that it holds, for tests.
    pub fn held(&self) -> (usize, usize, usize, usize) {
        let made = lock(&self.made).len();
        (lock(&self.slots).len(), lock(&self.authorities).len(), lock(&self.roots).len(), made)
    }

    /// Puts a pair in the place of what its files held before.
    ///
    /// # Errors
    /// The pair cannot be used; what was there before stays.
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

/// What the slot of a pair is known by.
pub fn key_of(files: &CertificateFiles) -> PairKey {
    (files.certificate.clone(), files.key.clone())
}

/// What whom a backend is trusted by is known by: the file, or no path for the system's. `None`: everybody is trusted.
fn roots_key(trust: &BackendTrust) -> Option<PathBuf> {
    match trust {
        BackendTrust::Anybody => None,
        BackendTrust::Roots(path) => Some(path.clone()),
        BackendTrust::System => Some(PathBuf::new()),
    }
}

/// TLS with applications and directories, wherever it stands.
pub fn backends(settings: &Settings) -> impl Iterator<Item = &BackendTls> {
    settings.backends()
}

/// A pair that can be served.
fn usable(files: &CertificateFiles) -> Result<Pair, CertificateError> {
    let pair = Pair::read(&files.certificate, &files.key)?;
    Certificate::new(&pair)?;
    Ok(pair)
}

/// Reads each file once. One that cannot be used is as it was `before`, which `stayed` hears.
fn read_or_kept<'s, T: 's>(
    wanted: impl Iterator<Item = (PathBuf, &'s T)>,
    read: impl Fn(&T) -> Result<String, TlsError>,
    before: &[(PathBuf, String)],
    stayed: &mut Vec<TlsError>,
) -> Result<Vec<(PathBuf, String)>, TlsError> {
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut found = Vec::new();
    for (path, who) in wanted {
        if !seen.insert(path.clone()) {
            continue;
        }
        let pem = read(who).or_else(|error| {
            let known = before.iter().find(|(known, _)| *known == path);
            let Some((_, pem)) = known else { return Err(error) };
            stayed.push(error);
            Ok(pem.clone())
        })?;
        found.push((path, pem));
    }
    Ok(found)
}

/// Reads who signs the certificates of clients.
///
/// # Errors
/// The file cannot be read, or holds no usable list of authorities.
pub fn read_clients(clients: &ClientCertificates) -> Result<String, TlsError> {
    let at_fault = |error| TlsError::Certificate { origin: clients.origin.clone(), error };
    let path = &clients.authorities;
    let pem = tidegate_tls::certificate::read_file(path).map_err(at_fault)?;
    ClientAuthorities::new(&path.display().to_string(), &pem).map_err(at_fault)?;
    Ok(String::from_utf8_lossy(&pem).into_owned())
}

/// Reads whom a backend is trusted by, and looks at its name; `None` where everybody is.
///
/// # Errors
/// Its name is none that a server could have, or the file cannot be read or holds no usable authority.
pub fn read_roots(backend: &BackendTls) -> Result<Option<(PathBuf, String)>, TlsError> {
    let at_fault = |error| TlsError::Certificate { origin: backend.origin.clone(), error };
    Connector::name(&backend.name)
        .map_err(|error| TlsError::Backend { origin: backend.origin.clone(), error })?;
    let Some(key) = roots_key(&backend.trust) else { return Ok(None) };
    let path = if key.as_os_str().is_empty() { system_roots() } else { key.clone() };
    let pem = tidegate_tls::certificate::read_file(&path).map_err(at_fault)?;
    TrustedRoots::new(&path.display().to_string(), &pem).map_err(at_fault)?;
    Ok(Some((key, String::from_utf8_lossy(&pem).into_owned())))
}

/// Every pair that is to be read and watched: those that are served, and those that applications are shown.
pub fn pair_files(settings: &Settings) -> impl Iterator<Item = &CertificateFiles> {
    settings.pairs()
}

/// Every pair that is served, where it stands.
pub fn certificate_files(settings: &Settings) -> impl Iterator<Item = &CertificateFiles> {
    settings.served_pairs()
}

/// The names whose certificates are automatic: those of sites without one of their own, where a listener has
/// none for them either. None of sites that are left out. In the order of the settings, each once.
pub fn automatic_names(settings: &Settings) -> Vec<String> {
    let is_wanted = settings
        .listeners
        .iter()
        .any(|listener| listener.tls.as_ref().is_some_and(|tls| tls.certificate.is_none()));
    let is_automatic = |site: &&Arc<Site>| site.left_out.is_none() && site.tls.certificates.is_empty();
    let sites = settings.sites.iter().filter(|_| is_wanted).filter(is_automatic);
    let names = sites.flat_map(|site| &site.names).map(ToString::to_string);
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// The terms of every site on every listener, and what each site demands of connections, wherever it is asked.
pub struct TlsSites {
    /// By site.
    demands: Vec<Demands>,
    /// By listener, then by site; empty for a plain listener.
    terms: Vec<Vec<Arc<SiteConfig>>>,
    /// Of the sites that are named by addresses, for clients that name no site: by listener and address.
    by_address: HashMap<(usize, IpAddr), Arc<SiteConfig>>,
}

/// What a connection has to be for requests to a site, whichever name it was opened for.
struct Demands {
    /// [`ClientPolicy::scope`].
    clients: Vec<u8>,
    without_tls12: bool,
    without_tls13: bool,
    without_h2: bool,
    without_http11: bool,
}

impl Demands {
    fn of(site: &Site, clients: &ClientPolicy) -> Demands {
        let SiteTls { without_tls12, without_tls13, without_h2, without_http11, .. } = site.tls;
        Demands { clients: clients.scope(), without_tls12, without_tls13, without_h2, without_http11 }
    }

    fn hold(&self, made: &Handshake) -> bool {
        let is_without_version = if made.is_tls13() { self.without_tls13 } else { self.without_tls12 };
        let is_without_protocol = match made.protocol {
            Some(b"h2") => self.without_h2,
            Some(_) => self.without_http11,
            None => false, // as in the handshake: nothing was agreed upon
        };
        made.site.clients() == self.clients && !is_without_version && !is_without_protocol
    }
}

impl TlsSites {
    fn new(store: &TlsStore, settings: &Settings) -> Result<TlsSites, TlsError> {
        let mut policies = Vec::with_capacity(settings.sites.len());
        for site in &settings.sites {
            let Some(clients) = &site.tls.clients else {
                policies.push(ClientPolicy::None);
                continue;
            };
            let known = lock(&store.authorities).get(&clients.authorities).cloned();
            let unread = || TlsError::Certificate {
                origin: clients.origin.clone(),
                error: CertificateError::Unreadable {
                    path: clients.authorities.display().to_string(),
                    why: "it has not been read".into(),
                },
            };
            let known = known.ok_or_else(unread)?;
            policies.push(if clients.is_required {
                ClientPolicy::Required(known)
            } else {
                ClientPolicy::Optional(known)
            });
        }
        let mut terms = Vec::with_capacity(settings.listeners.len());
        let mut by_address = HashMap::new();
        for (index, listener) in settings.listeners.iter().enumerate() {
            let mut of_listener = Vec::new();
            for (site, clients) in settings.sites.iter().zip(&policies).filter(|_| listener.tls.is_some()) {
                let mut wanted = terms_of(store, listener, site, clients.clone());
                let make = |wanted: &Terms| {
                    SiteConfig::new(wanted, &store.tickets)
                        .map_err(|error| TlsError::Terms { origin: site.origin.clone(), error })
                };
                of_listener.push(make(&wanted)?);
                for address in site.names.iter().filter_map(address_of).filter(|_| site.is_on(listener)) {
                    wanted.unnamed = Some(address.to_string());
                    by_address.insert((index, address), make(&wanted)?);
                }
            }
            terms.push(of_listener);
        }
        let demands =
            settings.sites.iter().zip(&policies).map(|(site, clients)| Demands::of(site, clients)).collect();
        Ok(TlsSites { demands, terms, by_address })
    }

    /// Whether a connection, made for whatever site, listener and revision, holds for a site as well: what was asked of its client is
    /// what this site asks, and it speaks what this site speaks. Listeners have no part in it, so that it stays right when one goes.
    #[inline]
    pub fn admits(&self, site: usize, made: &Handshake) -> bool {
        self.demands.get(site).is_some_and(|demands| demands.hold(made))
    }

    /// The terms of the site that is named by the address that a client has connected to, where one is.
    pub fn at_address(
        &self,
        listener: usize,
        local: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<&Arc<SiteConfig>> {
        if self.by_address.is_empty() {
            return None;
        }
        self.by_address.get(&(listener, local()?.to_canonical()))
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
        unnamed: None,
        versions: Versions { tls12: !site.tls.without_tls12, tls13: !site.tls.without_tls13 },
        protocols: protocols(site),
        clients,
        takes_early_data: site.tls.takes_early_data,
    }
}

/// The address that a name of a site is, if it is one.
fn address_of(name: &HostPattern) -> Option<IpAddr> {
    let HostPattern::Exact(name) = name else { return None };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    literal.parse().ok()
}

/// What tells a site from others, in every revision of the settings and in every process.
fn scope(site: &Site) -> String {
    site.names.iter().map(HostPattern::to_string).collect::<Vec<_>>().join(" ")
}

/// The protocols that a client may choose from, best first (RFC 7301).
fn protocols(site: &Site) -> Protocols {
    let h2 = (!site.tls.without_h2).then(|| b"h2".to_vec());
    let http11 = (!site.tls.without_http11).then(|| b"http/1.1".to_vec());
    h2.into_iter().chain(http11).collect()
}
