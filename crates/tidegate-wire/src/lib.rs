//! tidegate-wire
