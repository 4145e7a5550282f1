//! The rules of the cache: tables with a row for each clause, properties, and another implementation's opinion.

mod groups;
mod keys;
mod oracle;
mod parts;
mod properties;
mod serving;
mod statuses;
mod storing;
mod validating;
mod varying;

use tidegate_http::cache::{Answered, Asked, Freshness, NotStored, Rules, Times, storable};
use tidegate_http::{Field, FieldLines, Fields, HttpDate, Method, Status};

/// When the responses of the tables come, Unix seconds: `Tue, 14 Nov 2023 22:13:20 GMT`.
const NOW: i64 = 1_700_000_000;

/// Lines of a head: `Name: value`, a line each.
fn lines(text: &str) -> FieldLines {
    let mut lines = FieldLines::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a line of a table");
        // `@-60` is a date, 60 seconds before the response came.
        let value = match value.trim().strip_prefix('@') {
            Some(seconds) => {
                let date = HttpDate(NOW + seconds.parse::<i64>().expect("a number of seconds"));
                String::from_utf8_lossy(&date.format()).into_owned()
            }
            None => value.trim().to_owned(),
        };
        lines.push(name, value);
    }
    lines
}

/// The same as a codec gives them.
fn fields(lines: &FieldLines) -> Vec<Field<'_>> {
    lines.iter().map(|(name, value)| Field { name, value }).collect()
}

/// Calls `with` with a GET that has these lines, of a client that may force a fetch.
fn asked<T>(text: &str, with: impl FnOnce(&Asked<'_>) -> T) -> T {
    let lines = lines(text);
    let fields = fields(&lines);
    with(&Asked { method: Method::Get, fields: Fields::new(&fields), has_content: false, is_obeyed: true })
}

/// Whether a response may be stored that came at `NOW`, to a request sent 2 seconds before.
fn stored(request: &str, status: u16, response: &str, rules: &Rules) -> Result<Freshness, NotStored> {
    let response = lines(response);
    let answered = Answered { status: Status(status), fields: &response };
    asked(request, |asked| storable(asked, &answered, Times { asked: NOW - 2, answered: NOW }, rules))
}

/// A stored response.
fn fresh(response: &str) -> Freshness {
    stored("", 200, response, &Rules::default()).expect("a response of a table that is stored")
}
