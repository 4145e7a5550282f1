//! tidegate-io
