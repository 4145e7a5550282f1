//! `tidegate top`: what a server does, once a second, on a terminal.
//!
//! A thread asks over the control socket; the terminal never waits for it. `model` makes rows of what was told, `draw` puts
//! them on a screen, `terminal` is the screen.

mod draw;
mod model;
mod report;
mod terminal;

use super::control_socket::Server;
use super::print;
use crate::master::control::{Request, Subject};
use anyhow::{Result, anyhow};
use draw::Choices;
use model::{Order, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use report::Sample;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use terminal::{Key, Terminal};
use tidegate_modules::status::Format;
use tidegate_modules::status::printable;

/// Columns of a frame that goes to no terminal.
const WIDTH: u16 = 120;

/// Shows what a server does, live.
///
/// Once a second: requests and bytes a second, connections, what is refused, percentiles; the routes that take the most time,
/// pools and upstreams, requests under way and slow ones. Rates are those since the last time. Keys: s sorts by something
/// else, p pauses, h helps, q quits. Not at a terminal, or with --once, one frame is printed, after one interval.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate top
  tidegate top --sort requests --interval 5
  tidegate top --once > now.txt

Exit codes:
  0  done
  1  no server answers
  2  the arguments are wrong")]
pub struct Arguments {
    /// What routes are sorted by
    #[arg(long, value_name = "ORDER", default_value = "time")]
    sort: Order,
    /// Seconds from one look to the next, from 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    server: Server,
}

/// `tidegate top`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let source = Source::new(arguments);
    let first = source.sample()?;
    if arguments.once || !stdout().is_terminal() {
        return once(&source, &first, arguments.sort);
    }
    live(source, first, arguments.sort)
}

/// Where samples come from.
struct Source {
    server: Server,
    interval: Duration,
    began: Instant,
}

impl Source {
    fn new(arguments: &Arguments) -> Source {
        let interval = Duration::from_secs(arguments.interval);
        Source { server: arguments.server.clone(), interval, began: Instant::now() }
    }

    fn sample(&self) -> Result<Sample> {
        let ask = |request| self.server.ask_for(&request);
        let report = ask(Request::Status(Format::Json))?;
        let at = self.began.elapsed().as_secs_f64();
        Sample::read(
            at,
            &report,
            &ask(Request::Show(Subject::Requests, Format::Json))?,
            &ask(Request::Show(Subject::Slow, Format::Json))?,
        )
    }

    /// Asks again and again, each time after an interval, until nobody listens.
    fn run(&self, told: &Sender<Result<Sample>>, ended: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(self.interval) {
            if told.send(self.sample()).is_err() {
                return;
            }
        }
    }
}

/// One frame as text, with the rates of one interval.
fn once(source: &Source, first: &Sample, order: Order) -> Result<ExitCode> {
    let (_open, ended) = channel::<()>();
    let _ = ended.recv_timeout(source.interval);
    let second = source.sample()?;
    let view = View::of(Some(first), &second, order);
    print(&text(&view, &Choices { order, ..Choices::default() }))
}

/// A view as lines of text, as high as it wants to be.
fn text(view: &View, choices: &Choices) -> String {
    let area = Rect::new(0, 0, WIDTH, draw::height(view));
    let mut buffer = Buffer::empty(area);
    draw::frame(view, choices, None, area, &mut buffer);
    let lines = buffer.content().chunks(usize::from(WIDTH)).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn live(source: Source, first: Sample, order: Order) -> Result<ExitCode> {
    let (news, told) = channel();
    let (_quits, has_quit) = channel::<()>();
    let asking = std::thread::Builder::new().name("tidegate-top".into());
    asking
        .spawn(move || source.run(&news, &has_quit))
        .map_err(|error| anyhow!("cannot start a thread: {error}"))?;
    let is_colored = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut choices = Choices { order, is_colored, has_keys: true, ..Choices::default() };
    let (mut before, mut now) = (None, Arc::new(first));
    let mut trouble = None;
    let mut terminal = Terminal::take()?;
    loop {
        let view = View::of(before.as_deref(), &now, choices.order);
        terminal.draw(|frame| {
            draw::frame(&view, &choices, trouble.as_deref(), frame.area(), frame.buffer_mut());
        })?;
        // Something to draw: a key, or news.
        loop {
            let key = terminal.key()?;
            if key == Some(Key::Quit) {
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(key) = key {
                choices.obey(key);
            }
            let mut is_new = key.is_some();
            for news in told.try_iter() {
                is_new = true;
                match news {
                    _ if choices.is_paused => {}
                    Ok(sample) => {
                        before = Some(std::mem::replace(&mut now, Arc::new(sample)));
                        trouble = None;
                    }
                    Err(error) => trouble = Some(printable(&format!("{error:#}"))),
                }
            }
            if is_new {
                break;
            }
        }
    }
}

impl Choices {
    fn obey(&mut self, key: Key) {
        let Key::Char(char) = key else { return };
        match char {
            's' => self.order = self.order.next(),
            't' => self.order = Order::Time,
            'r' => self.order = Order::Requests,
            'b' => self.order = Order::Bytes,
            'e' => self.order = Order::Errors,
            'p' | ' ' => self.is_paused = !self.is_paused,
            'h' | '?' => self.shows_help = !self.shows_help,
            _ => {}
        }
    }
}
