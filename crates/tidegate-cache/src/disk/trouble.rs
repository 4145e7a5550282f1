//! What goes wrong with disks and objects, and how it is said.

use super::layout::Damage;
use super::ownership::Exposed;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why there is no object, or none can be stored.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is no such object, or no such disk, any more.
    #[error("the object is not there any more")]
    Gone,
    /// The file has another key of the same hash.
    #[error("the object has another key of the same hash")]
    OtherKey,
    /// It was damaged, and is removed.
    #[error("the object was damaged and is removed: {0}")]
    Broken(#[from] Damage),
    /// A piece that was asked for is not there, or the object is not complete.
    #[error("a part of the object is missing")]
    Missing,
    /// Somebody else fills it.
    #[error("the object is filled by somebody else")]
    Busy,
    /// Our own mistake: bytes beyond the end, or a position within a piece.
    #[error("the bytes do not belong where they were to be written")]
    Order,
    /// Larger than the disk's limit, or its head is longer than [`LONGEST_HEADER`](super::layout::LONGEST_HEADER).
    #[error("the object is too large for the disk")]
    TooLarge,
    /// Everything that could go is in use.
    #[error("the disk has no room: all that could go is in use")]
    NoRoom,
    /// The disk fails or is full.
    #[error("the disk is out")]
    Out,
    /// This process lacks something: descriptors, memory.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Why a disk is not in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Something that is not ours is in the folder.
    #[error("holds `{0}`, which is not of a cache; name a folder that is empty")]
    Foreign(String),
    /// Another version has written it, or the file `tidegate-cache` was changed.
    #[error("was written by another version of Tidegate; empty it, or name another folder")]
    Version,
    /// Others could change what is stored.
    #[error("is not used: {0}")]
    Exposed(#[from] Exposed),
    /// All slots belong to other processes.
    #[error("belongs to another process, which is waited for")]
    Owned,
    /// A call to it is outstanding for too long.
    #[error("does not answer, and is done without until it does")]
    Stalled,
    /// What the system says.
    #[error("{what}: {error}{}", advice(*error))]
    System {
        /// What the folder is or does.
        what: &'static str,
        /// The error of the system.
        error: Errno,
    },
}

/// What helps where the system forbids something: what server processes may reach, and how large a file may be, is found out
/// once, when they begin.
pub(super) fn advice(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => "; let the user of the server reach it, then reload the server",
        Errno::FBIG => {
            "; raise the limit of file sizes (`ulimit -f`, LimitFSIZE=), then start the server anew"
        }
        _ => "",
    }
}

impl Trouble {
    pub(super) fn system(what: &'static str, error: Errno) -> Trouble {
        Trouble::System { what, error }
    }

    /// The same with the whole path of what is wrong.
    pub(super) fn within(self, folder: &Path) -> Trouble {
        match self {
            Trouble::Exposed(exposed) => Trouble::Exposed(exposed.below(folder)),
            trouble => trouble,
        }
    }
}

/// Something that an operator has to be told, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Which disk.
    pub folder: PathBuf,
    /// Why it is not in use; `None`: it is again.
    pub trouble: Option<Trouble>,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        match &self.trouble {
            Some(trouble) => {
                write!(f, "cache folder {folder} {trouble}; nothing is stored there until that has changed")
            }
            None => write!(f, "cache folder {folder} is in use"),
        }
    }
}
