//! How the allocator of glibc is set in server processes, which read that when they start: by the variable `GLIBC_TUNABLES`
//! (glibc manual, "Memory Allocation Tunables"). Other C libraries pass over it.

use std::ffi::{OsStr, OsString};

/// The variable.
pub(super) const VARIABLE: &str = "GLIBC_TUNABLES";

/// Pieces of each size up to 1,032 bytes that a thread keeps at hand, where glibc keeps 7: what is more is merged with its
/// neighbours and split again. A worker that has much to do ends and begins some 20 requests in a turn, each with pieces of the
/// same sizes, and the merging cost 3 % of the processor time of a request to an application. At most 2 MiB for each thread
/// that ever had so many of all sizes in use.
const OURS: &str = "glibc.malloc.tcache_count=64";

/// The value of [`VARIABLE`], whatever it was: what an operator says comes behind, and counts.
pub(super) fn tunables(own: Option<&OsStr>) -> OsString {
    let mut tunables = OsString::from(OURS);
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        tunables.push(":");
        tunables.push(own);
    }
    tunables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_word_comes_last() {
        for (own, expected) in [
            (None, "glibc.malloc.tcache_count=64"),
            (Some(""), "glibc.malloc.tcache_count=64"),
            (Some("glibc.malloc.tcache_count=0"), "glibc.malloc.tcache_count=64:glibc.malloc.tcache_count=0"),
        ] {
            assert_eq!(tunables(own.map(OsStr::new)), expected, "{own:?}");
        }
    }
}
