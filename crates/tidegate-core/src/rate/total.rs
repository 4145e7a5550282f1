//! How often something has happened, in one word that all processes share. It counts up and refuses nobody: the rates that
//! hooks go by follow from it.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_io::shared::SharedWords;

/// The count.
#[derive(Debug)]
pub struct Total(SharedWords);

impl Total {
    /// Words that it takes.
    pub const LENGTH: usize = 1;

    /// A count in words that are all zero, or that of another process.
    ///
    /// # Errors
    /// `InvalidData`: there is no word.
    pub fn attach(words: SharedWords) -> io::Result<Total> {
        match words.words().is_empty() {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "the shared memory is no count")),
            false => Ok(Total(words)),
        }
    }

    /// It has happened once more.
    pub fn add(&self) {
        self.0.words()[0].fetch_add(1, Relaxed);
    }

    /// How often it has happened.
    pub fn get(&self) -> u64 {
        self.0.words()[0].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;

    #[test]
    fn all_processes_count_the_same() {
        let [one, other] = memory_of::<2>(Total::LENGTH).map(|words| Total::attach(words).unwrap());
        assert_eq!((one.get(), other.get()), (0, 0));
        one.add();
        assert_eq!(other.get(), 1, "the first counts as the others do");
        other.add();
        assert_eq!((one.get(), other.get()), (2, 2));
    }
}
