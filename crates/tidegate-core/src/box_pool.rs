//! Boxes that are used again, empty: each request that waits for its answer needs some of the same sizes, and a list of them costs
//! a quarter of what the allocator does, or less where many begin and end in one turn.

/// What a worker keeps of a kind: some twenty requests begin in one turn where there is much to do, each with two at most.
pub(crate) const KEPT: usize = 48;

/// Boxes of one kind, with nothing in them that is of a request.
pub(crate) struct BoxPool<T>(Vec<Box<T>>);

impl<T> BoxPool<T> {
    /// None yet.
    pub(crate) fn new() -> BoxPool<T> {
        BoxPool(Vec::new())
    }

    /// One that was given back.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        self.0.pop()
    }

    /// A box with this in it.
    #[inline]
    pub(crate) fn boxed(&mut self, value: T) -> Box<T> {
        match self.take() {
            Some(mut kept) => {
                *kept = value;
                kept
            }
            None => Box::new(value),
        }
    }

    /// Takes one back that holds nothing any more.
    #[inline]
    pub(crate) fn give_back(&mut self, emptied: Box<T>) {
        if self.0.len() < KEPT {
            self.0.push(emptied);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_used_again_and_no_more_is_kept_than_that() {
        let mut pool = BoxPool::new();
        let first = pool.boxed(1);
        let at = std::ptr::from_ref(&*first);
        pool.give_back(first);
        let again = pool.boxed(2);
        assert!(std::ptr::eq(at, &*again) && *again == 2);
        pool.give_back(again);
        (0..2 * KEPT).for_each(|number| pool.give_back(Box::new(number)));
        assert_eq!(std::iter::from_fn(|| pool.take()).count(), KEPT);
    }
}
