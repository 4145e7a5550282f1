//! Requests that have ended since somebody asked last, of all workers, in the order in which they ended: for `tidegate tail`.

use serde::{Deserialize, Serialize};

/// What is new.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TailReport {
    /// Requests that nobody will be told of: there was no room for them.
    pub lost: u64,
    /// Workers that have not said anything.
    pub silent: usize,
    /// The rest.
    pub rows: Vec<TailRow>,
}

/// A request that has ended. What is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TailRow {
    /// When: seconds since 1970.
    pub at: f64,
    /// How long it took, seconds.
    pub took: f64,
    /// What it was answered with; 499: its client had gone before.
    pub status: u16,
    /// Bytes of its head and content.
    pub received: u64,
    /// Bytes of head and content of its answer.
    pub sent: u64,
    /// Who has asked.
    pub client: String,
    /// `http` or `https`.
    pub scheme: String,
    /// As sent.
    pub method: String,
    /// As sent.
    pub host: String,
    /// As sent.
    pub target: String,
    /// `HTTP/1.1` or the like.
    pub protocol: String,
    /// The first name of the site.
    pub site: String,
    /// The pattern of the route.
    pub route: String,
    /// As sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub referer: String,
    /// As sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// The application that was asked last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub upstream: String,
    /// Where its site gives one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

/// What a worker says.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfWorker {
    lost: u64,
    rows: Vec<TailRow>,
    error: Option<String>,
}

/// Puts together what the workers say to the question `tail`.
///
/// # Errors
/// One of them refuses: why.
pub fn tail_report(answers: &[String]) -> Result<TailReport, String> {
    let mut report = TailReport::default();
    for answer in answers {
        match serde_json::from_str::<OfWorker>(answer) {
            Ok(OfWorker { error: Some(error), .. }) => return Err(error),
            Ok(told) => {
                report.lost = report.lost.saturating_add(told.lost);
                report.rows.extend(told.rows);
            }
            Err(_) => report.silent += 1,
        }
    }
    report.rows.sort_by(|one, other| one.at.total_cmp(&other.at));
    Ok(report)
}

/// Requests of a selection that were ended, or would have been: of what the workers say to the question `cancel-all`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CancelReport {
    /// How many there are.
    pub count: u64,
    /// Their ids, of many those of the oldest.
    pub ids: Vec<String>,
    /// Workers that have not said anything.
    pub silent: usize,
    error: Option<String>,
}

/// Puts together what the workers say to it.
///
/// # Errors
/// One of them refuses: why.
pub fn cancel_report(answers: &[String]) -> Result<CancelReport, String> {
    let mut report = CancelReport::default();
    for answer in answers {
        match serde_json::from_str::<CancelReport>(answer) {
            Ok(CancelReport { error: Some(error), .. }) => return Err(error),
            Ok(told) => {
                report.count = report.count.saturating_add(told.count);
                report.ids.extend(told.ids);
            }
            Err(_) => report.silent += 1,
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_in_which_they_ended() {
        let answers = [
            r#"{"lost":2,"rows":[{"at":5.25,"status":200,"site":"a.test"},{"at":7.5,"status":404}]}"#,
            r#"{"lost":1,"rows":[{"at":6.0,"status":502,"upstream":"10.0.0.1:80"}]}"#,
            "this worker does not answer",
        ]
        .map(str::to_owned);
        let report = tail_report(&answers).unwrap();
        assert_eq!((report.lost, report.silent), (3, 1));
        let statuses: Vec<u16> = report.rows.iter().map(|row| row.status).collect();
        assert_eq!(statuses, [200, 502, 404]);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<TailReport>(&json).unwrap(), report);
        assert_eq!(tail_report(&[r#"{"error":"no"}"#.to_owned()]), Err("no".to_owned()));
    }

    #[test]
    fn what_was_ended_is_added_up() {
        let answers =
            [r#"{"count":2,"ids":["1-0-3-1","1-0-4-1"]}"#, r#"{"count":700,"ids":["1-1-3-1"]}"#, ""]
                .map(str::to_owned);
        let report = cancel_report(&answers).unwrap();
        assert_eq!((report.count, report.ids.len(), report.silent), (702, 3, 1));
        assert!(cancel_report(&[r#"{"error":"no"}"#.to_owned()]).is_err());
    }
}
