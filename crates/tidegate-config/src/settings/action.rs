//! What the engine has to know of an action without naming it: each says it here, of all of them.

use super::Action;
use super::gateway::{BackendTls, Script};
use std::path::Path;

impl Action {
    /// Whether a program answers, so that a file of that path is run and not sent.
    pub fn is_program(&self) -> bool {
        match self {
            Action::Cgi(_) | Action::Fastcgi(_) | Action::Scgi(_) | Action::Proxy(_) => true,
            Action::Files(_)
            | Action::HandTo { .. }
            | Action::Redirect { .. }
            | Action::Respond { .. }
            | Action::Close
            | Action::Status
            | Action::Console { .. } => false,
        }
    }

    /// The folder that its files or scripts lie in; absolute. `None` where it needs none.
    pub fn root(&self) -> Option<&Path> {
        let root = match self {
            Action::Files(files) => files.root.as_path(),
            Action::Cgi(application) | Action::Fastcgi(application) | Action::Scgi(application) => {
                application.root.as_path()
            }
            Action::Proxy(_)
            | Action::HandTo { .. }
            | Action::Redirect { .. }
            | Action::Respond { .. }
            | Action::Close
            | Action::Status
            | Action::Console { .. } => return None,
        };
        Some(root).filter(|root| *root != Path::new(""))
    }

    /// Whether it answers every request with an error: who may not have a path may not have it by an `index` either.
    pub fn refuses(&self) -> bool {
        matches!(self, Action::Close | Action::Respond { status: 400.., .. })
    }

    /// Whether a path may name the source of one of its programs: a file that is run, and must never be sent.
    pub fn owns_source(&self, path: &[u8]) -> bool {
        let (Action::Cgi(application) | Action::Fastcgi(application) | Action::Scgi(application)) = self
        else {
            return false;
        };
        match &application.script {
            Script::FirstFile { .. } => true,
            Script::Suffixes(suffixes) => path.split(|byte| *byte == b'/').any(|part| {
                let ends_so = |suffix: &String| {
                    part.len()
                        .checked_sub(suffix.len())
                        .is_some_and(|at| part[at..].eq_ignore_ascii_case(suffix.as_bytes()))
                };
                suffixes.iter().any(ends_so)
            }),
            Script::File(_) | Script::Mounted(_) => false,
        }
    }

    /// Whether it is served however busy the server is: it shows the figures of the server to who may see them.
    pub fn always_answers(&self) -> bool {
        match self {
            Action::Status | Action::Console { .. } => true,
            Action::Cgi(_)
            | Action::Fastcgi(_)
            | Action::Scgi(_)
            | Action::Proxy(_)
            | Action::Files(_)
            | Action::HandTo { .. }
            | Action::Redirect { .. }
            | Action::Respond { .. }
            | Action::Close => false,
        }
    }

    /// TLS with an application.
    pub fn backend_tls(&self) -> Option<&BackendTls> {
        match self {
            Action::Proxy(proxy) => proxy.gateway.tls.as_ref(),
            _ => None,
        }
    }
}
