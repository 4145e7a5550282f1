//! The disk tier: folders on one or several disks below the memory tier.

/// The folders of a store.
#[derive(Debug)]
pub struct Disks {}
