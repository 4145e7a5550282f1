//! Directives that are not known where they stand: what was probably meant, or where they belong.

use super::{Checker, File};
use crate::diagnostic::Diagnostic;
use crate::directive::{Context, Directive};
use crate::syntax::document::Node;
use crate::{directives, foreign, suggest};

/// Unknown directives that a name is suggested for: more than are ever shown.
const EXPLAINED: usize = 500;

impl Checker<'_> {
    /// Says that a directive is not known in a context.
    pub(super) fn unknown(&mut self, file: &File, node: &Node, context: Context) {
        let word = node.name.as_str();
        self.unknown += 1;
        if self.unknown > EXPLAINED {
            let diagnostic = Diagnostic::error(format!("unknown directive `{word}`"));
            let label = format!("not known {}", context.place());
            self.diagnostics.push(diagnostic.at(&file.source, node.name_range.clone()).label(label));
            return;
        }
        let elsewhere: Vec<&Directive> =
            self.language.all().filter(|directive| directive.name == word).collect();
        let near = suggest::nearest(word, self.language.in_context(context).map(|directive| directive.name));
        let is_of_server =
            context == Context::RequestLimits && directives::find(Context::Limits, word).is_some();
        let listens_in_site = word == "listen" && context == Context::Site && self.language.is_settings();
        let (message, help) = if listens_in_site {
            let help = "listeners are the server's, at the top level; a `site` is served at one of them alone with `bind`, in the words \
                        of that `listen`: `bind \"127.0.0.1:8080\"`";
            (format!("`{word}` cannot stand {}", context.place()), help.to_owned())
        } else if let Some(meant) = called_here(word, context) {
            let problem =
                if elsewhere.is_empty() { "unknown directive" } else { "no directive of this block:" };
            (format!("{problem} `{word}`"), format!("it is `{meant}` {}", context.place()))
        } else if let Some(ours) = Some(word.to_ascii_lowercase())
            .filter(|lower| lower != word && self.language.find(context, lower).is_some())
        {
            // Apache begins its words so: then both are told.
            let theirs = foreign::hint_of_another(word)
                .filter(|_| self.language.is_settings())
                .map(|theirs| format!(" {theirs}"))
                .unwrap_or_default();
            (format!("unknown directive `{word}`"), format!("did you mean `{ours}`?{theirs}"))
        } else if is_of_server {
            let message = format!("`{word}` cannot stand {}", context.place());
            (message, suggest::for_the_server(word).to_owned())
        } else if !elsewhere.is_empty() {
            let places: Vec<&str> =
                elsewhere.iter().flat_map(|found| found.contexts).map(|context| context.place()).collect();
            (format!("`{word}` cannot stand {}", context.place()), format!("it stands {}", places.join(", ")))
        } else if let Some(help) = foreign::hint(word).filter(|_| self.language.is_settings()) {
            (format!("unknown directive `{word}`"), help)
        } else if let Some(near) = near {
            (format!("unknown directive `{word}`"), format!("did you mean `{near}`?"))
        } else if let Some(kin) = self.of_its_kind(word, context) {
            (format!("unknown directive `{word}`"), kin)
        } else if let Some(near) = suggest::nearest(word, self.language.names()) {
            let places: Vec<&str> = self
                .language
                .all()
                .filter(|known| known.name == near)
                .flat_map(|known| known.contexts)
                .map(|context| context.place())
                .collect();
            (
                format!("unknown directive `{word}`"),
                format!("did you mean `{near}`? It stands {}", places.join(", ")),
            )
        } else {
            let known: Vec<String> =
                self.language.in_context(context).map(|known| format!("`{}`", known.name)).collect();
            (
                format!("unknown directive `{word}`"),
                format!("known {} are {}", context.place(), known.join(", ")),
            )
        };
        let of_line = || foreign::hint_of_line(node).filter(|_| self.language.is_settings());
        let help = called_here(word, context).map_or_else(of_line, |_| None).unwrap_or(help);
        let mut diagnostic = Diagnostic::error(message)
            .at(&file.source, node.name_range.clone())
            .label(format!("not known {}", context.place()))
            .help(help);
        // A word that others have too may be meant as theirs.
        if self.language.is_settings()
            && !elsewhere.is_empty()
            && called_here(word, context).is_none()
            && !is_of_server
        {
            let theirs = foreign::hint_of_another(word);
            let own = diagnostic.help.take();
            let both = own.iter().chain(&theirs).map(String::as_str).collect::<Vec<_>>().join("; ");
            diagnostic = diagnostic.help(both);
        }
        self.diagnostics.push(diagnostic);
    }

    /// The directives of a block that end in the same word, such as those of times.
    fn of_its_kind(&self, word: &str, context: Context) -> Option<String> {
        let (_, kind) = word.rsplit_once(['-', '_'])?;
        let is_of_kind = |name: &&str| name.rsplit('-').next() == Some(kind);
        let names = self.language.in_context(context).map(|known| known.name).filter(is_of_kind);
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| format!("what there is {}: {}", context.place(), names.join(", ")))
    }
}

/// What a word is called within a block, where elsewhere it is something else, here or with another server.
fn called_here(word: &str, context: Context) -> Option<&'static str> {
    Some(match (context, word) {
        (Context::Upstream, "server" | "backend" | "to" | "BalancerMember") => "member \"10.0.0.1:3000\"",
        (Context::Proxy, "header" | "proxy_set_header" | "header_up" | "RequestHeader") => {
            "request-header \"X-Name\" \"value\""
        }
        (Context::Admin, "token" | "token-file" | "tokens") => {
            "listen \"127.0.0.1:9443\" token-file=\"/etc/tidegate/admin.token\""
        }
        _ => return None,
    })
}
