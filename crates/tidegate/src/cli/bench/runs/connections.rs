//! Connections of `bench serve`: bounded in number, and the one that has been idle longest gives way to a new one, so that nobody holds
//! all places by doing nothing. One that neither takes nor sends a byte for a while ends, also inside an answer.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_bench::monotonic_ns;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Connections at the same time.
const MOST: usize = 32;
/// How long one may neither take nor send a byte.
const STALLED: Duration = Duration::from_secs(10);

/// All that are open.
#[derive(Default)]
pub struct Connections {
    open: Mutex<Open>,
    /// One has ended, or has nothing under way any more.
    changed: Notify,
}

#[derive(Default)]
struct Open {
    last: u64,
    lives: BTreeMap<u64, Arc<Life>>,
}

/// What is known of one.
pub struct Life {
    /// When the last byte went either way, monotonic nanoseconds.
    moved: AtomicU64,
    /// Requests that are being answered.
    under_way: AtomicU32,
    gives_way: Notify,
    all: Arc<Connections>,
}

/// A place, held by a connection.
pub struct Place {
    number: u64,
    /// Of the connection.
    pub life: Arc<Life>,
}

/// A request that is being answered.
pub struct UnderWay(Arc<Life>);

impl Connections {
    /// A place for a new connection. Where none is free the one that has been idle longest ends; where all are at work it is waited
    /// for.
    pub async fn place(self: &Arc<Self>) -> Place {
        loop {
            let changed = self.changed.notified();
            if let Some(place) = self.try_place() {
                return place;
            }
            changed.await;
        }
    }

    fn try_place(self: &Arc<Self>) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.lives.len() >= MOST {
            let idle = open.lives.iter().filter(|(_, life)| life.under_way.load(Relaxed) == 0);
            let (number, _) = idle.min_by_key(|(_, life)| life.moved.load(Relaxed))?;
            let number = *number;
            open.lives.remove(&number)?.gives_way.notify_one();
        }
        open.last += 1;
        let life = Arc::new(Life {
            moved: AtomicU64::new(monotonic_ns()),
            under_way: AtomicU32::new(0),
            gives_way: Notify::new(),
            all: self.clone(),
        });
        let number = open.last;
        open.lives.insert(number, life.clone());
        Some(Place { number, life })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let all = &self.life.all;
        all.open.lock().unwrap_or_else(PoisonError::into_inner).lives.remove(&self.number);
        all.changed.notify_one();
    }
}

impl Life {
    /// Begins to answer a request.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Relaxed);
        UnderWay(self.clone())
    }

    /// Returns when the connection has to end: another one needs its place, or it stalls.
    pub async fn over(&self) {
        tokio::select! {
            () = self.gives_way.notified() => {}
            () = self.stalled() => {}
        }
    }

    async fn stalled(&self) {
        while let Some(rest) = self.rest(monotonic_ns()) {
            tokio::time::sleep(rest).await;
        }
    }

    /// How long it may still do nothing at this time, monotonic nanoseconds; `None`: it has to end, and so has an answer that nobody
    /// takes. As long as we are at work the client is not to blame.
    fn rest(&self, now: u64) -> Option<Duration> {
        if self.under_way.load(Relaxed) > 0 {
            return Some(STALLED);
        }
        let idle = Duration::from_nanos(now.saturating_sub(self.moved.load(Relaxed)));
        STALLED.checked_sub(idle).filter(|rest| !rest.is_zero())
    }

    fn has_moved(&self) {
        self.moved.store(monotonic_ns(), Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.has_moved();
        self.0.under_way.fetch_sub(1, Relaxed);
        self.0.all.changed.notify_one();
    }
}

/// A stream that says when bytes go.
pub struct Watched<S> {
    pub stream: S,
    pub life: Arc<Life>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.life.has_moved();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.life.has_moved();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_has_to_end() {
        let all = Arc::new(Connections::default());
        let life = all.try_place().unwrap().life.clone();
        life.moved.store(0, Relaxed);
        let rest = |seconds: u64| life.rest(seconds * 1_000_000_000).map(|rest| rest.as_secs());
        assert_eq!([rest(0), rest(9), rest(10), rest(99)], [Some(10), Some(1), None, None]);
        let at_work = life.begin();
        assert_eq!(rest(99), Some(10));
        drop(at_work);
        // It was answered just now.
        life.moved.store(95_000_000_000, Relaxed);
        assert_eq!([rest(99), rest(105)], [Some(6), None]);
    }

    #[test]
    fn the_one_that_is_idle_longest_gives_way_and_none_at_work() {
        let all = Arc::new(Connections::default());
        let places: Vec<Place> = (0..MOST).map(|_| all.try_place().unwrap()).collect();
        for (at, place) in (1..).zip(&places) {
            place.life.moved.store(at, Relaxed);
        }
        let at_work: Vec<UnderWay> = places.iter().take(2).map(|place| place.life.begin()).collect();
        let has = |place: &Place| all.open.lock().unwrap().lives.contains_key(&place.number);
        let new = all.try_place().unwrap();
        let gone: Vec<usize> = (0..MOST).filter(|at| !has(&places[*at])).collect();
        assert_eq!((gone, has(&new)), (vec![2], true));
        // All at work: nobody gives way.
        let rest: Vec<UnderWay> =
            places.iter().skip(2).chain([&new]).map(|place| place.life.begin()).collect();
        assert!(all.try_place().is_none());
        drop(at_work);
        assert!(all.try_place().is_some());
        drop((rest, places, new));
        assert_eq!(all.open.lock().unwrap().lives.len(), 0);
    }
}
