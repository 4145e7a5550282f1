//! In place of the engine where this program is built without one: there is none, so nothing can be called.

use super::{Export, Given, Mistake, Said, ScriptError};
use crate::random::Random;
use std::time::Duration;

/// There is none.
pub(in crate::scenario) enum Engine {}

impl Engine {
    /// Says that there is none.
    pub fn new(_name: &str, _text: &str, _within: Duration) -> Result<Engine, Mistake> {
        Err(Mistake::NotBuilt)
    }

    /// See there.
    pub fn exports(&self) -> Vec<Export> {
        match *self {}
    }

    /// See there.
    pub fn call(
        &mut self,
        _function: u16,
        _given: &Given<'_>,
        _random: &mut Random,
    ) -> Result<Said, ScriptError> {
        match *self {}
    }
}
