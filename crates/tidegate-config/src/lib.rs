//! KDL documents to typed settings with spans; diagnostics; schema and reference from one definition.

pub mod settings;
