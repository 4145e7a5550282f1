//! What a server counts, and how it tells: counters, gauges and histograms, their snapshots, and the reports
//! as text, JSON and for Prometheus.
//!
//! Each worker thread owns one [`Worker`] behind an `Arc` and is the only one that writes to it; any thread
//! may take a [`Snapshot`] at any time, and snapshots of several workers are added up with
//! [`Snapshot::merge`]. Every metric is defined once, as a row of the table in `worker.rs`; all reports
//! derive from that row. What is counted for each site and route is in [`series`], what was counted when in [`history`].
//!
//! Called by the engine and its modules (writing) and by the status page and the command (reading). Must not
//! know any of them, nor HTTP, and must neither allocate nor lock when something is counted.

pub mod busiest;
mod cell;
mod exponential;
mod exposition;
mod histogram;
pub mod history;
mod json;
mod kind;
mod listeners;
mod openmetrics;
mod prometheus;
mod protobuf;
pub mod series;
mod table;
mod text;
mod times;
mod worker;

pub use cell::{Counter, Gauge, Level};
pub use exposition::{Buckets, Exponential, Exposition, Family, FamilyKind, Schema, Series};
pub use histogram::{Distribution, Elapsed, Histogram};
pub use kind::{
    AcceptError, ConnectionFault, ConnectionRefusal, Eviction, Flush, GatewayFailure, Handshake, Kind,
    KindCounts, Kinds, ParseError, QueueRefusal, StatusCounts, Statuses, StreamReset, Timeout, TlsError,
};
pub use listeners::{ListenerCounts, ListenerFigures, ListenerNumber, ListenerTable, add_listeners};
pub use openmetrics::{OPENMETRICS_CONTENT_TYPE, openmetrics};
pub use protobuf::{PROTOBUF_CONTENT_TYPE, protobuf};
pub use table::{Description, Metric, Reading, Unit, View};
pub use times::{PartTimes, Timed, TimesFigures, TimesTable, add_times};
pub use worker::{Snapshot, Worker};
