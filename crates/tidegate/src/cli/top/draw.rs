//! A frame of `tidegate top`: what a [`View`] holds, on as many lines as the terminal has.
//!
//! The head is always there; what is left of the height is shared out among the tables, the routes first.

use super::model::{Cell, Column, Order, Table, Tone, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Findings shown at most.
const FINDINGS: u16 = 3;
/// The help, by line.
const HELP: [&str; 9] = [
    "s  sort routes by the next of time, requests, bytes, errors",
    "t r b e  sort routes by time, requests, bytes, errors",
    "p  pause, and go on",
    "h ?  this help, and away again",
    "q Esc  quit",
    "",
    "TIME is a route's share of the time that all requests took. Rates and MEAN are",
    "those of the last interval, P99 is since the start.",
    "tidegate cancel ID ends a request; tidegate docs watching explains the figures.",
];

/// What the person at the keyboard has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Choices {
    pub order: Order,
    pub is_paused: bool,
    pub shows_help: bool,
    /// Whether colours may be used.
    pub is_colored: bool,
    /// Whether there are keys to be told of.
    pub has_keys: bool,
}

/// Draws a frame. `trouble`: why there is nothing newer.
pub fn frame(view: &View, choices: &Choices, trouble: Option<&str>, area: Rect, buffer: &mut Buffer) {
    let mut canvas = Canvas { buffer, area, next: area.y, is_colored: choices.is_colored };
    for line in &view.head {
        canvas.line(line);
    }
    let is_more = view.findings.len() > usize::from(FINDINGS);
    for finding in view.findings.iter().take(usize::from(FINDINGS) - usize::from(is_more)) {
        canvas.line(finding);
    }
    if is_more {
        let more = view.findings.len() + 1 - usize::from(FINDINGS);
        canvas.line(&[Cell {
            text: format!("and {more} more findings: tidegate status"),
            tone: Tone::Warning,
        }]);
    }
    let footer = u16::from(choices.has_keys && canvas.left() > 0);
    if choices.shows_help {
        canvas.skip();
        for line in HELP {
            canvas.line(&[Cell { text: line.to_owned(), tone: Tone::Plain }]);
        }
    } else {
        let tables = [&view.routes, &view.applications, &view.under_way, &view.slow];
        for (table, rows) in tables.into_iter().zip(shares(&tables, canvas.left().saturating_sub(footer))) {
            canvas.table(table, rows);
        }
    }
    canvas.footer(choices, trouble);
}

/// Lines that all of it takes.
pub fn height(view: &View) -> u16 {
    let tables = [&view.routes, &view.applications, &view.under_way, &view.slow];
    let rows: usize = tables.iter().map(|table| wanted(table)).sum();
    let findings = view.findings.len().min(usize::from(FINDINGS));
    u16::try_from(view.head.len() + findings + rows).unwrap_or(u16::MAX)
}

/// Lines of a table with its head; one without rows is not shown.
fn wanted(table: &Table) -> usize {
    if table.rows.is_empty() { 0 } else { table.rows.len() + 1 }
}

/// How many lines each table has: each is sure of a head and two rows as far as there is room, the first of them first; what
/// is left goes round until nobody wants more.
fn shares(tables: &[&Table; 4], height: u16) -> [u16; 4] {
    let wanted = tables.map(|table| u16::try_from(wanted(table)).unwrap_or(u16::MAX));
    let (mut shares, mut left) = ([0; 4], height);
    for (share, wanted) in shares.iter_mut().zip(wanted) {
        let sure = wanted.min(3);
        if sure <= left {
            *share = sure;
            left -= sure;
        }
    }
    while left > 0 {
        let before = left;
        for (at, wanted) in wanted.into_iter().enumerate() {
            // Routes are what most look for: they get two for each of the others.
            let more = if at == 0 { 2 } else { 1 };
            let more = more.min(left).min(wanted.saturating_sub(shares[at]));
            if shares[at] > 0 {
                shares[at] += more;
                left -= more;
            }
        }
        if left == before {
            break;
        }
    }
    shares
}

struct Canvas<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    next: u16,
    is_colored: bool,
}

impl Canvas<'_> {
    /// Lines that are left.
    fn left(&self) -> u16 {
        self.area.bottom().saturating_sub(self.next)
    }

    fn skip(&mut self) {
        self.next = self.next.saturating_add(1).min(self.area.bottom());
    }

    fn style(&self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Plain => return Style::new(),
            Tone::Name => Style::new().add_modifier(Modifier::BOLD),
            Tone::Warning => Style::new().fg(Color::Yellow),
            Tone::Error => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        };
        if self.is_colored { style } else { Style::new() }
    }

    /// Cells one behind the other; what does not fit is cut off.
    fn line(&mut self, cells: &[Cell]) {
        if self.left() == 0 {
            return;
        }
        let mut at = self.area.x;
        for cell in cells {
            let width = self.area.right().saturating_sub(at);
            let style = self.style(cell.tone);
            (at, _) = self.buffer.set_stringn(at, self.next, &cell.text, usize::from(width), style);
        }
        self.skip();
    }

    fn table(&mut self, table: &Table, lines: u16) {
        if lines == 0 || self.left() == 0 {
            return;
        }
        // The widest column says what the table is of.
        let heads = table.columns.iter().map(|column| match column.width {
            0 => table.title.clone(),
            _ => column.head.to_owned(),
        });
        let heads: Vec<Cell> = heads.map(|text| Cell { text, tone: Tone::Plain }).collect();
        let style = Style::new().add_modifier(Modifier::REVERSED);
        let line = Rect { y: self.next, height: 1, ..self.area };
        self.row(table.columns, &heads);
        self.buffer.set_style(line, style);
        for row in table.rows.iter().take(usize::from(lines) - 1) {
            self.row(table.columns, row);
        }
    }

    fn row(&mut self, columns: &[Column], cells: &[Cell]) {
        if self.left() == 0 {
            return;
        }
        let fixed: u16 = columns.iter().map(|column| column.width).sum();
        let gaps = u16::try_from(columns.len().saturating_sub(1)).unwrap_or(0);
        let wide = self.area.width.saturating_sub(fixed + gaps);
        let mut at = self.area.x;
        for (column, cell) in columns.iter().zip(cells) {
            let width = if column.width == 0 { wide } else { column.width };
            let width = width.min(self.area.right().saturating_sub(at));
            let own = u16::try_from(cell.text.chars().count()).unwrap_or(u16::MAX);
            let indent = if column.is_right { width.saturating_sub(own) } else { 0 };
            let style = self.style(cell.tone);
            self.buffer.set_stringn(at + indent, self.next, &cell.text, usize::from(width - indent), style);
            at = at.saturating_add(width + 1);
        }
        self.skip();
    }

    fn footer(&mut self, choices: &Choices, trouble: Option<&str>) {
        let last = self.area.bottom().checked_sub(1).filter(|last| choices.has_keys && *last >= self.next);
        let Some(last) = last else { return };
        self.next = last;
        let state = if choices.is_paused { "PAUSED  " } else { "" };
        let keys = Cell { text: "q quit  s sort  p pause  h help".to_owned(), tone: Tone::Plain };
        let state = Cell { text: state.to_owned(), tone: Tone::Warning };
        match trouble {
            Some(trouble) => self.line(&[state, Cell { text: trouble.to_owned(), tone: Tone::Error }]),
            None => self.line(&[state, keys]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::sample;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// What stands on a screen of this size.
    fn screen(choices: Choices, trouble: Option<&str>, (width, height): (u16, u16)) -> Vec<String> {
        let view = View::of(Some(&sample(10)), &sample(11), choices.order);
        let choices = Choices { has_keys: true, ..choices };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| super::frame(&view, &choices, trouble, frame.area(), frame.buffer_mut()))
            .unwrap();
        let cells = terminal.backend().buffer().content().chunks(usize::from(width));
        let line =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
        cells.map(|cells| line(cells).trim_end().to_owned()).collect()
    }

    #[test]
    fn everything_is_on_the_smallest_screen() {
        let screen = screen(Choices::default(), None, (80, 24));
        let expected = [
            "Tidegate 0.1.0  pid 7  up 11s  revision 3  2 workers  cpu 50%  12M  07:00:00Z",
            "104 req/s  out 2.0K/s  in 0B/s  50% 1.0ms  90% 1.0ms  99% 500ms  99.9% 500ms",
            "connections 95/100  in flight 1  queued 4  refused 3/s  4xx 0/s  5xx 1/s",
            "cache main  hits 95%  memory 1.0M of 64M  disks 4.0K of 8.0K  1 out of use",
            "pool-small php: requests wait 300 ms -> workers 8",
            "Routes by time    REQ/S  TIME    MEAN     P99   SENT/S  4XX/S  5XX/S",
            "a.test /slow/*                 4   95%   500ms       -       1B      0      1",
            "a.test /fast/*               100    5%   1.0ms   4.0ms     2.0K      0      0",
        ];
        let shown: Vec<&str> = screen.iter().map(String::as_str).collect();
        let aligned = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        for (shown, expected) in shown.iter().zip(expected) {
            assert_eq!(aligned(shown), aligned(expected), "{screen:#?}");
        }
        for head in ["Pools and upstreams", "Under way: 2", "Slow, the last first"] {
            assert!(shown.iter().any(|line| line.contains(head)), "{head}: {screen:#?}");
        }
        assert_eq!(shown[23], "q quit  s sort  p pause  h help");
        let fits = |line: &&str| line.chars().count() <= 80;
        assert!(shown.iter().all(fits), "{screen:#?}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        for size in [(1, 1), (3, 2), (20, 4), (80, 5), (79, 11), (300, 100)] {
            for shows_help in [false, true] {
                screen(
                    Choices { shows_help, is_colored: true, ..Choices::default() },
                    Some("no answer"),
                    size,
                );
            }
        }
    }

    #[test]
    fn help_pause_and_trouble_are_said() {
        let paused = Choices { is_paused: true, ..Choices::default() };
        assert_eq!(screen(paused, None, (80, 24))[23], "PAUSED  q quit  s sort  p pause  h help");
        assert_eq!(screen(paused, Some("no answer"), (80, 24))[23], "PAUSED  no answer");
        let help = screen(Choices { shows_help: true, ..Choices::default() }, None, (80, 24));
        assert!(help.iter().any(|line| line.starts_with("s  sort routes")), "{help:#?}");
        assert!(!help.iter().any(|line| line.contains("a.test")), "{help:#?}");
        assert!(HELP.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn tables_share_what_there_is() {
        let of = |rows: usize| Table { rows: vec![Vec::new(); rows], ..Table::default() };
        for (rows, height, expected) in [
            ([10, 0, 0, 0], 24, [11, 0, 0, 0]),
            ([10, 10, 10, 10], 16, [5, 4, 4, 3]),
            ([1, 1, 1, 1], 24, [2, 2, 2, 2]),
            ([100, 1, 1, 100], 20, [12, 2, 2, 4]),
            ([5, 5, 5, 5], 7, [4, 3, 0, 0]),
            ([5, 5, 5, 5], 0, [0, 0, 0, 0]),
        ] {
            let tables = rows.map(of);
            let [a, b, c, d] = &tables;
            let shares = shares(&[a, b, c, d], height);
            assert!(shares.iter().sum::<u16>() <= height, "{rows:?}: {shares:?}");
            let least: usize = rows.iter().map(|rows| if *rows == 0 { 0 } else { rows + 1 }).sum();
            assert_eq!(usize::from(shares.iter().sum::<u16>()), least.min(usize::from(height)), "{shares:?}");
            if rows != [100, 1, 1, 100] {
                assert_eq!(shares, expected, "{rows:?}");
            }
        }
    }
}
