//! Lists of networks and databases of countries: what access asks of files, without a process that serves reading one.
//!
//! The master reads a file ([`AccessFile::read`]) into sealed memory and passes that on; every server process maps it, once
//! for all of its workers ([`AccessStore`], one for each process). A file that has changed comes the same way: its slot gets
//! what is new, and the next request that asks finds it. Nobody waits for anybody. An [`AccessView`]
//! is what the routes of one site ask, of one worker.

use crate::client_names::{ClientName, ClientNames};
use arc_swap::ArcSwapOption;
use maxminddb::{PathElement, Reader};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, OnceCell};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_config::settings::{
    ClientFacts, Condition, Country, HostPattern, NetworkTable, Origin, Route, Settings, Site, Whom,
};
use tidegate_io::sealed::{SealedBytes, seal};

/// The largest file, bytes.
const FILE_SIZE: u64 = 512 << 20;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DataKind {
    /// Networks, line by line.
    Networks,
    /// A database of countries.
    Countries,
}

/// Which file, and what for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DataKey {
    /// What it holds.
    pub kind: DataKind,
    /// Absolute.
    #[serde(with = "tidegate_config::path_encoding::path")]
    pub path: PathBuf,
}

/// Every file of these routes; one may come several times.
fn keys_of(routes: &[Route]) -> impl Iterator<Item = (DataKey, &Origin)> {
    let key = |path: &Path| DataKey { kind: DataKind::Networks, path: path.to_owned() };
    let rules = routes.iter().flat_map(|route| &route.access.levels).flat_map(|rules| rules.others());
    let of_rules = rules.filter_map(move |rule| match &rule.whom {
        Whom::List(path) => Some((key(path), &rule.origin)),
        Whom::Network(_) | Whom::Countries(_) | Whom::Names(_) => None,
    });
    let clauses = routes.iter().flat_map(|route| &route.conditions);
    let of_clauses = clauses.flat_map(move |clause| {
        let parts = clause.condition.parts().into_iter();
        let lists = parts.filter_map(|part| match part {
            Condition::ClientList(lists) => Some(lists),
            _ => None,
        });
        lists.flatten().map(move |list| (key(&list.0), &clause.origin)).collect::<Vec<_>>()
    });
    of_rules.chain(of_clauses)
}

/// The list files of a site, with where each is named first.
pub fn lists_of(site: &Site) -> Vec<(DataKey, Origin)> {
    let mut seen = HashSet::new();
    let new = keys_of(&site.routes).filter(|(key, _)| seen.insert(key.clone()));
    new.map(|(key, origin)| (key, origin.clone())).collect()
}

/// The database of countries.
pub fn database_of(settings: &Settings) -> Option<(DataKey, Origin)> {
    let database = settings.country_database.as_ref()?;
    Some((DataKey { kind: DataKind::Countries, path: database.path.clone() }, database.origin.clone()))
}

/// Every file that settings name, once.
pub fn keys(settings: &Settings) -> Vec<DataKey> {
    let of_sites = settings.sites.iter().flat_map(|site| keys_of(&site.routes)).map(|(key, _)| key);
    let mut keys: Vec<DataKey> = of_sites.chain(database_of(settings).map(|(key, _)| key)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// A file that was read, as it is passed on.
#[derive(Debug, Clone)]
pub struct AccessFile {
    /// Which one.
    pub key: DataKey,
    memory: Arc<OwnedFd>,
    /// What is in it, for a message.
    pub contents: String,
}

impl AccessFile {
    /// Reads a file and looks it over.
    ///
    /// # Errors
    /// A sentence with its path: it cannot be read, or is none of its kind.
    pub fn read(key: &DataKey) -> Result<AccessFile, String> {
        let shown = key.path.display();
        let bytes = read(&key.path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let (bytes, contents) = match key.kind {
            DataKind::Networks => {
                let bytes =
                    NetworkTable::encode(&bytes).map_err(|(line, why)| format!("{shown}:{line}: {why}"))?;
                let table = NetworkTable::new(bytes.as_slice());
                let entries = table.map_or(0, |table| table.entries());
                (bytes, format!("{entries} network{}", if entries == 1 { "" } else { "s" }))
            }
            DataKind::Countries => {
                let wrong = |error: maxminddb::MaxMindDbError| {
                    format!("{shown} is no database of countries that is whole: {error}")
                };
                let reader = Reader::from_source(bytes.as_slice()).map_err(wrong)?;
                reader.verify().map_err(wrong)?;
                let contents =
                    format!("{} of {}", reader.metadata().database_type, reader.metadata().build_epoch);
                drop(reader);
                (bytes, contents)
            }
        };
        let memory = seal("tidegate-access", &bytes).map_err(|error| format!("{shown}: {error}"))?;
        Ok(AccessFile { key: key.clone(), memory: Arc::new(memory), contents })
    }

    /// Its memory.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(there.len().min(FILE_SIZE)).unwrap_or(0));
    file.take(FILE_SIZE + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_SIZE {
        true => Err(io::Error::other(format!("it is larger than {} MiB", FILE_SIZE >> 20))),
        false => Ok(bytes),
    }
}

/// The files of a revision, read and found to be good.
#[derive(Debug, Clone, Default)]
pub struct AccessFiles {
    files: Vec<AccessFile>,
}

impl AccessFiles {
    /// Reads every file that settings name, but for those that were `found` to be good just before. One that cannot be used
    /// is what it is in `present`: it belongs to a site that stays as it was.
    ///
    /// # Errors
    /// A file cannot be read or used, and `present` has nothing in its place.
    pub fn read(
        settings: &Settings,
        present: &AccessFiles,
        found: &[AccessFile],
    ) -> Result<AccessFiles, String> {
        let mut files = Vec::new();
        for key in keys(settings) {
            let known = found.iter().find(|known| known.key == key).cloned();
            let file = known.map_or_else(|| AccessFile::read(&key), Ok);
            files.push(file.or_else(|why| present.get(&key).cloned().ok_or(why))?);
        }
        Ok(AccessFiles { files })
    }

    /// All of them.
    pub fn all(&self) -> &[AccessFile] {
        &self.files
    }

    fn get(&self, key: &DataKey) -> Option<&AccessFile> {
        self.files.iter().find(|known| known.key == *key)
    }

    /// Puts a file in the place of the one before.
    pub fn renew(&mut self, file: AccessFile) {
        self.files.retain(|known| known.key != file.key);
        self.files.push(file);
    }
}

/// What a file says.
enum Data {
    Networks(NetworkTable<SealedBytes>),
    Countries(Reader<SealedBytes>),
}

/// Where what a file says stands, for all workers of a process.
type Slot = ArcSwapOption<Data>;

/// What access has of files in this process.
#[derive(Default)]
pub struct AccessStore {
    slots: Mutex<HashMap<DataKey, Arc<Slot>>>,
    /// `explain`: every client is of this country.
    assumed: Mutex<Option<Country>>,
    /// `explain`: every client is called so.
    assumed_name: Mutex<Option<ClientName>>,
    names: Arc<ClientNames>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AccessStore {
    /// Takes what the master has read. Who asks from here on gets it.
    ///
    /// # Errors
    /// It is nothing that the master has made, or there is no memory left.
    pub fn provide(&self, key: &DataKey, memory: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = SealedBytes::map(memory)?;
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "it is not what the master has made");
        let data = match key.kind {
            DataKind::Networks => Data::Networks(NetworkTable::new(bytes).ok_or_else(broken)?),
            DataKind::Countries => Data::Countries(Reader::from_source(bytes).map_err(|_| broken())?),
        };
        self.slot(key).store(Some(Arc::new(data)));
        Ok(())
    }

    /// All of a revision.
    ///
    /// # Errors
    /// As [`AccessStore::provide`].
    pub fn take(&self, files: &AccessFiles) -> io::Result<()> {
        files.all().iter().try_for_each(|file| self.provide(&file.key, file.memory()))
    }

    /// Lets go of what no settings but these name.
    pub fn settle(&self, present: &Settings) {
        let used: HashSet<DataKey> = keys(present).into_iter().collect();
        lock(&self.slots).retain(|key, _| used.contains(key));
    }

    /// How many files it has.
    pub fn held(&self) -> usize {
        lock(&self.slots).len()
    }

    /// Has every client be of a country, for `explain`.
    pub fn assume(&self, country: Country) {
        *lock(&self.assumed) = Some(country);
    }

    /// Has every client be called so, for `explain`.
    pub fn assume_name(&self, name: ClientName) {
        *lock(&self.assumed_name) = Some(name);
    }

    /// What clients are called.
    pub fn names(&self) -> &Arc<ClientNames> {
        &self.names
    }

    fn slot(&self, key: &DataKey) -> Arc<Slot> {
        lock(&self.slots).entry(key.clone()).or_default().clone()
    }

    /// What the routes of a site ask, for one worker.
    ///
    /// # Errors
    /// A file has not been put in. Nobody is served as if it were empty.
    pub fn view(&self, site: &Site, settings: &Settings) -> io::Result<AccessView> {
        let watch = |key: &DataKey| {
            let slot = self.slot(key);
            if slot.load().is_none() {
                let shown = key.path.display();
                return Err(io::Error::other(format!("{shown} has not been read, and access asks for it")));
            }
            Ok(slot)
        };
        let lists = lists_of(site).into_iter().map(|(key, _)| Ok((watch(&key)?, key.path)));
        Ok(AccessView {
            lists: lists.collect::<io::Result<_>>()?,
            countries: database_of(settings).map(|(key, _)| watch(&key)).transpose()?,
            assumed: *lock(&self.assumed),
            assumed_name: lock(&self.assumed_name).clone(),
            names: self.names.clone(),
        })
    }
}

/// What the routes of a site may ask of files. One for each site and worker.
#[derive(Default)]
pub struct AccessView {
    lists: Vec<(Arc<Slot>, PathBuf)>,
    countries: Option<Arc<Slot>>,
    assumed: Option<Country>,
    assumed_name: Option<ClientName>,
    names: Arc<ClientNames>,
}

impl AccessView {
    /// With the time of a request.
    #[inline]
    pub(crate) fn at(&self, now: i64) -> FactsAt<'_> {
        FactsAt { view: self, now, name: OnceCell::new(), asked: Cell::new(NameAsked::No) }
    }

    /// The same where it has been found out what the client is called.
    #[inline]
    pub(crate) fn knowing(&self, now: i64, name: Option<&ClientName>) -> FactsAt<'_> {
        let name = name.map_or_else(OnceCell::new, |name| Some(name.clone()).into());
        FactsAt { name, ..self.at(now) }
    }

    /// What clients are called.
    pub(crate) fn names(&self) -> &Arc<ClientNames> {
        &self.names
    }

    /// What a client is called, where that is known. Else it is asked for, for whoever comes next.
    pub(crate) fn name_hint(&self, client: IpAddr) -> Option<Arc<str>> {
        match &self.assumed_name {
            Some(assumed) => assumed.known().cloned(),
            None => self.names.hint(client),
        }
    }

    /// The country of an address.
    pub(crate) fn country(&self, client: Option<IpAddr>) -> Country {
        if let Some(assumed) = self.assumed {
            return assumed;
        }
        let known =
            client.zip(self.countries.as_ref()).and_then(|(client, slot)| match &**slot.load().as_ref()? {
                Data::Countries(reader) => country_in(reader, client.to_canonical()),
                Data::Networks(_) => None,
            });
        known.unwrap_or(Country::UNKNOWN)
    }
}

/// The country in which an address is used; where the database has none, the one in which it is registered.
fn country_in<S: AsRef<[u8]>>(reader: &Reader<S>, client: IpAddr) -> Option<Country> {
    const WAYS: [&[PathElement<'static>]; 3] = [
        &[PathElement::Key("country"), PathElement::Key("iso_code")],
        &[PathElement::Key("registered_country"), PathElement::Key("iso_code")],
        &[PathElement::Key("country_code")],
    ];
    let found = reader.lookup(client).ok()?;
    let read = |way: &&[PathElement<'static>]| {
        found.decode_path::<&str>(way).ok().flatten().and_then(Country::of_database)
    };
    WAYS.iter().find_map(read)
}

/// An [`AccessView`] at a time.
pub(crate) struct FactsAt<'v> {
    view: &'v AccessView,
    now: i64,
    /// What the client is called, once that was looked for; `None` where it is not remembered.
    name: OnceCell<Option<ClientName>>,
    asked: Cell<NameAsked>,
}

/// Whether a rule has wanted the name of the client, and not got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameAsked {
    No,
    /// It is not remembered: what has been decided without it means nothing.
    Wanted,
    /// The name servers have not answered, and it would be let in or refused by its name.
    Unanswered {
        could_allow: bool,
        could_deny: bool,
    },
}

impl FactsAt<'_> {
    /// What the rules have wanted.
    pub(crate) fn name_asked(&self) -> NameAsked {
        self.asked.get()
    }
}

impl ClientFacts for FactsAt<'_> {
    fn is_listed(&self, list: &Path, client: IpAddr) -> bool {
        let path = list.as_os_str().as_bytes();
        let mut lists = self.view.lists.iter();
        let Some((slot, _)) = lists.find(|(_, known)| known.as_os_str().as_bytes() == path) else {
            return false;
        };
        match slot.load().as_deref() {
            Some(Data::Networks(table)) => table.contains(client),
            Some(Data::Countries(_)) | None => false,
        }
    }

    fn country(&self, client: IpAddr) -> Country {
        self.view.country(Some(client))
    }

    fn is_named(&self, client: IpAddr, names: &[HostPattern], allows: bool) -> bool {
        let look = || self.view.assumed_name.clone().or_else(|| self.view.names.known(client));
        let Some(name) = self.name.get_or_init(look) else {
            self.asked.set(NameAsked::Wanted);
            return false;
        };
        if *name == ClientName::Unanswered && self.asked.get() != NameAsked::Wanted {
            let (allow, deny) = match self.asked.get() {
                NameAsked::Unanswered { could_allow, could_deny } => (could_allow, could_deny),
                NameAsked::No | NameAsked::Wanted => (false, false),
            };
            self.asked
                .set(NameAsked::Unanswered { could_allow: allow || allows, could_deny: deny || !allows });
        }
        name.is_among(names)
    }

    fn now(&self) -> i64 {
        self.now
    }
}
