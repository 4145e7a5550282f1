//! RFC 9110 and 9111 vocabulary: no I/O, no clock.

pub mod field;

pub use field::Field;
