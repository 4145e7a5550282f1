//! KDL documents to typed settings with spans; diagnostics; schema and reference from one definition.
//!
//! Called by the command (`check`, `fmt`, `serve`, reload) and by nobody on the hot path. The way of a text:
//! `syntax` (form), `include` (files), `check` (names and types, from the table in `directives`), `lower`
//! (meaning), `settings` (the result). Nothing here touches the network.

mod accounts;
mod check;
pub mod credentials;
mod diagnostic;
pub mod directive;
pub mod directives;
mod disk;
mod display;
mod effective;
mod environment;
mod folder;
mod foreign;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod include;
pub mod language;
mod load;
mod lower;
pub mod path_encoding;
mod reference;
mod schema;
pub mod settings;
mod source;
mod stand_in;
mod suggest;
mod syntax;
mod token_keys;
mod url_keys;
mod value;
mod written;

pub use diagnostic::{Diagnostic, Severity};
pub use environment::{Environment, ProcessEnvironment};
pub use folder::{from_folder, with_console};
pub use format::{format, format_source};
pub use load::{Loaded, RejectedSite, effective, load_file, load_str, load_texts, load_to_find};
pub use reference::reference;
pub use schema::json_schema;
pub use settings::Settings;
pub use source::Source;
pub use suggest::nearest;
pub use token_keys::read_published_keys;
pub use url_keys::read_url_keys;
pub use value::{duration_text, literal_word, read_duration, size_text};
pub use written::{Document, WrittenSettings};
