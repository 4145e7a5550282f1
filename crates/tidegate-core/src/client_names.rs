//! What clients are called (R10): a bounded cache of names that name servers confirm, for all workers of a process.
//!
//! Access rules wait for a name, logs and fields take what is known. Nobody is looked up unless one of them asks. Whoever
//! asks the name servers ([`AskNames`]) is given by the binary; it has a thread of its own, so that no worker waits for it.
//! A name is one that the address has and that has the address; what says so is not believed about anything else.

mod places;

use places::Places;
use std::collections::VecDeque;
use std::collections::hash_map::{HashMap, RandomState};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tidegate_config::settings::{Dns, HostPattern};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::locking::lock;
use tidegate_io::oneshot::{Promise, Promised, promise};

/// Tables, so that workers seldom wait for each other.
const SHARDS: usize = 16;
/// However short its records live, an answer is remembered for so long.
const LEAST: Duration = Duration::from_secs(10);
/// That a client has no name is remembered for so long at most.
const NAMELESS: Duration = Duration::from_secs(60);
/// A client that could not be asked about is left alone for so long.
const UNANSWERED: Duration = Duration::from_secs(10);
/// From so many on, those who wait for one answer are looked through for who has gone.
const MANY: usize = 64;

/// What is known of a client's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientName {
    /// It is called so: in lower case, of letters, digits, `-`, `_` and dots.
    Known(Arc<str>),
    /// It has no name that leads back to it.
    Nameless,
    /// The name servers have not said.
    Unanswered,
}

impl ClientName {
    /// The name.
    pub fn known(&self) -> Option<&Arc<str>> {
        match self {
            ClientName::Known(name) => Some(name),
            ClientName::Nameless | ClientName::Unanswered => None,
        }
    }

    /// Whether it is one of these.
    pub fn is_among(&self, names: &[HostPattern]) -> bool {
        self.known().is_some_and(|name| names.iter().any(|pattern| pattern.matches(name)))
    }
}

/// Who asks the name servers.
pub trait AskNames: Send + Sync {
    /// These settings are in force.
    fn adopt(&self, dns: &Dns);
    /// Asks; returns at once.
    fn ask(&self, question: Question);
}

/// A client whose name is wanted. Dropped without an answer it has none.
pub struct Question {
    client: IpAddr,
    /// The number of the settings that it is asked by: another one's answer is none.
    generation: u64,
    /// Who wants to know; nobody once it is answered.
    names: Option<Arc<ClientNames>>,
}

impl Question {
    /// Whose name.
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// What the name servers have said, and for how long that is good.
    pub fn answer(mut self, name: ClientName, valid: Duration) {
        self.settle(&name, valid);
    }

    /// Once: whoever asks as soon as there is an answer has a question of his own.
    fn settle(&mut self, name: &ClientName, valid: Duration) {
        if let Some(names) = self.names.take() {
            names.learn((self.client, self.generation), name, valid);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.settle(&ClientName::Unanswered, Duration::ZERO);
    }
}

/// A name that was asked for.
pub enum Asked {
    /// It is known, or will not be.
    Now(ClientName),
    /// It will be. `None` is as good as unanswered.
    Later(Promised<ClientName>),
}

/// What is remembered. One for each process.
#[derive(Default)]
pub struct ClientNames {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    dns: Mutex<Dns>,
    /// Of the settings in force: clients in all tables, questions at once, nanoseconds.
    bounds: Bounds,
    asker: OnceLock<Arc<dyn AskNames>>,
    under_way: Places,
    /// Answers of name servers that settings no more name are forgotten.
    generation: AtomicU64,
    counts: Counts,
}

#[derive(Default)]
struct Bounds {
    entries: AtomicUsize,
    queries: AtomicUsize,
    lifetime: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// Until when, and what.
    known: HashMap<IpAddr, (u64, ClientName)>,
    /// In the order in which they came.
    order: VecDeque<(IpAddr, u64)>,
    /// Who waits for an answer, by the client and by the number of the settings that say who is asked.
    asked: HashMap<(IpAddr, u64), Vec<Promise<ClientName>>>,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    named: AtomicU64,
    nameless: AtomicU64,
    unanswered: AtomicU64,
    refused: AtomicU64,
}

/// What was counted, and what is remembered now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameReport {
    /// Clients that are remembered.
    pub entries: u64,
    /// How many may be.
    pub limit: u64,
    /// Times that the answer was there.
    pub hits: u64,
    /// Times that it was not.
    pub misses: u64,
    /// Answers with a name that is confirmed.
    pub named: u64,
    /// Answers without.
    pub nameless: u64,
    /// Questions without an answer.
    pub unanswered: u64,
    /// Questions that were not asked, since too many were under way.
    pub refused: u64,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl ClientNames {
    /// Who asks from now on; the first is kept.
    pub fn ask_by(&self, asker: Arc<dyn AskNames>) {
        asker.adopt(&lock(&self.dns));
        let _ = self.asker.set(asker);
    }

    /// These settings are in force. What other name servers have said counts no more.
    pub fn adopt(&self, dns: &Dns) {
        let mut present = lock(&self.dns);
        self.bounds.entries.store(dns.entries, Relaxed);
        self.bounds.queries.store(dns.queries, Relaxed);
        self.bounds.lifetime.store(nanos(dns.lifetime), Relaxed);
        if *present == *dns {
            return;
        }
        *present = dns.clone();
        // Before anybody has a question of the new number: the name servers before are not asked that.
        if let Some(asker) = self.asker.get() {
            asker.adopt(dns);
        }
        self.generation.fetch_add(1, Relaxed);
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.known.clear();
            shard.order.clear();
        }
    }

    /// What is remembered of a client.
    pub fn known(&self, client: IpAddr) -> Option<ClientName> {
        let client = client.to_canonical();
        let found = lock(self.shard(client)).known.get(&client).cloned();
        let found = found.filter(|(until, _)| *until > monotonic_ns()).map(|(_, name)| name);
        if found.is_some() {
            self.counts.hits.fetch_add(1, Relaxed);
        }
        found
    }

    /// The name of a client: as it is remembered, else it is asked for. However many ask for one client at once, the name
    /// servers are asked once.
    pub fn ask(self: &Arc<Self>, client: IpAddr) -> Asked {
        let client = client.to_canonical();
        if client.is_unspecified() {
            return Asked::Now(ClientName::Nameless);
        }
        if let Some(known) = self.known(client) {
            return Asked::Now(known);
        }
        self.counts.misses.fetch_add(1, Relaxed);
        let (given, promised) = promise();
        let mut shard = lock(self.shard(client));
        let generation = self.generation.load(Relaxed);
        if let Some(waiting) = shard.asked.get_mut(&(client, generation)) {
            if waiting.len() >= MANY && waiting.len().is_power_of_two() {
                waiting.retain(Promise::is_wanted);
            }
            waiting.push(given);
            return Asked::Later(promised);
        }
        let refuse = || {
            self.counts.refused.fetch_add(1, Relaxed);
            Asked::Now(ClientName::Unanswered)
        };
        let Some(asker) = self.asker.get() else { return refuse() };
        if !self.under_way.take(client, self.bounds.queries.load(Relaxed)) {
            return refuse();
        }
        shard.asked.insert((client, generation), vec![given]);
        drop(shard);
        asker.ask(Question { client, generation, names: Some(self.clone()) });
        Asked::Later(promised)
    }

    /// The name of a client where it is known. Where it is not, it is asked for, for whoever comes next; nobody waits.
    pub fn hint(self: &Arc<Self>, client: IpAddr) -> Option<Arc<str>> {
        match self.ask(client) {
            Asked::Now(name) => name.known().cloned(),
            Asked::Later(_) => None,
        }
    }

    /// What was counted.
    pub fn report(&self) -> NameReport {
        let counts = &self.counts;
        let entries = self.shards.iter().map(|shard| lock(shard).known.len() as u64).sum();
        NameReport {
            entries,
            limit: self.bounds.entries.load(Relaxed) as u64,
            hits: counts.hits.load(Relaxed),
            misses: counts.misses.load(Relaxed),
            named: counts.named.load(Relaxed),
            nameless: counts.nameless.load(Relaxed),
            unanswered: counts.unanswered.load(Relaxed),
            refused: counts.refused.load(Relaxed),
        }
    }

    fn shard(&self, client: IpAddr) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(client) as usize % SHARDS]
    }

    /// What has come of a question, by which those who wait for it are known.
    fn learn(&self, question: (IpAddr, u64), name: &ClientName, valid: Duration) {
        let (client, generation) = question;
        let mut shard = lock(self.shard(client));
        let Some(waiting) = shard.asked.remove(&question) else { return };
        self.under_way.give_back(client);
        let (count, least, most) = match name {
            ClientName::Known(_) => (&self.counts.named, LEAST, Duration::MAX),
            ClientName::Nameless => (&self.counts.nameless, LEAST, NAMELESS),
            ClientName::Unanswered => (&self.counts.unanswered, UNANSWERED, UNANSWERED),
        };
        count.fetch_add(1, Relaxed);
        if generation == self.generation.load(Relaxed) {
            let lifetime = self.bounds.lifetime.load(Relaxed);
            let now = monotonic_ns();
            let until = now.saturating_add(nanos(valid.clamp(least, most)).min(lifetime));
            shard.put(client, until, name.clone(), self.bounds.entries.load(Relaxed).div_ceil(SHARDS));
        }
        drop(shard);
        waiting.into_iter().for_each(|promise| promise.fulfil(name.clone()));
    }
}

impl Shard {
    fn put(&mut self, client: IpAddr, until: u64, name: ClientName, most: usize) {
        self.known.insert(client, (until, name));
        self.order.push_back((client, until));
        // What was put in once more stands twice in the order, and is bounded with it.
        while self.known.len() > most.max(1) || self.order.len() > 2 * most.max(1) {
            let Some((oldest, until)) = self.order.pop_front() else { return };
            if self.known.get(&oldest).is_some_and(|(known, _)| *known == until) {
                self.known.remove(&oldest);
            }
        }
    }
}

/// The name that labels of a record make, where it may stand in a log and in settings: letters, digits, `-` and `_`, and
/// none that reads as an address.
pub fn name_of<'l>(labels: impl Iterator<Item = &'l [u8]>) -> Option<Arc<str>> {
    let mut name = String::new();
    let mut is_number = true;
    for label in labels {
        let is_sound = (1..=63).contains(&label.len())
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
        if !is_sound || name.len() + label.len() > 252 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        is_number = label.iter().all(u8::is_ascii_digit);
        name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    (!is_number).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    /// Keeps what it is asked.
    #[derive(Default)]
    struct Kept(Mutex<Vec<Question>>);

    impl AskNames for Kept {
        fn adopt(&self, _: &Dns) {}

        fn ask(&self, question: Question) {
            lock(&self.0).push(question);
        }
    }

    impl Kept {
        fn answer(&self, name: &ClientName) {
            let question = lock(&self.0).remove(0);
            question.answer(name.clone(), Duration::from_secs(3600));
        }

        fn asked(&self) -> usize {
            lock(&self.0).len()
        }
    }

    fn names(dns: &Dns) -> (Arc<ClientNames>, Arc<Kept>) {
        let (names, kept) = (Arc::<ClientNames>::default(), Arc::<Kept>::default());
        names.adopt(dns);
        names.ask_by(kept.clone());
        (names, kept)
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    fn named(text: &str) -> ClientName {
        ClientName::Known(text.into())
    }

    fn come(asked: Asked) -> Option<ClientName> {
        match asked {
            Asked::Now(name) => Some(name),
            Asked::Later(mut promised) => {
                match Pin::new(&mut promised).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(name) => Some(name.unwrap_or(ClientName::Unanswered)),
                    Poll::Pending => None,
                }
            }
        }
    }

    #[test]
    fn one_question_for_all_who_ask_at_once() {
        let (names, kept) = names(&Dns::default());
        let asked: Vec<Asked> = (0..200).map(|_| names.ask(client(1))).collect();
        assert_eq!(kept.asked(), 1);
        assert_eq!(names.hint(client(1)), None);
        kept.answer(&named("a.test"));
        let wanted = asked.into_iter().map(come).filter(|name| *name == Some(named("a.test"))).count();
        assert_eq!(wanted, 200);
        assert_eq!(names.known(client(1)), Some(named("a.test")));
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(names.hint(mapped).as_deref(), Some("a.test"));
        let report = names.report();
        assert_eq!((report.entries, report.hits, report.misses, report.named), (1, 2, 201, 1));
    }

    #[test]
    fn a_flood_of_clients_is_bounded() {
        let (names, kept) = names(&Dns { entries: 160, queries: 8, ..Dns::default() });
        let asked: Vec<Asked> = (0..1000).map(|number| names.ask(client(number))).collect();
        assert_eq!(kept.asked(), 8);
        let refused = asked.into_iter().map(come).filter(|name| *name == Some(ClientName::Unanswered));
        assert_eq!((refused.count(), names.report().refused), (992, 992));
        for number in 1000..5000 {
            drop(names.ask(client(number)));
            while kept.asked() > 0 {
                kept.answer(&ClientName::Nameless);
            }
        }
        assert!((100..=160).contains(&names.report().entries), "{:?}", names.report());
        let orders: usize = names.shards.iter().map(|shard| lock(shard).order.len()).sum();
        assert!(orders <= 320 && names.shards.iter().all(|shard| lock(shard).asked.is_empty()), "{orders}");
    }

    /// Name servers of one network that say nothing take no places from clients of others.
    #[test]
    fn a_network_without_answers_shuts_nobody_else_out() {
        let (names, kept) = names(&Dns::default());
        let of = |network: &str, host: u128| {
            let network: std::net::Ipv6Addr = network.parse().unwrap();
            IpAddr::V6((network.to_bits() + host).into())
        };
        let _silent: Vec<Asked> = (0..1000).map(|host| names.ask(of("2001:db8:0:1::", host))).collect();
        let asked = kept.asked();
        assert!(asked < Dns::default().queries / 2, "{asked}");
        let others = [names.ask(of("2001:db8:0:2::", 1)), names.ask(client(1))];
        assert_eq!(kept.asked(), asked + 2);
        assert!(others.into_iter().all(|asked| matches!(asked, Asked::Later(_))));
        lock(&kept.0).clear();
        assert!(
            matches!(names.ask(of("2001:db8:0:1::", 2000)), Asked::Later(_)),
            "its places are free again"
        );
    }

    #[test]
    fn who_asks_and_gets_no_answer_does_not_wait() {
        let (names, kept) = names(&Dns::default());
        let asked = names.ask(client(1));
        lock(&kept.0).clear(); // as when the thread that asks has ended
        assert_eq!(come(asked), Some(ClientName::Unanswered));
        assert_eq!(come(names.ask(client(1))), Some(ClientName::Unanswered), "it is left alone for a while");
        assert_eq!((kept.asked(), names.report().unanswered), (0, 1));
        assert_eq!(come(names.ask("0.0.0.0".parse().unwrap())), Some(ClientName::Nameless));
    }

    #[test]
    fn other_name_servers_are_asked_anew() {
        let (names, kept) = names(&Dns::default());
        drop((names.ask(client(1)), names.ask(client(2))));
        kept.answer(&named("a.test"));
        names.adopt(&Dns { servers: vec!["127.0.0.1:53".parse().unwrap()], ..Dns::default() });
        assert_eq!(names.known(client(1)), None);
        kept.answer(&named("b.test"));
        assert_eq!(names.known(client(2)), None, "the name servers before have said that");
    }

    /// The answer of name servers that are not to be believed any more may be the wrong one.
    #[test]
    fn nobody_is_told_what_the_name_servers_before_say() {
        let (names, kept) = names(&Dns::default());
        let before = names.ask(client(1));
        names.adopt(&Dns { servers: vec!["127.0.0.1:53".parse().unwrap()], ..Dns::default() });
        let after = names.ask(client(1));
        assert_eq!(kept.asked(), 2, "the new ones are asked");
        kept.answer(&named("old.test"));
        assert_eq!(come(before), Some(named("old.test")), "he has asked by the settings before");
        assert_eq!(names.known(client(1)), None);
        kept.answer(&named("new.test"));
        assert_eq!(come(after), Some(named("new.test")));
        assert_eq!(names.known(client(1)), Some(named("new.test")));
        assert_eq!(names.under_way.count(), 0);
    }

    /// Asks once more as soon as there is an answer.
    struct AsksAgain(Arc<ClientNames>, Mutex<Vec<Asked>>);

    impl std::task::Wake for AsksAgain {
        fn wake(self: Arc<Self>) {
            lock(&self.1).push(self.0.ask(client(1)));
        }
    }

    #[test]
    fn an_answer_is_that_of_one_question() {
        // What is not remembered has to be asked anew.
        let (names, kept) = names(&Dns { lifetime: Duration::ZERO, ..Dns::default() });
        let again = Arc::new(AsksAgain(names.clone(), Mutex::default()));
        let Asked::Later(mut first) = names.ask(client(1)) else { panic!("nothing is known") };
        let waker = Waker::from(again.clone());
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        kept.answer(&named("a.test"));
        let second = lock(&again.1).pop().expect("it was woken");
        assert_eq!((kept.asked(), names.under_way.count()), (1, 1));
        kept.answer(&named("b.test"));
        assert_eq!(come(second), Some(named("b.test")));
        assert_eq!((names.report().unanswered, names.under_way.count()), (0, 0));
    }

    #[test]
    fn what_may_be_a_name() {
        let long = [b'a'; 63];
        for (labels, expected) in [
            (&[&b"Mail"[..], b"Example", b"ORG"][..], Some("mail.example.org")),
            (&[b"a_b-c", b"xn--bcher-kva", b"example"], Some("a_b-c.xn--bcher-kva.example")),
            (&[b"localhost"], Some("localhost")),
            (&[], None),
            (&[b"127", b"0", b"0", b"1"], None),
            (&[b"a\r\nGET", b"test"], None),
            (&[b"a b", b"test"], None),
            (&[b"a.b", b"test"], None),
            (&[b"a\"b", b"test"], None),
            (&[b"\xff", b"test"], None),
            (&[b"", b"test"], None),
            (&[&long, &long, &long, &long, b"test"], None),
        ] {
            assert_eq!(name_of(labels.iter().copied()).as_deref(), expected, "{labels:?}");
        }
    }
}
