//! Random operations on the store and on a model of it that never forgets.

use crate::support::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate_cache::{Entry, Fill, Found, Full, Join, Limits, Purge, Reader, Store};

#[derive(Debug, Clone)]
enum Step {
    Put { target: u8, language: u8, tag: u8, len: usize },
    Begin { target: u8, announced: bool, len: usize },
    Append { fill: u8, count: usize },
    End { fill: u8, complete: bool },
    Read { reader: u8, count: usize },
    Leave { reader: u8 },
    LookUp { target: u8 },
    Refresh { target: u8 },
    Remove { target: u8 },
    PurgeTag { tag: u8, is_soft: bool },
    PurgePrefix { target: u8, is_soft: bool },
    Sweep,
    Limit { memory: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![0_usize..100, 0_usize..20_000, 60_000_usize..70_000, 0_usize..400_000];
    let step = prop_oneof![
        4 => (0_u8..20, 0_u8..3, 0_u8..4, len.clone())
            .prop_map(|(target, language, tag, len)| Step::Put { target, language, tag, len }),
        3 => (0_u8..20, any::<bool>(), len)
            .prop_map(|(target, announced, len)| Step::Begin { target, announced, len }),
        8 => (any::<u8>(), 1_usize..80_000).prop_map(|(fill, count)| Step::Append { fill, count }),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(fill, complete)| Step::End { fill, complete }),
        8 => (any::<u8>(), 1_usize..80_000).prop_map(|(reader, count)| Step::Read { reader, count }),
        1 => any::<u8>().prop_map(|reader| Step::Leave { reader }),
        4 => (0_u8..20).prop_map(|target| Step::LookUp { target }),
        1 => (0_u8..20).prop_map(|target| Step::Refresh { target }),
        1 => (0_u8..20).prop_map(|target| Step::Remove { target }),
        1 => (0_u8..4, any::<bool>()).prop_map(|(tag, is_soft)| Step::PurgeTag { tag, is_soft }),
        1 => (0_u8..20, any::<bool>()).prop_map(|(target, is_soft)| Step::PurgePrefix { target, is_soft }),
        1 => Just(Step::Sweep),
        1 => (0_u64..1_000_000).prop_map(|memory| Step::Limit { memory }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// What is under way.
struct Filling {
    fill: Option<Fill>,
    content: Vec<u8>,
    at: usize,
    is_announced: bool,
}

struct Reading {
    reader: Reader,
    content: Vec<u8>,
    at: usize,
}

/// What the model knows of an entry.
struct Known {
    content: Vec<u8>,
    target: u8,
    tag: u8,
    is_gone: bool,
    is_expired: bool,
}

struct Model {
    store: Arc<Store>,
    limit: u64,
    known: HashMap<u64, Known>,
    fills: Vec<Filling>,
    readers: Vec<Reading>,
    seed: u64,
}

fn name(target: u8) -> String {
    format!("/{}/{target}", target % 3)
}

impl Model {
    fn new() -> Model {
        let store = Store::new("main", Limits { memory: 600_000, object: 300_000 });
        Model {
            store,
            limit: 600_000,
            known: HashMap::new(),
            fills: Vec::new(),
            readers: Vec::new(),
            seed: 0,
        }
    }

    fn content(&mut self, len: usize) -> Vec<u8> {
        self.seed += 1;
        bytes(self.seed, len)
    }

    fn begin(
        &mut self,
        target: u8,
        language: u8,
        tag: u8,
        announced: bool,
        content: Vec<u8>,
    ) -> Option<Filling> {
        let target_name = name(target);
        let Join::Lead(lead) = self.store.join(target_name.as_bytes(), NOBODY) else {
            panic!("no flight stays")
        };
        let head = head_of(&target_name, ["", "de", "fr"][usize::from(language)], &[u64::from(tag)]);
        let len = announced.then_some(content.len() as u64);
        let (entry, fill) = lead.store(head, len, NOW).ok()?;
        let known = Known { content: content.clone(), target, tag, is_gone: false, is_expired: false };
        self.known.insert(entry.id(), known);
        self.read(&entry, &content);
        Some(Filling { fill: Some(fill), content, at: 0, is_announced: announced })
    }

    fn read(&mut self, entry: &Arc<Entry>, content: &[u8]) {
        let from = self.seed as usize % 3 * content.len() / 7;
        if let Some(reader) = entry.content().reader(from as u64..u64::MAX) {
            self.readers.push(Reading { reader, content: content.to_vec(), at: from });
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put { target, language, tag, len } => {
                let content = self.content(len);
                let Some(mut filling) = self.begin(target, language, tag, true, content) else { return };
                self.readers.pop();
                while filling.append(usize::MAX) {}
                filling.end(true);
            }
            Step::Begin { target, announced, len } => {
                let content = self.content(len);
                let begun = self.begin(target, 0, 0, announced, content);
                self.fills.extend(begun);
            }
            Step::Append { fill, count } => {
                if let Some(filling) = pick(&mut self.fills, fill) {
                    filling.append(count);
                }
            }
            Step::End { fill, complete } => {
                if let Some(filling) = pick(&mut self.fills, fill) {
                    filling.end(complete);
                }
            }
            Step::Read { reader, count } => {
                if let Some(reading) = pick(&mut self.readers, reader) {
                    reading.read(count);
                }
            }
            Step::Leave { reader } => {
                if !self.readers.is_empty() {
                    let at = usize::from(reader) % self.readers.len();
                    self.readers.swap_remove(at);
                }
            }
            Step::LookUp { target } => self.look_up(target),
            Step::Refresh { target } => self.refresh(target),
            Step::Remove { target } => {
                self.store.remove(name(target).as_bytes());
                self.mark(|known| known.target == target, |known| known.is_gone = true);
            }
            Step::PurgeTag { tag, is_soft } => {
                self.store.purge(&Purge::Mark(u64::from(tag)), is_soft, NOW);
                self.mark(|known| known.tag == tag, |known| known.purge(is_soft));
            }
            Step::PurgePrefix { target, is_soft } => {
                let prefix = format!("/{}/", target % 3);
                self.store.purge(&Purge::Prefix { host: "example.org", prefix: &prefix }, is_soft, NOW);
                self.mark(|known| known.target % 3 == target % 3, |known| known.purge(is_soft));
            }
            Step::Sweep => assert!(self.store.sweep(usize::MAX, NOW).is_round),
            Step::Limit { memory } => {
                self.limit = memory;
                self.store.set_limits(Limits { memory, object: 300_000 });
            }
        }
    }

    fn mark(&mut self, is_meant: impl Fn(&Known) -> bool, change: impl Fn(&mut Known)) {
        self.known.values_mut().filter(|known| is_meant(known)).for_each(change);
    }

    fn look_up(&mut self, target: u8) {
        let Found::Stored(entries) = self.store.look_up(name(target).as_bytes(), NOW) else { return };
        assert!(!entries.is_empty() && entries.len() <= 16);
        assert!(entries.is_sorted_by(|one, other| one.id() > other.id()), "the newest first");
        for entry in &entries {
            let known = &self.known[&entry.id()];
            assert!(known.target == target && !known.is_gone, "{entry:?} has gone");
            assert_eq!(known.is_expired, entry.is_expired());
            assert_eq!(entry.is_current(), !known.is_expired);
            assert!(!entry.content().is_broken() && !entry.content().is_passing());
            let content = known.content.clone();
            if entry.content().is_complete() {
                assert!(read_all(entry) == content, "{entry:?}");
            }
            if entry.id() % 3 == 0 {
                self.read(entry, &content);
            }
        }
    }

    fn refresh(&mut self, target: u8) {
        let name = name(target);
        let Found::Stored(entries) = self.store.look_up(name.as_bytes(), NOW) else { return };
        let old = &entries[0];
        let Join::Lead(lead) = self.store.join(name.as_bytes(), NOBODY) else { panic!("no flight stays") };
        let new = lead.refresh(old, old.head().clone(), NOW);
        assert!(!old.is_current());
        let before = &self.known[&old.id()];
        let (content, tag) = (before.content.clone(), before.tag);
        self.known.insert(new.id(), Known { content, target, tag, is_gone: false, is_expired: false });
    }

    fn check(&self, before: u64) {
        let figures = self.store.figures();
        // Below a limit that was lowered, what is in use may keep more, but nothing comes on top of it.
        assert!(figures.bytes <= self.limit.max(before), "{} {before}", figures.bytes);
        let fills = self.fills.iter().filter(|filling| filling.fill.is_some()).count();
        assert_eq!(figures.filling as usize, fills);
    }
}

impl Known {
    fn purge(&mut self, is_soft: bool) {
        if is_soft {
            self.is_expired = true;
        } else {
            self.is_gone = true;
        }
    }
}

impl Filling {
    /// Whether there may be more.
    fn append(&mut self, count: usize) -> bool {
        let Some(fill) = &mut self.fill else { return false };
        let end = self.content.len().min(self.at.saturating_add(count));
        if end == self.at {
            return false;
        }
        let has_room = fill.poll_room(&mut Context::from_waker(Waker::noop())).is_ready();
        match fill.append(&self.content[self.at..end]) {
            Ok(count) => {
                assert!(count > 0 || !has_room, "there was room");
                self.at += count;
                count > 0
            }
            Err(Full::Length) => panic!("never more than announced"),
            Err(Full::Unread) => {
                assert_eq!(fill.readers(), 0);
                self.fill = None;
                false
            }
        }
    }

    fn end(&mut self, complete: bool) {
        let Some(fill) = self.fill.take() else { return };
        let is_whole = self.at == self.content.len();
        if complete && (is_whole || self.is_announced) {
            assert!(!fill.complete() || is_whole, "what is too short is not stored");
        } else {
            fill.break_off();
        }
    }
}

impl Reading {
    fn read(&mut self, count: usize) {
        let mut buffer = vec![0; count];
        match self.reader.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(Ok(0)) => assert_eq!(self.at, self.content.len(), "an end only at the end"),
            Poll::Ready(Ok(count)) => {
                assert!(buffer[..count] == self.content[self.at..self.at + count], "the right bytes");
                self.at += count;
            }
            Poll::Ready(Err(_)) | Poll::Pending => {}
        }
    }
}

fn pick<T>(all: &mut [T], number: u8) -> Option<&mut T> {
    let count = all.len().max(1);
    all.get_mut(usize::from(number) % count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn does_as_a_model_does(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            let before = model.store.figures().bytes;
            model.step(step);
            model.check(before);
        }
        let store = model.store.clone();
        drop(model);
        prop_assert_eq!(store.figures().held, 0, "nobody reads");
        (0..20).for_each(|target| {
            store.remove(name(target).as_bytes());
        });
        prop_assert_eq!(store.figures().entries, 0);
        store.sweep(usize::MAX, NOW);
        prop_assert!(store.figures().bytes < 32 * 1024, "{} bytes: tables alone", store.figures().bytes);
    }
}
