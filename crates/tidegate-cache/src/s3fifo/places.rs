//! What the disk tier wants of the queues beside eviction: what is in a place, and to put back what an earlier process had there.

use super::{MOST_USES, PAGE, Place, Queued, S3Fifo};

impl<T: Queued> S3Fifo<T> {
    /// Queues an object that was queued before, in an earlier process, where it was.
    pub(crate) fn restore(&mut self, item: T, size: u64, uses: u8, is_main: bool) -> Place {
        item.uses().set(uses.min(MOST_USES));
        let index = self.nodes.add(item, size);
        self.link(index, is_main);
        Place(index)
    }

    /// What is in a place, its bytes, and whether it is in the main queue.
    pub(crate) fn get(&self, place: Place) -> Option<(&T, u64, bool)> {
        let node = self.nodes.pages.get(place.0 as usize / PAGE)?.get(place.0 as usize % PAGE)?;
        node.item.as_ref().map(|item| (item, node.size, node.is_main))
    }

    /// As [`S3Fifo::get`], to change what it says of itself; its hash has to stay.
    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let node = self.nodes.pages.get_mut(place.0 as usize / PAGE)?.get_mut(place.0 as usize % PAGE)?;
        node.item.as_mut()
    }

    /// A number above that of any place.
    pub(crate) fn places(&self) -> u32 {
        (self.nodes.pages.len() * PAGE) as u32
    }
}
