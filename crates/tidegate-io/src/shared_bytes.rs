//! Bytes in memory that many send at once and that nobody changes any more.
//!
//! Who keeps them implements [`SharedBytes`]. A connection that sends some of them holds a [`SharedPiece`], and with it all of
//! them, until its client has taken the last one; the kernel reads them where they lie.

use crate::file_memory::FileRun;
use std::io::IoSlice;
use std::sync::Arc;

/// Slices that are given to the kernel in one call.
const SLICES: usize = 16;

/// Bytes that lie in one piece of memory or several, and stay as they are.
pub trait SharedBytes: Send + Sync {
    /// Bytes in all.
    fn size(&self) -> u64;

    /// Those from `position` on that lie in one piece: at least one, and none behind the last.
    fn run_at(&self, position: u64) -> &[u8];

    /// Where those from `position` on lie as a file, as far as they lie there in one piece. `None`: they do not.
    fn file_run_at(&self, position: u64) -> Option<FileRun<'_>> {
        let _ = position;
        None
    }

    /// A [`SharedPiece`] of them is there, one more.
    fn hold(&self) {}

    /// One is no more.
    fn release(&self) {}
}

/// Some of them, which are still to be sent.
pub struct SharedPiece {
    bytes: Arc<dyn SharedBytes>,
    offset: u64,
    end: u64,
}

impl SharedPiece {
    /// Those from `offset` on, up to `end` or the last one.
    pub fn new(bytes: Arc<dyn SharedBytes>, offset: u64, end: u64) -> SharedPiece {
        let end = end.min(bytes.size());
        bytes.hold();
        SharedPiece { bytes, offset, end }
    }

    /// Of those that are left the ones from `start` on, up to `end` or the last one.
    pub fn part(&self, start: u64, end: u64) -> SharedPiece {
        let at = |count| self.end.min(self.offset.saturating_add(count));
        self.bytes.hold();
        SharedPiece { bytes: self.bytes.clone(), offset: at(start), end: at(end) }
    }

    /// How many are left.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.offset)
    }

    /// Whether none is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What comes next, as far as it lies in one piece: at least a byte unless none is left.
    pub fn run(&self) -> &[u8] {
        self.run_at(self.offset, self.end)
    }

    /// Where what comes next lies as a file, where that is so of at least `least` bytes.
    pub fn file_run(&self, least: u64) -> Option<FileRun<'_>> {
        let run = self.bytes.file_run_at(self.offset).filter(|_| self.len() >= least)?;
        Some(FileRun { length: run.length.min(self.len()), ..run }).filter(|run| run.length >= least)
    }

    /// All of it, where it lies in one piece.
    pub fn whole(&self) -> Option<&[u8]> {
        Some(self.run()).filter(|run| run.len() as u64 == self.len())
    }

    fn run_at(&self, position: u64, end: u64) -> &[u8] {
        let left = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let run = self.bytes.run_at(position);
        &run[..run.len().min(left)]
    }

    /// Lends `front` and what comes next behind it for one call that sends: at most `most` bytes, and no more pieces than
    /// such a call takes.
    pub fn with_slices<R>(&self, front: &[u8], most: u64, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(front); SLICES];
        let mut count = usize::from(!front.is_empty());
        let mut at = self.offset;
        let end = self.end.min(at.saturating_add(most));
        while at < end && count < SLICES {
            let run = self.run_at(at, end);
            slices[count] = IoSlice::new(run);
            (at, count) = (at + run.len() as u64, count + 1);
        }
        send(&slices[..count])
    }

    /// So many have been sent.
    #[inline]
    pub fn advance(&mut self, count: u64) {
        self.offset = self.end.min(self.offset.saturating_add(count));
    }
}

impl Clone for SharedPiece {
    fn clone(&self) -> SharedPiece {
        self.part(0, u64::MAX)
    }
}

impl Drop for SharedPiece {
    fn drop(&mut self) {
        self.bytes.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of these lengths.
    struct Runs(Vec<Vec<u8>>);

    impl SharedBytes for Runs {
        fn size(&self) -> u64 {
            self.0.iter().map(|run| run.len() as u64).sum()
        }

        fn run_at(&self, position: u64) -> &[u8] {
            let mut at = position as usize;
            for run in &self.0 {
                if at < run.len() {
                    return &run[at..];
                }
                at -= run.len();
            }
            &[]
        }
    }

    #[test]
    fn whatever_is_taken_at_a_time_all_bytes_come_in_their_order() {
        for lengths in [vec![1], vec![5, 1, 7], vec![3; 40], vec![]] {
            let mut numbers = 0u8..;
            let runs = lengths.iter().map(|len| numbers.by_ref().take(*len).collect());
            let bytes = Arc::new(Runs(runs.collect()));
            let size = bytes.size();
            for (start, end) in [(0, size), (0, u64::MAX), (size / 3, size / 2), (size, size), (9, 3)] {
                let expected: Vec<u8> = (start..end.min(size)).map(|byte| byte as u8).collect();
                for (most, taken) in [(u64::MAX, usize::MAX), (4, 4), (u64::MAX, 1), (7, 3)] {
                    let mut piece = SharedPiece::new(bytes.clone(), start, end);
                    assert_eq!(piece.len(), expected.len() as u64);
                    let (mut all, mut front): (Vec<u8>, &[u8]) = (Vec::new(), b"head");
                    while !piece.is_empty() {
                        let (lent, pieces) = piece.with_slices(front, most, |slices| {
                            (slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(), slices.len())
                        });
                        assert!(pieces <= SLICES && lent.starts_with(front));
                        let content = &lent[front.len()..];
                        assert!(!content.is_empty() && content.len() as u64 <= most);
                        let count = content.len().min(taken);
                        all.extend_from_slice(&content[..count]);
                        piece.advance(count as u64);
                        front = b"";
                    }
                    assert_eq!(all, expected, "{lengths:?} {start}..{end}, {most} at most, {taken} taken");
                    assert!(piece.run().is_empty() && piece.whole() == Some(&[]));
                }
            }
        }
    }

    #[test]
    fn a_part_is_counted_from_what_is_left() {
        let mut piece = SharedPiece::new(Arc::new(Runs(vec![(0..10).collect()])), 0, 9);
        piece.advance(2);
        for (start, end, expected) in
            [(0, 3, &[2, 3, 4][..]), (5, u64::MAX, &[7, 8]), (7, 9, &[]), (u64::MAX, u64::MAX, &[])]
        {
            assert_eq!(piece.part(start, end).run(), expected, "{start}..{end}");
        }
    }

    #[test]
    fn what_lies_in_one_piece_is_lent_whole() {
        let bytes = Arc::new(Runs(vec![vec![0; 5], vec![1; 5]]));
        let piece = |start, end| SharedPiece::new(bytes.clone(), start, end);
        assert_eq!(piece(1, 5).whole(), Some(&[0; 4][..]));
        assert_eq!(piece(5, 9).whole(), Some(&[1; 4][..]));
        assert_eq!(piece(4, 6).whole(), None);
        assert_eq!(piece(4, 6).run(), [0]);
    }
}
