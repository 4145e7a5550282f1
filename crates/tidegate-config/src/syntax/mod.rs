//! The form of a settings file: text in, KDL document or all mistakes of form out.
//!
//! Called by loading and by `format`. Three steps: `lexer` (tokens), `grammar` (bounds, errors in our words),
//! then the `kdl` crate for what the text means.

pub(crate) mod grammar;
pub(crate) mod lexer;

use std::ops::Range;

use kdl::KdlDocument;

use crate::diagnostic::Diagnostic;
use crate::source::Source;
use grammar::OutlineNode;
use lexer::{SyntaxError, Token};

/// The largest file of settings, bytes.
pub(crate) const FILE_SIZE: usize = 1024 * 1024;
/// Most mistakes of form that are told of one file.
const ERRORS: usize = 100;

/// A file that could not be read as KDL.
pub(crate) struct Broken {
    pub diagnostics: Vec<Diagnostic>,
    /// The top level as far as it could be made out, so that the reader knows what is lost.
    pub outline: Vec<OutlineNode>,
}

/// Reads a source as KDL.
pub(crate) fn parse(source: &Source) -> Result<KdlDocument, Broken> {
    let (_, outline) = scan(source)?;
    let text = blank(&source.text, &outline.blanks);
    text.parse::<KdlDocument>().map_err(|error| {
        let diagnostics = error
            .diagnostics
            .iter()
            .take(ERRORS)
            .map(|found| {
                let start = found.span.offset();
                let message = found.message.clone().unwrap_or_else(|| "this cannot be read".to_owned());
                Diagnostic::error(message)
                    .at(source, start..start + found.span.len())
                    .help_if(found.help.clone())
            })
            .collect();
        Broken { diagnostics, outline: outline.nodes }
    })
}

/// Cuts a source into tokens and checks its form.
pub(crate) fn scan(source: &Source) -> Result<(Vec<Token>, grammar::Outline), Broken> {
    if source.text.len() > FILE_SIZE {
        let message = format!("{} is larger than 1 MiB", source.name);
        let diagnostic = Diagnostic::error(message).help("split it with `include`");
        return Err(Broken { diagnostics: vec![diagnostic], outline: Vec::new() });
    }
    let (tokens, mut errors) = lexer::lex(&source.text);
    let mut outline = grammar::check(&tokens);
    errors.append(&mut outline.errors);
    if errors.is_empty() {
        return Ok((tokens, outline));
    }
    errors.sort_by_key(|error| error.range.start);
    let diagnostics = errors.into_iter().take(ERRORS).map(|error| diagnose(source, error)).collect();
    Err(Broken { diagnostics, outline: outline.nodes })
}

fn diagnose(source: &Source, error: SyntaxError) -> Diagnostic {
    Diagnostic::error(error.message).at(source, error.range).help_if(error.help)
}

/// Replaces ranges by spaces, byte for byte, so that every offset stays true.
fn blank(text: &str, ranges: &[Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        if let Some(part) = bytes.get_mut(range.clone()) {
            part.fill(b' ');
        }
    }
    // The ranges are whole tokens, so what is left is whole characters.
    String::from_utf8(bytes).expect("invariant: tokens end on character boundaries")
}
