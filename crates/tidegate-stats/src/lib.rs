//! tidegate-stats
