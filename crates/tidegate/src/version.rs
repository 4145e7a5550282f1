//! What this program calls itself: for `--version`, `status` and whoever reports a fault.

/// The version, and in optimised builds the commit.
pub const VERSION: &str = env!("TIDEGATE_VERSION");
