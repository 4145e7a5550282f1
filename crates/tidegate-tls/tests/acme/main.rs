//! Automatic certificates on a clock that the tests turn, with authorities that fail on purpose.

mod authority;
mod issued;
mod renewals;
mod sharing;
