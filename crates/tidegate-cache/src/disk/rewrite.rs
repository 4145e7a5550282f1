//! Another head for an object whose content is still right: its origin has confirmed it (a 304).
//!
//! The header is written in place, before the content. Whoever reads it meanwhile, or after a power cut in between, finds
//! that its checksum does not fit, and the object is lost: that is dear, and never wrong.

use super::object::{NewHead, OpenObject};
use super::{DiskEntry, DiskError, Disks, Head};

impl Disks {
    /// Puts another head into an object. One that does not fit before its content removes the object. Waits for the disk.
    ///
    /// # Errors
    /// [`DiskError::TooLarge`]: it did not fit. As [`Disks::open_object`].
    pub fn rewrite_head(
        &self,
        entry: &DiskEntry,
        key: &[u8],
        (head, mark, now): (Head<'_>, u64, i64),
    ) -> Result<(), DiskError> {
        let volume = self.writable(entry.disk)?;
        let object = OpenObject::open_as(&volume, entry.id, Some(key), true)?;
        // The index knows a variant by 32 bits that clients can have meet; its content is for these requests alone.
        if object.header().head.varying != head.varying {
            return Err(DiskError::OtherKey);
        }
        let stored_at = now.clamp(0, i64::from(u32::MAX)) as u32;
        if let Err(error) = object.rewrite(Some(NewHead { head, mark, stored_at }), false) {
            if !matches!(error, DiskError::OtherKey) {
                volume.remove(entry.id);
            }
            return Err(error);
        }
        volume.restamp(entry.id, mark, stored_at);
        Ok(())
    }

    /// Another mark for an object, in the index alone. Its lock of the journal may wait for the disk.
    pub fn restamp(&self, entry: &DiskEntry, mark: u64) {
        if let Some(volume) = self.volume(entry.disk) {
            volume.restamp(entry.id, mark, entry.stored_at);
        }
    }
}
