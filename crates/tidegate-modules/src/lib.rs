//! tidegate-modules
