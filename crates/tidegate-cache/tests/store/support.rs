//! What the tests share: heads, wakers that count, content that can be told from other content.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use tidegate_cache::{
    Entry, Fill, Found, Join, Landing, Lead, Limits, Reader, Store, StoredHead, Unstorable,
};
use tidegate_http::cache::{Freshness, Varying};
use tidegate_http::{FieldLines, Fields};

/// The moment in which most of it happens.
pub const NOW: i64 = 1_800_000_000;
/// The fields of a request that says nothing of itself.
pub const NOBODY: Fields<'static> = Fields::new(&[]);
pub const KIB: u64 = 1024;
pub const MIB: u64 = 1024 * KIB;

pub fn store(memory: u64) -> Arc<Store> {
    Store::new("main", Limits { memory, object: memory })
}

/// Fresh for an hour.
pub fn freshness() -> Freshness {
    let mut bytes = [0; Freshness::ENCODED];
    bytes[..8].copy_from_slice(&NOW.to_le_bytes());
    bytes[12..16].copy_from_slice(&3600_u32.to_le_bytes());
    bytes[24] = 3;
    Freshness::from_bytes(&bytes).expect("these are bytes of one")
}

/// For requests whose `Accept-Language` is this; for all where it is empty.
pub fn varying(language: &str) -> Varying {
    if language.is_empty() {
        return Varying::default();
    }
    let name = "accept-language";
    let mut bytes = vec![name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(3);
    bytes.extend_from_slice(&(language.len() as u16).to_le_bytes());
    bytes.extend_from_slice(language.as_bytes());
    Varying::from_bytes(&bytes).expect("these are bytes of one")
}

pub fn head(target: &str) -> StoredHead {
    head_of(target, "", &[])
}

pub fn head_of(target: &str, language: &str, tags: &[u64]) -> StoredHead {
    let mut lines = FieldLines::new();
    lines.push("Content-Type", "text/plain");
    StoredHead {
        status: 200,
        lines,
        freshness: freshness(),
        varying: varying(language),
        tags: tags.into(),
        tag_names: Box::default(),
        site: tidegate_cache::site_mark("main"),
        host: "example.org".into(),
        target: target.into(),
    }
}

/// Bytes that tell where they belong.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed) as u8).collect()
}

pub fn lead(store: &Arc<Store>, key: &[u8]) -> Lead {
    match store.join(key, NOBODY) {
        Join::Lead(lead) => lead,
        Join::Follow(_) => panic!("somebody fetches it"),
    }
}

pub fn follow(store: &Arc<Store>, key: &[u8]) -> tidegate_cache::Flight {
    match store.join(key, NOBODY) {
        Join::Lead(_) => panic!("nobody fetches it"),
        Join::Follow(flight) => flight,
    }
}

/// Stores all of a content at once.
pub fn put(store: &Arc<Store>, target: &str, content: &[u8]) -> Result<Arc<Entry>, Unstorable> {
    put_head(store, head(target), content)
}

pub fn put_head(store: &Arc<Store>, head: StoredHead, content: &[u8]) -> Result<Arc<Entry>, Unstorable> {
    let key = head.target.as_bytes().to_vec();
    let (entry, mut fill) = lead(store, &key).store(head, Some(content.len() as u64), NOW)?;
    append_all(&mut fill, content);
    assert!(fill.complete());
    Ok(entry)
}

/// Appends what there has to be room for.
pub fn append_all(fill: &mut Fill, mut content: &[u8]) {
    while !content.is_empty() {
        let taken = fill.append(content).expect("it is wanted");
        assert!(taken > 0, "there is room");
        content = &content[taken..];
    }
}

pub fn found(store: &Arc<Store>, target: &str) -> Option<Arc<Entry>> {
    match store.look_up(target.as_bytes(), NOW) {
        Found::Stored(entries) => Some(entries[0].clone()),
        _ => None,
    }
}

/// Counts how often it is woken.
#[derive(Default)]
pub struct Woken(pub AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waker, and how often it was woken.
pub fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    (woken.clone(), woken.into())
}

pub fn poll(flight: &mut (impl Future<Output = Landing> + Unpin), waker: &Waker) -> Poll<Landing> {
    Pin::new(flight).poll(&mut Context::from_waker(waker))
}

/// What can be read without waiting, and how that ended: at the end, waiting, or in an error.
pub fn read(reader: &mut Reader, step: usize) -> (Vec<u8>, Poll<bool>) {
    let mut all = Vec::new();
    let mut buffer = vec![0; step];
    loop {
        match reader.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(Ok(0)) => return (all, Poll::Ready(true)),
            Poll::Ready(Ok(count)) => all.extend_from_slice(&buffer[..count]),
            Poll::Ready(Err(_)) => return (all, Poll::Ready(false)),
            Poll::Pending => return (all, Poll::Pending),
        }
    }
}

pub fn read_all(entry: &Arc<Entry>) -> Vec<u8> {
    let mut reader = entry.content().reader(0..u64::MAX).expect("it is kept");
    let (bytes, end) = read(&mut reader, 10_000);
    assert_eq!(end, Poll::Ready(true));
    bytes
}
