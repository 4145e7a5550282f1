//! Medians, spreads and tables of the benches. A table is Markdown, padded so that it also reads well in a
//! terminal.

use std::fmt;

/// The middle of some figures and how far they spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// `None` where there is nothing to sum up.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (&least, &most) = (figures.first()?, figures.last()?);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => f64::midpoint(figures[middle - 1], figures[middle]),
            _ => figures[middle],
        };
        Some(Self { median, least, most })
    }
}

/// `4.19 [4.11–4.30]`, three figures that mean something.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}–{}]", significant(self.median), significant(self.least), significant(self.most))
    }
}

/// Three significant figures, none cut off before the point.
pub fn significant(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// `123,456`.
pub fn grouped(figure: f64) -> String {
    let digits = format!("{:.0}", figure.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if figure < 0.0 { format!("-{text}") } else { text }
}

/// Says whether a figure keeps its budget.
pub fn verdict(figure: f64, budget: f64) -> String {
    // What the table shows decides: 0.684 is shown as 0.68 and keeps 0.68.
    let keeps = (figure * 100.0).round() <= (budget * 100.0).round();
    let word = if keeps { "ok" } else { "MISSED" };
    format!("≤ {budget} {word}")
}

/// A Markdown table of `N` columns.
#[derive(Debug)]
pub struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned)] }
    }

    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3)
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                write!(f, "| {cell:0$} ", self.width(column))?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                for column in 0..N {
                    write!(f, "| {:-<1$} ", "", self.width(column))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([2.0]).unwrap().median, 2.0);
        assert_eq!(Spread::of([9.0, 1.0]).unwrap().median, 5.0);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).unwrap(), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([4.19, 4.1, 4.3]).unwrap().to_string(), "4.19 [4.10–4.30]");
    }

    #[test]
    fn figures() {
        let table =
            [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (1_234_567.0, "1,234,567"), (-1000.0, "-1,000")];
        for (figure, expected) in table {
            assert_eq!(grouped(figure), expected);
        }
        assert_eq!(significant(123.4), "123");
        assert_eq!(significant(12.34), "12.3");
        assert_eq!(significant(0.684), "0.68");
    }

    #[test]
    fn budgets() {
        assert_eq!(verdict(0.684, 0.68), "≤ 0.68 ok");
        assert_eq!(verdict(0.69, 0.68), "≤ 0.68 MISSED");
    }

    #[test]
    fn tables() {
        let mut table = Table::new(["a", "long"]);
        table.row(["µs".into(), "1".into()]);
        assert_eq!(table.to_string(), "| a   | long |\n| --- | ---- |\n| µs  | 1    |\n");
    }
}
