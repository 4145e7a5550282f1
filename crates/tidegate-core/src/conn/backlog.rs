//! Bytes of a connection that have to wait: for the rest of a request, or for room in a full socket.
//!
//! Most connections have none most of the time, and there may be very many connections, so without any a [`Backlog`] is
//! one empty pointer. It is a part of its connection, as the bytes are that it holds. `S` is what is known of them.

use std::ops::Deref;

/// Bytes that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct Backlog<S = ()>(Option<Box<Waiting<S>>>);

#[derive(Debug, Default)]
struct Waiting<S> {
    /// Never empty.
    bytes: Vec<u8>,
    known: S,
}

impl<S: Default> Backlog<S> {
    #[inline]
    pub(super) const fn new() -> Backlog<S> {
        Backlog(None)
    }

    /// The bytes, and what is known of them; `None` where nothing waits.
    pub(super) fn with_known(&mut self) -> Option<(&[u8], &mut S)> {
        self.0.as_deref_mut().map(|waiting| (waiting.bytes.as_slice(), &mut waiting.known))
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Puts bytes behind those that wait.
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Some(waiting) => waiting.bytes.extend_from_slice(bytes),
            None => *self = Backlog::from(bytes.to_vec()),
        }
    }

    /// So many from the front wait no longer.
    pub(super) fn remove_front(&mut self, count: usize) {
        if count >= self.len() {
            self.0 = None;
        } else if let Some(waiting) = &mut self.0 {
            waiting.bytes.drain(..count);
        }
    }

    /// So many from the end wait no longer.
    pub(super) fn remove_back(&mut self, count: usize) {
        let rest = self.len().saturating_sub(count);
        match &mut self.0 {
            Some(waiting) if rest > 0 => waiting.bytes.truncate(rest),
            _ => self.0 = None,
        }
    }

    /// Bytes of memory.
    pub(super) fn owned(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| size_of::<Waiting<S>>() + waiting.bytes.capacity())
    }
}

impl<S: Default> From<Vec<u8>> for Backlog<S> {
    fn from(bytes: Vec<u8>) -> Backlog<S> {
        Backlog((!bytes.is_empty()).then(|| Box::new(Waiting { bytes, known: S::default() })))
    }
}

impl<S> Deref for Backlog<S> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |waiting| waiting.bytes.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_and_the_last_one_takes_the_memory_along() {
        let mut backlog = Backlog::<u8>::new();
        assert!(backlog.with_known().is_none());
        assert!(backlog.is_empty() && backlog.owned() == 0);
        backlog.extend_from_slice(b"");
        assert!(backlog.is_empty());
        backlog.extend_from_slice(b"abc");
        backlog.extend_from_slice(b"def");
        backlog.remove_front(2);
        assert_eq!(&*backlog, b"cdef");
        *backlog.with_known().unwrap().1 = 7;
        backlog.extend_from_slice(b"");
        assert_eq!(backlog.with_known(), Some((&b"cdef"[..], &mut 7)));
        assert!(backlog.owned() >= 4);
        backlog.remove_front(0);
        backlog.remove_front(4);
        assert!(backlog.is_empty() && backlog.owned() == 0);
        assert!(Backlog::<u8>::from(Vec::with_capacity(10)).is_empty());
    }
}
