//! KDL documents to typed settings with spans; diagnostics; schema and reference from one definition.

mod display;
pub mod settings;
