//! The reports that the status page and the console show: which there are, and how each is written.
//!
//! The master writes them (`master/status_registry/`), and a worker gets the bytes that it sends: with ten thousand sites it
//! would otherwise be held up for as long as that takes.

use super::{Format, ServerInfo, findings_report, report};
use serde::{Deserialize, Serialize};
use tidegate_stats::Snapshot;

/// A report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// On the server, with sites and routes. The page is asked for again after so many seconds.
    Server(Format, Option<u32>),
    /// The same without sites and routes, as JSON.
    Totals,
    /// On what limits the server.
    Findings(Format),
}

impl Report {
    /// Whether it tells of sites and routes.
    pub fn has_series(self) -> bool {
        matches!(self, Report::Server(..))
    }

    /// The report as it is sent.
    pub fn write(self, info: ServerInfo, counted: Snapshot) -> Vec<u8> {
        match self {
            Report::Server(format, refresh) => report::Server { info, counted }.body(format, refresh),
            Report::Totals => report(info, counted, Format::Json).into_bytes(),
            Report::Findings(format) => {
                findings_report(&info.findings, &info.turned_away, format).into_bytes()
            }
        }
    }
}
