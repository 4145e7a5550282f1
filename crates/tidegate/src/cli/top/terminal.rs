//! The terminal while `tidegate top` has it, and how it is given back: whatever ends the program, it is as it was.

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a key is waited for before signals and news are looked at.
const TURN: Duration = Duration::from_millis(100);

/// The terminal in raw mode, on its other screen. Dropped, or in a panic, it is as it was before.
pub struct Terminal {
    terminal: DefaultTerminal,
    has_ended: Arc<AtomicBool>,
}

/// What has come from the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Quit,
    /// Nothing that is meant for this program, or the terminal has another size.
    Other,
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Standard output is none, or cannot be made one.
    pub fn take() -> Result<Terminal> {
        let has_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, has_ended.clone()).context("cannot watch signals")?;
        }
        // Sets a hook for panics that gives the terminal back before anything is said.
        let terminal =
            ratatui::try_init().context("cannot use this terminal; `tidegate top --once` needs none")?;
        Ok(Terminal { terminal, has_ended })
    }

    /// Draws.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(frame).context("the terminal has gone")?;
        Ok(())
    }

    /// What has been typed, if anything comes within a tenth of a second. A signal that ends the program is a key, too.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn key(&self) -> Result<Option<Key>> {
        if self.has_ended.load(Relaxed) {
            return Ok(Some(Key::Quit));
        }
        if !event::poll(TURN).context("the terminal has gone")? {
            return Ok(self.has_ended.load(Relaxed).then_some(Key::Quit));
        }
        let key = match event::read().context("the terminal has gone")? {
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            _ => return Ok(Some(Key::Other)),
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        Ok(Some(match key.code {
            KeyCode::Char('c' | 'd') if is_control => Key::Quit,
            KeyCode::Esc | KeyCode::Char('q') => Key::Quit,
            KeyCode::Char(char) if !is_control => Key::Char(char.to_ascii_lowercase()),
            _ => Key::Other,
        }))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
