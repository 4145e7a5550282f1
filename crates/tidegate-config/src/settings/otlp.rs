//! `otlp`: a collector of OpenTelemetry that is told what the server counts.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Where it is, and what it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Otlp {
    /// Without a slash at its end: paths such as `/v1/metrics` are put behind it.
    pub url: String,
    /// How often it is told, at least a second.
    pub interval: Duration,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// `service.name`.
    pub service: String,
    /// Fields to send along, in small letters. They may be secrets, and none but the master needs them.
    #[serde(skip)]
    pub headers: Vec<(String, String)>,
    /// Where they were read.
    #[serde(with = "crate::path_encoding::optional_path")]
    pub headers_file: Option<PathBuf>,
}
