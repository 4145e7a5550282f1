//! Lists of networks and databases of countries: what access asks of files, without a process that serves reading one.
//!
//! The master reads files ([`AccessReader`]) into sealed memory and passes that on; every server process maps it, once
//! for all of its workers ([`AccessStore`], one for each process). A file that has changed comes the same way: its slot gets
//! what is new, and the next request that asks finds it. Nobody waits for anybody. An [`AccessView`]
//! is what the routes of one site ask, of one worker.
//!
//! What very many files say lies in few memories, since each is a descriptor. A file that is read anew lies in a new one;
//! before these become many, or most of one is what no file says any more, what is in them is put together anew
//! ([`AccessFiles::gather`]).

use crate::client_names::{ClientName, ClientNames};
use arc_swap::ArcSwapOption;
use maxminddb::{PathElement, Reader};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tidegate_config::settings::{
    ClientFacts, Condition, Country, HostPattern, NetworkTable, Origin, Route, Settings, Site, Whom,
};
use tidegate_io::locking::lock;
use tidegate_io::regular::read_regular;
use tidegate_io::sealed::{MEMORY, Piece, SealedBytes, Sealer};

/// The largest file, bytes.
pub(crate) const FILE_SIZE: u64 = 512 << 20;
/// The most memories that are not full.
const SMALL_MEMORIES: usize = 32;

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
    range: Range<usize>,
    /// What is in it, for a message.
    pub contents: String,
}

/// Where what was read of a file lies in the memories that come with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPlace {
    /// Which file.
    pub key: DataKey,
    /// The number of its memory.
    pub memory: usize,
    /// Its bytes there.
    pub range: Range<usize>,
}

/// Reads files and looks them over, each once.
pub struct AccessReader {
    sealer: Sealer,
    read: HashMap<DataKey, Result<(Piece, String), String>>,
}

impl Default for AccessReader {
    fn default() -> AccessReader {
        AccessReader { sealer: Sealer::new("tidegate-access"), read: HashMap::new() }
    }
}

impl AccessReader {
    /// Reads a file, unless it was read.
    ///
    /// # Errors
    /// A sentence with its path: it cannot be read, or is none of its kind.
    pub fn read(&mut self, key: &DataKey) -> Result<(), String> {
        if !self.read.contains_key(key) {
            let shown = key.path.display();
            let read = look_over(key).and_then(|(bytes, contents)| {
                let piece = self.sealer.add(&bytes).map_err(|error| format!("{shown}: {error}"))?;
                Ok((piece, contents))
            });
            self.read.insert(key.clone(), read);
        }
        self.read.get(key).map_or(Ok(()), |read| read.as_ref().map(drop).map_err(Clone::clone))
    }

    /// What was read and is good.
    ///
    /// # Errors
    /// The system does not seal.
    pub fn finish(self) -> io::Result<Vec<AccessFile>> {
        let memories: Vec<Arc<OwnedFd>> = self.sealer.seal()?.into_iter().map(Arc::new).collect();
        let file = |(key, (Piece { memory, range }, contents))| {
            let memory = Arc::clone(memories.get(memory)?);
            Some(AccessFile { key, memory, range, contents })
        };
        let good = self.read.into_iter().filter_map(|(key, read)| Some((key, read.ok()?)));
        Ok(good.filter_map(file).collect())
    }
}

/// Reads a file: what a process gets of it, and what is in it.
fn look_over(key: &DataKey) -> Result<(Vec<u8>, String), String> {
    let shown = key.path.display();
    let bytes = read_regular(&key.path, FILE_SIZE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} cannot be read: there is no such file"),
        _ => format!("{shown} cannot be read: {error}"),
    })?;
    match key.kind {
        DataKind::Networks => {
            let bytes =
                NetworkTable::encode(&bytes).map_err(|(line, why)| format!("{shown}:{line}: {why}"))?;
            let table = NetworkTable::new(bytes.as_slice());
            let entries = table.map_or(0, |table| table.entries());
            Ok((bytes, format!("{entries} network{}", if entries == 1 { "" } else { "s" })))
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
            Ok((bytes, contents))
        }
    }
}

/// Files as they are passed on: where each lies, and the memories, each once.
pub fn places<'a>(files: impl IntoIterator<Item = &'a AccessFile>) -> (Vec<DataPlace>, Vec<Arc<OwnedFd>>) {
    let (mut memories, mut numbers) = (Vec::new(), HashMap::new());
    let place = |file: &AccessFile| {
        let memory = *numbers.entry(Arc::as_ptr(&file.memory)).or_insert_with(|| {
            memories.push(file.memory.clone());
            memories.len() - 1
        });
        DataPlace { key: file.key.clone(), memory, range: file.range.clone() }
    };
    let places = files.into_iter().map(place).collect();
    (places, memories)
}

/// The files of a revision, read and found to be good.
#[derive(Debug, Clone, Default)]
pub struct AccessFiles {
    files: Arc<BTreeMap<DataKey, AccessFile>>,
}

impl AccessFiles {
    /// Every file that settings name: those that were `found` to be good just before, and the others read here. One that
    /// cannot be used is what it is in `present`: it belongs to a site that stays as it was.
    ///
    /// # Errors
    /// A file cannot be read or used, and `present` has nothing in its place.
    pub fn read(
        settings: &Settings,
        present: &AccessFiles,
        found: Vec<AccessFile>,
    ) -> Result<AccessFiles, String> {
        let mut found: BTreeMap<DataKey, AccessFile> =
            found.into_iter().map(|file| (file.key.clone(), file)).collect();
        let (mut files, mut reader) = (BTreeMap::new(), AccessReader::default());
        for key in keys(settings) {
            let file = match found.remove(&key) {
                Some(file) => Some(file),
                None => match reader.read(&key) {
                    Ok(()) => None,
                    Err(why) => Some(present.files.get(&key).cloned().ok_or(why)?),
                },
            };
            files.extend(file.map(|file| (key, file)));
        }
        let read = reader.finish().map_err(|error| error.to_string())?;
        files.extend(read.into_iter().map(|file| (file.key.clone(), file)));
        let mut files = AccessFiles { files: Arc::new(files) };
        files.gather().map_err(|error| error.to_string())?;
        Ok(files)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &AccessFile> + Clone {
        self.files.values()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Puts a file in the place of the one before.
    pub fn renew(&mut self, file: AccessFile) {
        Arc::make_mut(&mut self.files).insert(file.key.clone(), file);
    }

    /// Puts together anew what lies in too many memories, or in one that has become half empty: those that lie elsewhere now.
    /// What lies in a memory that is full enough stays where it is.
    ///
    /// # Errors
    /// There is no descriptor or no memory left. Everything lies where it did.
    pub fn gather(&mut self) -> io::Result<Vec<AccessFile>> {
        let (places, memories) = places(self.all());
        let mut used = vec![0; memories.len()];
        places.iter().for_each(|place| used[place.memory] += place.range.len());
        let size = |memory: &Arc<OwnedFd>| rustix::fs::fstat(memory).map(|stat| stat.st_size as usize);
        let sizes = memories.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let are_many = sizes.iter().filter(|size| **size < MEMORY).count() > SMALL_MEMORIES;
        let moves = |number: usize| {
            let is_sparse = used[number] < sizes[number] / 2 && sizes[number] > MEMORY / 2;
            is_sparse || are_many && sizes[number] < MEMORY
        };
        let mut sealer = Sealer::new("tidegate-access");
        let (mut mapped, mut pieces) = (HashMap::new(), Vec::new());
        for place in places.iter().filter(|place| moves(place.memory)) {
            let bytes = match mapped.get(&place.memory) {
                Some(bytes) => bytes,
                None => {
                    mapped.entry(place.memory).or_insert(SealedBytes::map(memories[place.memory].as_fd())?)
                }
            };
            let bytes = bytes.get(place.range.clone()).unwrap_or_default();
            pieces.push((&place.key, sealer.add(bytes)?));
        }
        let fresh: Vec<Arc<OwnedFd>> = sealer.seal()?.into_iter().map(Arc::new).collect();
        let mut moved = Vec::new();
        for (key, Piece { memory, range }) in pieces {
            let known = self.files.get(key).zip(fresh.get(memory));
            moved.extend(known.map(|(file, memory)| AccessFile {
                memory: memory.clone(),
                range,
                ..file.clone()
            }));
        }
        moved.iter().for_each(|file| self.renew(file.clone()));
        Ok(moved)
    }
}

/// What a file says.
enum Data {
    Networks(NetworkTable<SealedBytes>),
    Countries(Reader<SealedBytes>),
}

/// Where what a file says stands, for all workers of a process.
type Slot = ArcSwapOption<Data>;

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not what the master has made")
}

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

impl AccessStore {
    /// Takes what the master has read. Who asks from here on gets it. Those that cannot be used, and why: it is nothing that
    /// the master has made, or there is no memory left.
    pub fn provide(&self, places: &[DataPlace], memories: &[OwnedFd]) -> Vec<(PathBuf, io::Error)> {
        // Each is mapped once for all that lies in it.
        let mut mapped: HashMap<usize, SealedBytes> = HashMap::new();
        let mut wrong = Vec::new();
        for DataPlace { key, memory: number, range } in places {
            let known = mapped.get(number).cloned();
            let memory =
                known.map_or_else(|| SealedBytes::map(memories.get(*number).ok_or_else(broken)?.as_fd()), Ok);
            let put = memory.and_then(|memory| {
                let part = memory.part(range.clone()).ok_or_else(broken)?;
                mapped.insert(*number, memory);
                self.put(key, part)
            });
            wrong.extend(put.err().map(|error| (key.path.clone(), error)));
        }
        wrong
    }

    fn put(&self, key: &DataKey, bytes: SealedBytes) -> io::Result<()> {
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
        let (places, memories) = places(files.all());
        let memories = memories.iter().map(|memory| memory.try_clone()).collect::<io::Result<Vec<_>>>()?;
        self.provide(&places, &memories).pop().map_or(Ok(()), |(_, error)| Err(error))
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
        let mut lists = lists.collect::<io::Result<Vec<_>>>()?;
        lists.sort_unstable_by(|(_, one), (_, other)| one.as_os_str().cmp(other.as_os_str()));
        Ok(AccessView {
            lists,
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
    /// In the order of their paths, as bytes.
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
        let lists = &self.view.lists;
        let at = lists.binary_search_by(|(_, known)| known.as_os_str().cmp(list.as_os_str()));
        let Some((slot, _)) = at.ok().and_then(|at| lists.get(at)) else { return false };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> DataKey {
        DataKey { kind: DataKind::Networks, path: format!("/lists/{number}").into() }
    }

    /// A file as it was read, with a memory of its own.
    fn read_alone(number: usize, text: &str, filler: usize) -> AccessFile {
        let mut sealer = Sealer::new("test");
        let piece = sealer.add(&NetworkTable::encode(text.as_bytes()).unwrap()).unwrap();
        sealer.add(&vec![0; filler]).unwrap();
        let memory = Arc::new(sealer.seal().unwrap().remove(0));
        AccessFile { key: key(number), memory, range: piece.range, contents: String::new() }
    }

    fn memories(files: &AccessFiles) -> usize {
        places(files.all()).1.len()
    }

    #[test]
    fn files_that_are_read_anew_one_by_one_come_to_few_memories() {
        let mut files = AccessFiles::default();
        let store = AccessStore::default();
        let (mut most, mut copied) = (0, 0);
        for number in 0..1000 {
            let fresh = read_alone(number, &format!("10.0.{}.{}", number / 200, number % 200), 0);
            files.renew(fresh.clone());
            let moved = files.gather().unwrap();
            copied += moved.len();
            most = most.max(memories(&files));
            let (places, memories) = places(std::iter::once(&fresh).chain(&moved));
            let memories: Vec<OwnedFd> = memories.iter().map(|memory| memory.try_clone().unwrap()).collect();
            assert!(store.provide(&places, &memories).is_empty());
        }
        assert!(most <= SMALL_MEMORIES, "{most}");
        assert!(copied < 20_000, "each change copies all: {copied}");
        for number in (0..1000).step_by(37) {
            let slot = store.slot(&key(number));
            let Some(Data::Networks(table)) = slot.load_full().map(|data| match &*data {
                Data::Networks(table) => Data::Networks(table.clone()),
                Data::Countries(_) => unreachable!("a list"),
            }) else {
                panic!("{number} is not there")
            };
            let address = |last: usize| format!("10.0.{}.{}", last / 200, last % 200).parse().unwrap();
            assert!(table.contains(address(number)) && !table.contains(address(number + 1)), "{number}");
        }
    }

    #[test]
    fn what_no_file_says_any_more_does_not_stay() {
        let mut files = AccessFiles::default();
        files.renew(read_alone(0, "10.0.0.0/8", MEMORY));
        assert_eq!(files.gather().unwrap().len(), 1, "it is one of few in a large memory");
        let (_, memories) = places(files.all());
        assert!(rustix::fs::fstat(&memories[0]).unwrap().st_size < 4096);
        assert!(files.gather().unwrap().is_empty());
    }

    #[test]
    fn what_does_not_lie_in_what_came_is_refused() {
        let (places, memories) = places([&read_alone(0, "10.0.0.0/8", 0)]);
        let memories: Vec<OwnedFd> = memories.iter().map(|memory| memory.try_clone().unwrap()).collect();
        for (memory, range) in [(1, 0..8), (0, 0..usize::MAX), (0, 8..16), (0, 0..8)] {
            let wrong = DataPlace { memory, range: range.clone(), ..places[0].clone() };
            let store = AccessStore::default();
            assert_eq!(store.provide(&[wrong], &memories).len(), 1, "{memory} {range:?}");
            assert!(store.slot(&key(0)).load().is_none());
        }
    }
}
