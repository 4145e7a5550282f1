//! What is wrong with a file of settings, said so that the reader can put it right.
//!
//! Made by every stage of loading, printed by the command. A diagnostic never carries only "invalid": it
//! names the culprit, shows the line, says what would be right and what stays in force meanwhile.

use std::fmt::Write as _;
use std::ops::Range;

use crate::source::Source;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The thing it stands in cannot be served.
    Error,
    /// It can be served, but hardly as meant.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// One sentence without a full stop, naming the culprit.
    pub message: String,
    /// The text it is about, as a range of bytes; `None` when no text is to blame (a missing file).
    pub span: Option<(Source, Range<usize>)>,
    /// What to say under the caret.
    pub label: Option<String>,
    /// What would be right.
    pub help: Option<String>,
    /// What the server does while this is not put right.
    pub in_force: Option<String>,
    /// Which of the rejected sites it costs, as an index into `Loaded::rejected`.
    pub costs: Option<usize>,
    /// How many others it stands for, which are not told; 0: it is one itself.
    pub stands_for: usize,
}

/// The most characters of a source line that are shown; longer lines are cut around the caret.
const SHOWN_WIDTH: usize = 110;

impl Diagnostic {
    /// An error without a place.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            span: None,
            label: None,
            help: None,
            in_force: None,
            costs: None,
            stands_for: 0,
        }
    }

    /// A warning without a place.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// What tells it from others, wherever in its file it stands: the file, the text that it is about, the sentence.
    pub fn identity(&self) -> String {
        let text = |(source, range): &(Source, Range<usize>)| {
            format!("{}: {}: ", source.name, source.text.get(range.clone()).unwrap_or_default())
        };
        self.span.as_ref().map(text).unwrap_or_default() + &self.message
    }

    /// As a line of a log.
    pub fn in_a_line(&self) -> String {
        let place = self.span.as_ref().map(|(source, range)| {
            let (line, column) = source.position(range.start);
            format!("{}:{line}:{column}: ", source.name)
        });
        let help = self.help.as_ref().map(|help| format!("; {help}"));
        format!("{}{}{}", place.unwrap_or_default(), self.message, help.unwrap_or_default())
    }

    /// Points at a range of a source.
    pub fn at(mut self, source: &Source, range: Range<usize>) -> Self {
        self.span = Some((source.clone(), range));
        self
    }

    /// Sets the words under the caret.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Says what would be right.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says what would be right, where there is something to say.
    pub(crate) fn help_if(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// Says what the server does meanwhile.
    pub fn in_force(mut self, in_force: impl Into<String>) -> Self {
        self.in_force = Some(in_force.into());
        self
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The diagnostic as text of several lines, each ended: `FILE:LINE:COLUMN: error: message`, the line with
    /// a caret, what would be right, what stays in force. Control characters of the source are escaped.
    pub fn render(&self, color: bool) -> String {
        let paint = Paint { on: color };
        let mut out = String::new();
        let (word, tone) = match self.severity {
            Severity::Error => ("error", Tone::Red),
            Severity::Warning => ("warning", Tone::Yellow),
        };
        if let Some((source, range)) = &self.span {
            let (line, column) = source.position(range.start);
            let _ = write!(out, "{}:{line}:{column}: ", escape(&source.name));
        }
        let _ =
            writeln!(out, "{}: {}", paint.wrap(tone, word), paint.wrap(Tone::Bold, &escape(&self.message)));
        if let Some((source, range)) = &self.span {
            self.render_line(&mut out, source, range, &paint, tone);
        }
        for (word, text) in [("help", &self.help), ("in force", &self.in_force)] {
            if let Some(text) = text {
                let _ = writeln!(out, "  {}: {}", paint.wrap(Tone::Blue, word), escape(text));
            }
        }
        out
    }

    fn render_line(
        &self,
        out: &mut String,
        source: &Source,
        range: &Range<usize>,
        paint: &Paint,
        tone: Tone,
    ) {
        let (line, start) = source.line_at(range.start);
        let number = source.position(range.start).0.to_string();
        let from = range.start.saturating_sub(start).min(line.len());
        let to = range.end.saturating_sub(start).clamp(from, line.len());
        let (Some(before), Some(marked), Some(after)) =
            (line.get(..from), line.get(from..to), line.get(to..))
        else {
            return;
        };
        let (before, marked, after) = (escape(before), escape(marked), escape(after));
        let (before, after) = cut(&before, &marked, &after);
        let marked: String = marked.chars().take(SHOWN_WIDTH).collect();
        let margin = " ".repeat(number.len());
        let carets = "^".repeat(marked.chars().count().max(1));
        let indent = " ".repeat(before.chars().count());
        let label = self.label.as_deref().map(|label| format!(" {}", escape(label))).unwrap_or_default();
        let _ = writeln!(out, " {} {before}{marked}{after}", paint.wrap(Tone::Blue, &format!("{number} |")));
        let _ = writeln!(
            out,
            " {} {indent}{}",
            paint.wrap(Tone::Blue, &format!("{margin} |")),
            paint.wrap(tone, &format!("{carets}{label}"))
        );
    }
}

/// Cuts what stands before and behind the marked text so that the line stays readable.
fn cut(before: &str, marked: &str, after: &str) -> (String, String) {
    let room = SHOWN_WIDTH.saturating_sub(marked.chars().count());
    let count = before.chars().count();
    let kept = room.max(20);
    let before = if count > kept {
        let tail: String = before.chars().skip(count - kept).collect();
        format!("…{tail}")
    } else {
        before.to_owned()
    };
    let room = room.saturating_sub(before.chars().count());
    let after = if after.chars().count() > room {
        format!("{}…", after.chars().take(room).collect::<String>())
    } else {
        after.to_owned()
    };
    (before, after)
}

/// Makes text safe for a terminal and of known width: a tab is four spaces, other control and invisible
/// direction characters become `\u{..}`.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => out.push_str("    "),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                out.extend(character.escape_unicode());
            }
            character if character.is_control() => out.extend(character.escape_unicode()),
            character => out.push(character),
        }
    }
    out
}

#[derive(Clone, Copy)]
enum Tone {
    Red,
    Yellow,
    Blue,
    Bold,
}

struct Paint {
    on: bool,
}

impl Paint {
    fn wrap(&self, tone: Tone, text: &str) -> String {
        if !self.on {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Red => "31;1",
            Tone::Yellow => "33;1",
            Tone::Blue => "34;1",
            Tone::Bold => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_line_with_a_caret() {
        let source = Source::new("s.kdl", "workers 4\n\tlisen \":80\"\n");
        let text = Diagnostic::error("unknown directive `lisen`")
            .at(&source, 11..16)
            .label("not known here")
            .help("did you mean `listen`?")
            .render(false);
        let expected = "s.kdl:2:2: error: unknown directive `lisen`\n 2 |     lisen \":80\"\n   |     ^^^^^ not known here\n  help: did you mean `listen`?\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn control_characters_are_escaped_and_long_lines_cut() {
        let text = format!("{}\u{1b}[2J{}", "a".repeat(500), "b".repeat(500));
        let source = Source::new("s", &text);
        let shown = Diagnostic::error("bad\u{7}").at(&source, 500..504).render(false);
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 160), "{shown}");
    }
}
