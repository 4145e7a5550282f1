//! The error log: what the operator should know, one line each, with time and level.

use super::{Sink, Writer, push_escaped};
use std::io::Write;
use std::sync::{Arc, RwLock};
use tidegate_config::settings::Level;
use tidegate_http::HttpDate;

struct ErrorLog {
    writer: Arc<Writer>,
    sink: Sink,
    level: Level,
}

static ERROR_LOG: RwLock<Option<ErrorLog>> = RwLock::new(None);

/// Sends what follows to `sink`. Before the first call lines go to standard error.
pub fn set_error_log(writer: Arc<Writer>, sink: Sink, level: Level) {
    if let Ok(mut log) = ERROR_LOG.write() {
        *log = Some(ErrorLog { writer, sink, level });
    }
}

/// Something failed.
pub fn error(message: impl std::fmt::Display) {
    line(Level::Error, &message);
}

/// Something is not as it should be, and serving goes on.
pub fn warn(message: impl std::fmt::Display) {
    line(Level::Warn, &message);
}

/// Something worth knowing happened.
pub fn info(message: impl std::fmt::Display) {
    line(Level::Info, &message);
}

fn line(level: Level, message: &dyn std::fmt::Display) {
    let name = match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    let (seconds, nanos) = tidegate_io::clock::wall();
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&HttpDate(seconds).rfc3339()[..19]);
    let _ = write!(out, ".{:03}Z {name}: ", nanos / 1_000_000);
    for (n, part) in message.to_string().split('\n').enumerate() {
        if n > 0 {
            out.extend_from_slice(b"\n    ");
        }
        push_escaped_prose(&mut out, part);
    }
    out.push(b'\n');
    match ERROR_LOG.read().ok().as_deref() {
        Some(Some(log)) if level <= log.level => log.writer.write(log.sink, out),
        Some(Some(_)) => {}
        _ => drop(std::io::stderr().write_all(&out)),
    }
}

/// Quotes stay readable here; control bytes and foreign bytes do not get through.
fn push_escaped_prose(out: &mut Vec<u8>, text: &str) {
    for piece in text.split_inclusive(['"', '\\']) {
        match piece.as_bytes() {
            [front @ .., last @ (b'"' | b'\\')] => {
                push_escaped(out, front);
                out.push(*last);
            }
            all => push_escaped(out, all),
        }
    }
}
