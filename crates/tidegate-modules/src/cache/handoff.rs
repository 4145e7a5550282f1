//! What a fetch hands to the client that has set it off: both live on one worker, and either may go first.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Slot<T> {
    value: Option<T>,
    has_giver: bool,
    has_taker: bool,
    /// Of the end that waits for the other.
    giver: Option<Waker>,
    taker: Option<Waker>,
}

/// The end of the fetch.
pub(super) struct Giver<T>(Rc<RefCell<Slot<T>>>);

/// The end of the client: a future, whose output is `None` where the fetch has ended without a word.
pub(super) struct Taker<T>(Rc<RefCell<Slot<T>>>);

/// Both ends.
pub(super) fn handoff<T>() -> (Giver<T>, Taker<T>) {
    let slot = Slot { value: None, has_giver: true, has_taker: true, giver: None, taker: None };
    let slot = Rc::new(RefCell::new(slot));
    (Giver(slot.clone()), Taker(slot))
}

impl<T> Giver<T> {
    /// Hands it over; where nobody waits for it any more, it is dropped.
    pub(super) fn give(self, value: T) {
        let left = {
            let mut slot = self.0.borrow_mut();
            if slot.has_taker { slot.value.replace(value) } else { Some(value) }
        };
        drop(left); // outside of the borrow: it may be a whole response
    }

    /// Ready once the client has gone.
    pub(super) fn poll_unwanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.0.borrow_mut();
        if !slot.has_taker {
            return Poll::Ready(());
        }
        slot.giver = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.has_giver = false;
            slot.taker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Future for Taker<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.borrow_mut();
        if slot.value.is_some() || !slot.has_giver {
            return Poll::Ready(slot.value.take());
        }
        slot.taker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let (waker, value) = {
            let mut slot = self.0.borrow_mut();
            slot.has_taker = false;
            (slot.giver.take(), slot.value.take())
        };
        drop(value);
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_end_may_go_first() {
        let mut cx = Context::from_waker(Waker::noop());
        let (giver, mut taker) = handoff();
        assert!(Pin::new(&mut taker).poll(&mut cx).is_pending() && giver.poll_unwanted(&mut cx).is_pending());
        giver.give(7);
        assert_eq!(Pin::new(&mut taker).poll(&mut cx), Poll::Ready(Some(7)));

        let (giver, mut taker) = handoff::<u8>();
        drop(giver);
        assert_eq!(Pin::new(&mut taker).poll(&mut cx), Poll::Ready(None));

        let (giver, taker) = handoff();
        drop(taker);
        assert!(giver.poll_unwanted(&mut cx).is_ready());
        giver.give(8);
    }
}
