//! One value from any thread to a future on a worker: for answers that come from outside, such as those of
//! the master.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

struct Cell<T> {
    value: Option<T>,
    is_given_up: bool,
    waker: Option<Waker>,
}

/// Gives the value. Dropped without, the other end gets `None`.
pub struct Promise<T>(Arc<Mutex<Cell<T>>>);

/// The value, once it has been given; `None` when it never will be.
pub struct Promised<T>(Arc<Mutex<Cell<T>>>);

/// The two ends.
pub fn promise<T>() -> (Promise<T>, Promised<T>) {
    let cell = Arc::new(Mutex::new(Cell { value: None, is_given_up: false, waker: None }));
    (Promise(cell.clone()), Promised(cell))
}

impl<T> Promise<T> {
    /// Whether somebody still waits for it.
    pub fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Gives it.
    pub fn fulfil(self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).value = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waker = {
            let mut cell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cell.is_given_up = true;
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Promised<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut cell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cell.value.is_some() || cell.is_given_up {
            return Poll::Ready(cell.value.take());
        }
        cell.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_or_nothing() {
        let mut cx = Context::from_waker(Waker::noop());
        let (given, mut promised) = promise();
        assert_eq!(Pin::new(&mut promised).poll(&mut cx), Poll::Pending);
        given.fulfil(7);
        assert_eq!(Pin::new(&mut promised).poll(&mut cx), Poll::Ready(Some(7)));
        let (given, mut promised) = promise::<u8>();
        drop(given);
        assert_eq!(Pin::new(&mut promised).poll(&mut cx), Poll::Ready(None));
    }
}
