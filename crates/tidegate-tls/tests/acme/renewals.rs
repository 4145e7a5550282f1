//! Issue, renew when the authority says so, recover from one that fails: years of it, in no time.

use rcgen::{CertificateParams, KeyPair};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tidegate_tls::acme::manager::Local;
use tidegate_tls::acme::{
    Clock, Issue, IssueError, LocalAuthority, Manager, Order, Outcome, Storage, Window,
};
use tidegate_tls::{Certificate, Pair};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;
use tokio::time::Instant;

pub const DAY: i64 = 86_400;
/// 2026-01-01.
pub const BEGIN: i64 = 1_767_225_600;

#[derive(Clone)]
pub struct Turned(Instant);

impl Clock for Turned {
    fn now(&self) -> i64 {
        BEGIN + self.0.elapsed().as_secs() as i64
    }
}

pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-acme-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    pub fn storage(&self) -> Rc<Storage> {
        Rc::new(Storage::open(&self.0).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority that issues for 90 days, or fails as it was told.
pub struct Scripted {
    pub name: &'static str,
    pub clock: Turned,
    pub fails: RefCell<VecDeque<IssueError>>,
    /// What it hands out next, chain and key, in place of what it should.
    pub hands_out: RefCell<VecDeque<(String, String)>>,
    pub window: Cell<Option<Window>>,
    pub issued: Cell<usize>,
    pub asked: Cell<usize>,
    pub takes: Duration,
    pub replaced: RefCell<Vec<bool>>,
}

impl Scripted {
    pub fn new(name: &'static str, clock: &Turned) -> Scripted {
        Scripted {
            name,
            clock: clock.clone(),
            fails: RefCell::default(),
            hands_out: RefCell::default(),
            window: Cell::new(None),
            issued: Cell::new(0),
            asked: Cell::new(0),
            takes: Duration::from_secs(5),
            replaced: RefCell::default(),
        }
    }

    pub fn fail(self, times: usize, said: &str) -> Scripted {
        self.fails.borrow_mut().extend((0..times).map(|_| IssueError::new(said)));
        self
    }
}

pub fn issue(name: &str, from: i64, to: i64) -> (String, String) {
    let date = |seconds| time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date(from), date(to));
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

impl Issue for Scripted {
    fn name(&self) -> String {
        self.name.into()
    }

    fn issues_for(&self, name: &str) -> bool {
        name != "nobody.test"
    }

    fn obtain<'a>(
        &'a self,
        name: &'a str,
        present: Option<&'a Pair>,
    ) -> Local<'a, Result<(String, String), IssueError>> {
        Box::pin(async move {
            tokio::time::sleep(self.takes).await;
            if let Some(error) = self.fails.borrow_mut().pop_front() {
                return Err(error);
            }
            self.issued.set(self.issued.get() + 1);
            self.replaced.borrow_mut().push(present.is_some());
            if let Some(issued) = self.hands_out.borrow_mut().pop_front() {
                return Ok(issued);
            }
            let now = self.clock.now();
            Ok(issue(name, now, now + 90 * DAY))
        })
    }

    fn window<'a>(&'a self, _: &'a Pair) -> Local<'a, Option<(Window, Option<i64>)>> {
        Box::pin(async move {
            self.asked.set(self.asked.get() + 1);
            self.window.get().map(|window| (window, None))
        })
    }
}

/// A node: its manager, what it reported, and the way to it.
pub struct Node {
    pub orders: UnboundedSender<Order>,
    pub outcomes: Rc<RefCell<Vec<(i64, Outcome)>>>,
}

impl Node {
    pub fn start(clock: &Turned) -> Node {
        let (orders, received) = unbounded_channel();
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        let (kept, told) = (outcomes.clone(), clock.clone());
        let manager = Manager::new(clock.clone(), move |outcome| {
            kept.borrow_mut().push((told.now() - BEGIN, outcome));
        });
        tokio::task::spawn_local(manager.run(received));
        Node { orders, outcomes }
    }

    pub fn serve(&self, names: &[&str], issuers: &[Rc<Scripted>], storage: &Rc<Storage>) {
        let names = names.iter().map(ToString::to_string).collect();
        let issuers = issuers.iter().map(|issuer| issuer.clone() as Rc<dyn Issue>).collect();
        let order = Order::Serve { names, issuers, storage: storage.clone() };
        assert!(self.orders.send(order).is_ok());
    }

    pub fn take(&self) -> Vec<(i64, Outcome)> {
        std::mem::take(&mut self.outcomes.borrow_mut())
    }
}

/// Runs on a clock that jumps to the next thing to do.
pub fn turned(test: impl AsyncFnOnce(Turned)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, async { test(Turned(Instant::now())).await });
}

pub async fn days(count: i64) {
    tokio::time::sleep(Duration::from_secs((count * DAY) as u64)).await;
}

#[test]
fn a_certificate_is_issued_at_once_and_renewed_in_time_for_years() {
    turned(async |clock| {
        let folder = Folder::new("years");
        let (node, authority) = (Node::start(&clock), Rc::new(Scripted::new("one", &clock)));
        node.serve(&["a.test"], std::slice::from_ref(&authority), &folder.storage());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let first = node.take();
        let [(5, Outcome::Ready { name, issuer: Some(issuer), .. })] = first.as_slice() else {
            panic!("{first:?}")
        };
        assert_eq!((name.as_str(), issuer.as_str()), ("a.test", "one"));
        days(3 * 365).await;
        // 60 to 62 days each.
        assert!((17..=18).contains(&(authority.issued.get() - 1)), "{}", authority.issued.get());
        assert_eq!(authority.replaced.borrow().iter().filter(|replaced| !**replaced).count(), 1);
        let mut last = 5;
        for (at, outcome) in node.take() {
            assert!(matches!(outcome, Outcome::Ready { .. }), "{outcome:?}");
            assert!((60 * DAY..63 * DAY).contains(&(at - last)), "{} days", (at - last) / DAY);
            last = at;
        }
        // Asked four times a day, and a little less.
        assert!((3800..=4400).contains(&authority.asked.get()), "{}", authority.asked.get());
    });
}

#[test]
fn the_authority_says_when_to_renew() {
    turned(async |clock| {
        let folder = Folder::new("window");
        let (node, authority) = (Node::start(&clock), Rc::new(Scripted::new("one", &clock)));
        let window = |from: i64, to: i64| Some(Window { start: BEGIN + from * DAY, end: BEGIN + to * DAY });
        authority.window.set(window(30, 31));
        node.serve(&["a.test"], std::slice::from_ref(&authority), &folder.storage());
        days(1).await;
        node.take();
        days(28).await;
        assert_eq!(node.take(), []);
        authority.window.set(window(80, 81));
        days(2).await;
        // It had chosen its moment, and then the window moved.
        assert!(node.take().len() <= 1);
        // All certificates of that kind have to go: the window lies in the past.
        authority.window.set(window(1, 2));
        let before = authority.issued.get();
        tokio::time::sleep(Duration::from_secs(8 * 3600)).await;
        assert!(authority.issued.get() > before);
    });
}

#[test]
fn a_failing_authority_is_asked_less_and_less_and_the_next_one_stands_in() {
    turned(async |clock| {
        let folder = Folder::new("fails");
        let node = Node::start(&clock);
        let one = Rc::new(Scripted::new("one", &clock).fail(6, "is down"));
        node.serve(&["a.test"], std::slice::from_ref(&one), &folder.storage());
        days(1).await;
        let outcomes = node.take();
        assert_eq!(outcomes.len(), 7);
        let mut pauses = Vec::new();
        for pair in outcomes.windows(2) {
            let [(before, Outcome::Failed { why, next, has_other, .. }), (at, _)] = pair else {
                panic!("{pair:?}")
            };
            assert_eq!((why.as_str(), *has_other), ("one: is down", false));
            assert!((0..20).contains(&(BEGIN + at - next)), "tried when it was said");
            pauses.push(at - before);
        }
        for (pause, least) in pauses.iter().zip([60, 120, 120, 300, 600, 600]) {
            assert!((least..least * 6 / 5 + 20).contains(pause), "{pauses:?}");
        }
        assert!(matches!(outcomes.last(), Some((_, Outcome::Ready { .. }))));

        let other = Folder::new("stands-in");
        let (first, second) =
            (Rc::new(Scripted::new("one", &clock).fail(1, "is down")), Rc::new(Scripted::new("two", &clock)));
        node.serve(&["a.test", "nobody.test"], &[first, second], &other.storage());
        tokio::time::sleep(Duration::from_secs(30)).await;
        let outcomes = node.take();
        assert!(
            outcomes.iter().any(|(_, outcome)| matches!(outcome,
            Outcome::Ready { issuer: Some(issuer), .. } if issuer == "two")),
            "{outcomes:?}"
        );
        assert!(outcomes.iter().any(|(_, outcome)| matches!(outcome,
            Outcome::Failed { name, why, .. } if name == "nobody.test" && why.contains("no authority"))));
    });
}

#[test]
fn a_failed_renewal_keeps_the_old_certificate_and_heeds_retry_after() {
    turned(async |clock| {
        let folder = Folder::new("renewal");
        let (node, authority) = (Node::start(&clock), Rc::new(Scripted::new("one", &clock)));
        node.serve(&["a.test"], std::slice::from_ref(&authority), &folder.storage());
        days(50).await;
        node.take();
        let limited = IssueError { said: "rate limit".into(), again: Some(7200) };
        authority.fails.borrow_mut().push_back(limited);
        days(15).await;
        let outcomes = node.take();
        let [(failed, Outcome::Failed { has_other: true, .. }), (ready, Outcome::Ready { .. })] =
            outcomes.as_slice()
        else {
            panic!("{outcomes:?}")
        };
        assert!((7200..9000).contains(&(ready - failed)));
    });
}

/// The rest that the first wants is not the second's.
#[test]
fn of_several_authorities_the_one_that_may_be_asked_first_says_when() {
    turned(async |clock| {
        let folder = Folder::new("both");
        let both = ["one", "two"].map(|name| Rc::new(Scripted::new(name, &clock)));
        let node = Node::start(&clock);
        let limited = IssueError { said: "rate limit".into(), again: Some(7200) };
        both[0].fails.borrow_mut().push_back(limited);
        both[1].fails.borrow_mut().push_back(IssueError::new("reset"));
        node.serve(&["a.test"], &both, &folder.storage());
        days(1).await;
        let outcomes = node.take();
        let [(failed, Outcome::Failed { .. }), (ready, Outcome::Ready { .. })] = outcomes.as_slice() else {
            panic!("{outcomes:?}")
        };
        assert!((60..90).contains(&(ready - failed)), "{outcomes:?}");
    });
}

#[test]
fn a_restart_uses_what_was_kept_and_other_settings_other_names() {
    turned(async |clock| {
        let folder = Folder::new("restart");
        let (node, authority) = (Node::start(&clock), Rc::new(Scripted::new("one", &clock)));
        node.serve(&["a.test"], std::slice::from_ref(&authority), &folder.storage());
        days(1).await;
        node.take();
        let again = Node::start(&clock);
        again.serve(&["a.test", "*.b.test"], std::slice::from_ref(&authority), &folder.storage());
        days(1).await;
        let outcomes = again.take();
        assert!(matches!(&outcomes[0].1, Outcome::Ready { name, issuer: None, .. } if name == "a.test"));
        assert!(matches!(&outcomes[1].1, Outcome::Ready { name, issuer: Some(_), .. } if name == "*.b.test"));
        assert_eq!(outcomes.len(), 2);
        again.serve(&[], std::slice::from_ref(&authority), &folder.storage());
        days(365).await;
        assert_eq!(again.take(), []);
    });
}

#[test]
fn the_local_authority_issues_what_its_root_vouches_for() {
    let folder = Folder::new("local");
    let storage = folder.storage();
    let authority = LocalAuthority::open(&storage, BEGIN).unwrap();
    for name in ["localhost", "*.internal", "127.0.0.1", "[::1]"] {
        let (certificate, key) = authority.issue(name, BEGIN).unwrap();
        let pair = storage.keep_certificate(name, &(certificate + &key)).unwrap();
        let made = Certificate::new(&pair).unwrap();
        assert_eq!(made.chain.len(), 1);
        assert_eq!(made.about.issuer, made.chain[0].subject);
        assert_eq!(made.about.not_after, BEGIN + 7 * DAY);
        assert!(
            made.about.names.iter().any(|n| n == name.trim_matches(['[', ']'])),
            "{:?}",
            made.about.names
        );
    }
    let root = authority.root().to_owned();
    assert_eq!(LocalAuthority::open(&storage, BEGIN + DAY).unwrap().root(), root);
    assert_ne!(LocalAuthority::open(&storage, BEGIN + 3649 * DAY).unwrap().root(), root);
    for (name, expected) in [
        ("localhost", true),
        ("x.internal", true),
        ("*.internal", true),
        ("nas.home.arpa", true),
        ("example.com", false),
        ("internal.example.com", false),
        ("notlocal", false),
    ] {
        assert_eq!(tidegate_tls::acme::local::is_local(name), expected, "{name}");
    }
}
