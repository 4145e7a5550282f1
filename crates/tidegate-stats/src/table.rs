//! One row per metric, everything else derived: the `metrics!` macro and the traits that it leans on.
//!
//! A row names the field, its type, its unit, its label in the text report and its meaning. From the rows
//! come the struct that a worker writes, the snapshot that readers get, reading, merging, and the walk over
//! all metrics that the reports take. A metric is therefore never named in a second place.

use crate::cell::Level;
use crate::histogram::Distribution;
use crate::kind::StatusCounts;

/// A cell that a worker writes and that can be read from any thread.
pub trait Metric: Default {
    /// The plain value that reading it gives.
    type Reading: Reading;
    /// Takes the value as it is now.
    fn read(&self) -> Self::Reading;
}

/// A plain value that was read from a metric.
pub trait Reading: Default + Clone + PartialEq + serde::Serialize + serde::de::DeserializeOwned {
    /// Adds what another worker counted.
    fn merge(&mut self, other: &Self);
    /// Takes out what belongs to a worker that has ended: what was current or a bound. Counts stay.
    fn retire(&mut self) {}
    /// The value as the reports see it.
    fn view(&self) -> View<'_>;
}

/// A reading as the reports see it.
#[derive(Debug, Clone, Copy)]
pub enum View<'a> {
    /// A count that only rises.
    Count(u64),
    /// A gauge.
    Level(Level),
    /// A histogram of durations.
    Distribution(&'a Distribution),
    /// Counts by kind.
    Kinds {
        /// What the kinds tell apart.
        label: &'static str,
        /// The name of each kind.
        names: &'static [&'static str],
        /// The count of each kind, in the order of `names`.
        counts: &'a [u64],
    },
    /// Responses by status code.
    Statuses(&'a StatusCounts),
}

/// What a value is measured in. The reports use base units: bytes and seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// A duration: kept in nanoseconds, told in seconds.
    Seconds,
}

/// The fixed part of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Heading of the section in the text report.
    pub section: &'static str,
    /// The field's name, the key in JSON, and the stem of the Prometheus name.
    pub name: &'static str,
    /// What the text report calls it.
    pub label: &'static str,
    /// What it is measured in.
    pub unit: Unit,
    /// One sentence that says what is counted.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($section:literal {
        $($name:ident: $metric:ty, $unit:ident, $label:literal, $help:literal;)*
    })*) => {
        /// What one worker counts. Only that worker's thread writes to it; any thread may read.
        #[derive(Debug, Default)]
        pub struct Worker {
            $($(#[doc = $help] pub $name: $metric,)*)*
            /// Microseconds of processors that it has used, as it says once a second.
            pub busy_micros: $crate::cell::Counter,
            /// How long applications, caches and limits have kept requests waiting.
            pub times: $crate::TimesTable,
            /// The same for each site and route.
            pub series: $crate::series::SeriesTable,
        }

        impl Worker {
            /// Reads all metrics. The values are each exact but not of one instant: the worker goes on.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { workers: 1, $($($name: $crate::table::Metric::read(&self.$name),)*)* }
            }
        }

        /// What one or more workers had counted when it was taken: plain values.
        ///
        /// It travels between processes; a metric that the sender does not know yet reads as nothing counted.
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct Snapshot {
            /// How many workers were added up.
            pub workers: u64,
            $($(#[doc = $help] pub $name: <$metric as $crate::table::Metric>::Reading,)*)*
        }

        impl Snapshot {
            /// Adds what other workers counted.
            pub fn merge(&mut self, other: &Snapshot) {
                self.workers = self.workers.saturating_add(other.workers);
                $($($crate::table::Reading::merge(&mut self.$name, &other.$name);)*)*
            }

            /// Takes out what was current.
            fn retire_gauges(&mut self) {
                self.workers = 0;
                $($($crate::table::Reading::retire(&mut self.$name);)*)*
            }

            /// Every metric in the order of the report, sections together.
            pub fn rows(&self) -> Vec<($crate::table::Description, $crate::table::View<'_>)> {
                vec![$($((
                    $crate::table::Description {
                        section: $section,
                        name: stringify!($name),
                        label: $label,
                        unit: $crate::table::Unit::$unit,
                        help: $help,
                    },
                    $crate::table::Reading::view(&self.$name),
                ),)*)*]
            }
        }
    };
}

pub(crate) use metrics;
