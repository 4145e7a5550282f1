//! Memory that is used again, empty: each request to an application needs some for a moment, for what it is sent, for the
//! head of its answer and for a small content, and whoever sends the answer gives it back.

use crate::box_pool::KEPT;
use std::cell::RefCell;

/// Bytes of most heads, and of each piece of memory here at least. The allocator has such pieces at hand.
pub const USUAL: usize = 1024;

/// What is larger goes back to the allocator.
const LARGEST: usize = 4 << 10;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory of at least [`USUAL`] bytes, with nothing in it.
#[inline]
pub fn take() -> Vec<u8> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(USUAL))
}

/// Takes memory back that nobody needs any more. What is in it is lost.
#[inline]
pub fn give_back(mut memory: Vec<u8>) {
    if !(USUAL..=LARGEST).contains(&memory.capacity()) {
        return;
    }
    memory.clear();
    // There are none any more where the worker itself ends.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT {
            spare.push(memory);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_taken_again_empty() {
        let mut memory = take();
        memory.extend_from_slice(b"what one client was told");
        let at = memory.as_ptr();
        give_back(memory);
        let again = take();
        assert!(again.is_empty() && again.as_ptr() == at);
        give_back(again);
        for len in [0, USUAL - 1, LARGEST + 1] {
            give_back(Vec::with_capacity(len));
        }
        (0..2 * KEPT).for_each(|_| give_back(Vec::with_capacity(LARGEST)));
        let kept = SPARE.with_borrow(|spare| spare.iter().map(Vec::capacity).collect::<Vec<_>>());
        assert_eq!(kept.len(), KEPT, "no more than that");
        assert!(kept.iter().all(|bytes| (USUAL..=LARGEST).contains(bytes)));
    }
}
