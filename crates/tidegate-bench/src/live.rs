//! The line that moves while a run goes on, at a terminal.

use crate::quantity::show_bytes;
use crate::run::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A live line on standard error, or nothing where that is no terminal.
pub struct Live(ProgressBar);

impl Live {
    /// For a run of so long, as far as that is known.
    pub fn new(time: Option<Duration>, is_wanted: bool) -> Live {
        if !is_wanted {
            return Live(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(
            time.map(|time| time.as_millis() as u64),
            ProgressDrawTarget::stderr_with_hz(5),
        );
        let template = if time.is_some() { "{bar:24} {wide_msg}" } else { "{spinner} {wide_msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Live(bar)
    }

    /// Shows how it goes.
    pub fn show(&self, progress: Progress) {
        self.0.set_position(progress.elapsed.as_millis() as u64);
        self.0.set_message(format!(
            "{:.0} s  {} requests  {:.0}/s  {}/s  {} open  {} failed",
            progress.elapsed.as_secs_f64(),
            progress.requests,
            progress.rate,
            show_bytes(progress.bytes_rate),
            progress.open,
            progress.failed
        ));
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
