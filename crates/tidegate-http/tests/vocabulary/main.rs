//! Tables and properties for the vocabulary, one module for each of the crate's.

mod conditions;
mod dates;
mod fields;
mod hostile;
mod negotiation;
mod paths;
mod ranges;
mod targets;
mod types;
