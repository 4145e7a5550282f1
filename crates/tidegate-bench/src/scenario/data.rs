//! Data sets: rows that operations draw from, shared by all users.

use std::sync::Arc;

/// A table with named columns. Each column is a variable of the scenario.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// Of the file.
    pub name: String,
    /// The variables that its columns fill.
    pub variables: Vec<u16>,
    /// Each with as many values as there are columns.
    pub rows: Arc<Vec<Vec<String>>>,
    /// Which row is drawn.
    pub draw: Draw,
}

/// Which row of a data set a user gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// Another one for each operation, each as likely.
    Random,
    /// The next one of the user for each operation, from a place of its own.
    Sequence,
    /// The same for ever: that of the user's number, and round again.
    User,
}

impl DataSet {
    /// What column `variable` of row `row` holds, where it is one of this set.
    pub(crate) fn value(&self, variable: u16, row: u32) -> Option<&str> {
        let column = self.variables.iter().position(|known| *known == variable)?;
        Some(self.rows.get(row as usize)?.get(column)?.as_str())
    }
}

/// Columns and rows of comma-separated values (RFC 4180): the first line names the columns. The error is a sentence without
/// its beginning.
pub(crate) fn read_csv(text: &str) -> Result<(Vec<String>, Vec<Vec<String>>), String> {
    // Some programs begin their files with a mark of the byte order.
    let mut records = records(text.strip_prefix('\u{feff}').unwrap_or(text))?.into_iter();
    let columns = records.next().filter(|columns| columns.iter().any(|name| !name.is_empty()));
    let columns = columns.ok_or("has no first line that names the columns")?;
    let mut rows = Vec::new();
    for (number, record) in records.enumerate() {
        if record.len() != columns.len() {
            let (has, due) = (record.len(), columns.len());
            return Err(format!("has {has} values in row {} where the first line names {due}", number + 2));
        }
        rows.push(record);
    }
    if let Some(twice) = (1..columns.len()).find(|at| columns[..*at].contains(&columns[*at])) {
        return Err(format!("names the column `{}` twice", columns[twice]));
    }
    if rows.is_empty() { Err("has no row behind its first line".to_owned()) } else { Ok((columns, rows)) }
}

fn records(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut records, mut record, mut value) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut has_any) = (false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => value.push('"'),
            '"' => (is_quoted, has_any) = (!is_quoted, true),
            ',' if !is_quoted => {
                record.push(std::mem::take(&mut value));
                has_any = true;
            }
            '\r' if !is_quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !is_quoted => {
                if has_any {
                    record.push(std::mem::take(&mut value));
                    records.push(std::mem::take(&mut record));
                }
                has_any = false;
            }
            other => {
                value.push(other);
                has_any = true;
            }
        }
    }
    if is_quoted {
        return Err("ends within a quoted value".to_owned());
    }
    if has_any {
        record.push(value);
        records.push(record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comma_separated_values() {
        let (columns, rows) = read_csv("name,motto\r\nann,\"a, \"\"b\"\"\"\n\nbob,\n").unwrap();
        assert_eq!(columns, ["name", "motto"]);
        assert_eq!(rows, [["ann", "a, \"b\""], ["bob", ""]]);
        assert_eq!(read_csv("\u{feff}name\nann\n").unwrap().0, ["name"]);
        for (text, part) in [
            ("", "no first line"),
            ("a,b\n", "no row"),
            ("a,b\n1\n", "1 values in row 2"),
            ("a\n\"x", "within a quoted"),
            ("a,b,a\n1,2,3\n", "names the column `a` twice"),
        ] {
            assert!(read_csv(text).unwrap_err().contains(part), "{text:?}");
        }
    }
}
