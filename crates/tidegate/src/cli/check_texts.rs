//! `tidegate check-texts`: what `check` says of texts that lie on no disk yet, and what they would change, for the admin API.
//!
//! Reads a [`CheckInput`] and writes a [`Checked`], both as JSON. The files that settings name are looked at where they lie.

use super::{dangers, loops, print};
use crate::admin::messages::{Changes, CheckInput, Checked, FileText, Finding, SiteChange};
use crate::master::admin::history::{server_changes, site_changes};
use crate::master::servers::Layout;
use crate::master::{sealing, users};
use crate::{preflight, revision};
use anyhow::{Context, Result};
use similar::{Algorithm, TextDiff};
use std::collections::HashMap;
use std::io::stdin;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_config::{Diagnostic, Loaded, ProcessEnvironment, Settings, load_texts};

/// How long the shortest difference is looked for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Checks.
pub fn run() -> Result<ExitCode> {
    let input: CheckInput = serde_json::from_reader(stdin().lock()).context("this command is not for you")?;
    let texts = |files: &[FileText]| -> HashMap<PathBuf, String> {
        files.iter().map(|file| (PathBuf::from(&file.path), file.text.clone())).collect()
    };
    let present = load_texts(&input.main, &texts(&input.present), &ProcessEnvironment);
    let mut next_texts = texts(&input.present);
    next_texts.extend(texts(&input.files));
    let mut loaded = load_texts(&input.main, &next_texts, &ProcessEnvironment);
    look(&mut loaded, &input);
    let changes = match (&present.settings, &loaded.settings) {
        (Some(before), Some(after)) => changes(before, after),
        _ => Changes::default(),
    };
    let diagnostics = loaded.diagnostics.iter().map(finding).collect();
    let checked = Checked { diagnostics, diff: diff(&input), changes };
    print(&serde_json::to_string(&checked)?)
}

/// All that `check` looks at.
fn look(loaded: &mut Loaded, input: &CheckInput) {
    preflight::look(loaded);
    if let Some(settings) = &loaded.settings {
        let reached = sealing::foreseen(settings).into_iter().map(|said| (None, Diagnostic::warning(said)));
        loaded.add(reached.collect());
    }
    loops::look(loaded);
    dangers::look(loaded, &input.main);
}

fn changes(before: &Settings, after: &Settings) -> Changes {
    let layout = |settings: &Settings| {
        let identity = users::identity(settings.user.as_ref()).ok().and_then(|(identity, _)| identity);
        Layout::of(settings, revision::workers(settings), identity)
    };
    let sites = site_changes(before, after);
    Changes {
        sites: sites.into_iter().map(|(name, what)| SiteChange { name, what: what.to_owned() }).collect(),
        server: server_changes(before, after),
        needs_new_processes: !layout(before).suits(&layout(after)),
    }
}

fn finding(diagnostic: &Diagnostic) -> Finding {
    let place = diagnostic.span.as_ref().map(|(source, range)| {
        let (start, end) = (source.position(range.start), source.position(range.end));
        let file = std::path::absolute(&*source.name).unwrap_or_else(|_| PathBuf::from(&*source.name));
        (file, start, end)
    });
    Finding {
        severity: if diagnostic.is_error() { "error" } else { "warning" }.to_owned(),
        file: place.as_ref().map(|(file, ..)| file.clone()),
        line: place.as_ref().map(|(_, (line, _), _)| *line),
        column: place.as_ref().map(|(_, (_, column), _)| *column),
        end_line: place.as_ref().map(|(.., (line, _))| *line),
        end_column: place.as_ref().map(|(.., (_, column))| *column),
        message: diagnostic.message.clone(),
        help: diagnostic.help.clone(),
    }
}

/// From the texts on the disk to the new ones, in the unified form.
fn diff(input: &CheckInput) -> String {
    let mut said = String::new();
    for file in &input.files {
        let Some(before) = input.present.iter().find(|known| known.path == file.path) else { continue };
        if before.text != file.text {
            let mut diff = TextDiff::configure();
            let diff = diff.algorithm(Algorithm::Myers).timeout(PATIENCE);
            let diff = diff.diff_lines(&before.text, &file.text);
            said += &diff.unified_diff().header(&file.path, &file.path).to_string();
        }
    }
    said
}
