//! What the engine has to know of an action without naming it: each says it here, of all of them.

use super::gateway::{BackendTls, Script};
use super::{Action, PathPattern, Site, Try};
use std::collections::HashMap;
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

    /// Whether an application gets a path with `%2F` as it was sent.
    fn passes_encoded_slashes(&self) -> bool {
        matches!(self, Action::Proxy(proxy) if proxy.passes_encoded_slashes)
    }

    /// The route that gets what is no file.
    fn last_resort(&self) -> Option<&str> {
        match self {
            Action::Files(files) => match files.try_list.last() {
                Some(Try::Route(name)) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Site {
    /// For each route whether it passes on a path with `%2F` as it was sent: to an application that is to have it, or as files
    /// that leave to one what is none of them.
    pub fn encoded_slashes(&self) -> Vec<bool> {
        let mut named: HashMap<&str, bool> = HashMap::new();
        for route in &self.routes {
            if let PathPattern::Exact(name) = &route.pattern {
                named.entry(name).or_insert(route.action.passes_encoded_slashes());
            }
        }
        let passes = |action: &Action| {
            let leads_to = |name: &str| named.get(name).is_some_and(|passes| *passes);
            action.passes_encoded_slashes() || action.last_resort().is_some_and(leads_to)
        };
        self.routes.iter().map(|route| passes(&route.action)).collect()
    }
}
