//! Settings for one folder without any file: `tidegate serve DIR --listen ADDRESS`.
//!
//! The defaults of the table, one site without a name that serves the folder with listings.

use std::path::Path;
use std::sync::Arc;

use crate::check::{Checker, number};
use crate::diagnostic::Diagnostic;
use crate::directive::{Context, Kind};
use crate::directives;
use crate::disk::{Disk, RealDisk, What};
use crate::environment::ProcessEnvironment;
use crate::lower;
use crate::settings::{
    AccessRule, AccessRules, Action, ListenAddress, Listener, Network, NetworkSet, Origin, PathPattern,
    Route, Settings, Shared, Site, SiteLog, SiteTls, SocketAccess,
};
use crate::source::Source;
use crate::value::{self, Value, Written};

/// Where the console of a folder is.
const CONSOLE: &str = "/.console/";

/// What the origins and diagnostics of arguments name as their file.
const COMMAND_LINE: &str = "<command line>";

/// The address that is listened on when none is given.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// Settings that serve a folder with listings, on the addresses given (as `listen` takes them) or on
/// 127.0.0.1:8080.
///
/// # Errors
/// All that is wrong with the arguments: an address that is none or is given twice, a folder that is none or
/// may not be looked into.
pub fn from_folder(folder: &Path, listen: &[String]) -> Result<Settings, Vec<Diagnostic>> {
    let mut checker = Checker::new(&ProcessEnvironment);
    let server = lower::server(&mut checker, &RealDisk, &[]);
    let mut settings = server.settings;
    let default = [DEFAULT_ADDRESS.to_owned()];
    for text in if listen.is_empty() { &default } else { listen } {
        match listener(text, &settings.listeners) {
            Ok(listener) => settings.listeners.push(listener),
            Err(diagnostic) => checker.diagnostics.push(*diagnostic),
        }
    }
    let root = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let problem = match RealDisk.what(&root) {
        What::Folder if RealDisk.may_enter(&root) => None,
        What::Folder | What::Hidden => Some("may not be looked into"),
        What::Missing | What::Dangling => Some("does not exist"),
        What::File | What::Special => Some("is no folder"),
    };
    if let Some(problem) = problem {
        let message = format!("{} {problem}", folder.display());
        checker
            .diagnostics
            .push(Diagnostic::error(message).help("name a folder to serve: `tidegate serve DIR`"));
    }
    if !checker.diagnostics.is_empty() {
        return Err(checker.diagnostics);
    }
    let mut inherited = server.inherited;
    inherited.root = Some(root);
    inherited.listing = lower::plain_listing();
    let origin = Origin { file: COMMAND_LINE.into(), line: 0, column: 0 };
    let route = lower::plain_route(inherited, PathPattern::Prefix("/".to_owned()), origin.clone());
    settings.sites.push(Arc::new(Site {
        names: Vec::new(),
        routes: vec![route],
        trusted_proxies: Shared::default(),
        has_request_id: false,
        sampling: None,
        access_log: SiteLog::Inherited,
        bound: Vec::new(),
        tls: SiteTls::default(),
        is_https_only: false,
        hooks: Vec::new(),
        left_out: None,
        origin,
    }));
    Ok(settings)
}

/// The same settings with the console at `/.console/`, for clients of this machine.
///
/// # Errors
/// No address is one of this machine alone: who wants a console there writes settings that say who may see it.
pub fn with_console(mut settings: Settings) -> Result<Settings, Vec<Diagnostic>> {
    if !settings.listeners.iter().any(is_of_this_machine) {
        let message = "`--console` needs an address that this machine alone can reach";
        let help =
            "add `--listen 127.0.0.1:8080`, or write settings with a route that says who may see the console";
        let source = Source::new(COMMAND_LINE, "--console");
        let error = Diagnostic::error(message).at(&source, 0..source.text.len());
        return Err(vec![error.help(help)]);
    }
    for site in &mut settings.sites {
        let site = Arc::make_mut(site);
        let Some(plain) = site.routes.last() else { continue };
        let mut console = plain.clone();
        console.pattern = PathPattern::Prefix(CONSOLE.to_owned());
        console.action = Action::Console { prefix: CONSOLE.to_owned(), may_change: false };
        let local = AccessRule::of(true, Network::Local, plain.origin.clone());
        console.access.levels.push(AccessRules::from(vec![local]).into());
        let path = PathPattern::Exact(CONSOLE.trim_end_matches('/').to_owned());
        site.routes.splice(0..0, [Route { pattern: path, ..console.clone() }, console]);
    }
    Ok(settings)
}

fn is_of_this_machine(listener: &Listener) -> bool {
    matches!(listener.address, ListenAddress::Tcp(address) if address.ip().is_loopback())
}

fn listener(text: &str, others: &[Listener]) -> Result<Listener, Box<Diagnostic>> {
    let source = Source::new(COMMAND_LINE, text);
    let folder = std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned());
    let error = |message: String| Diagnostic::error(message).at(&source, 0..text.len());
    let address = match value::read(Kind::Address, &[], Written::Text { text, is_bare: false }, &folder) {
        Ok(Value::Address(address)) => address,
        Ok(_) => return Err(Box::new(error(format!("`{text}` is no address")))),
        Err(wrong) => return Err(Box::new(error(wrong.message).help(wrong.help))),
    };
    if others.iter().any(|other| other.address == address) {
        return Err(Box::new(
            error("this address is given twice".to_owned()).help("take one of the two out"),
        ));
    }
    let backlog = directives::find(Context::Listen, "backlog")
        .and_then(|directive| lower::default_item(directive, Context::Listen))
        .and_then(|item| u32::try_from(number(&item)).ok());
    let origin = Origin { file: COMMAND_LINE.into(), line: 0, column: 0 };
    Ok(Listener {
        written: address.clone(),
        address,
        backlog: backlog.unwrap_or_default(),
        send_buffer: None,
        receive_buffer: None,
        default_site: None,
        access: SocketAccess::default(),
        h2c: false,
        tls: None,
        proxies: NetworkSet::default(),
        redirects_to_https: None,
        origin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn serves_a_folder_with_listings() {
        let settings = from_folder(Path::new("."), &[]).unwrap();
        assert_eq!(settings.listeners[0].address, ListenAddress::Tcp("127.0.0.1:8080".parse().unwrap()));
        let Action::Files(files) = &settings.sites[0].routes[0].action else { panic!("files") };
        assert!(
            files.root.is_absolute() && files.listing.is_some() && files.uses_cache && !files.serves_hidden
        );
        assert_eq!(files.index, ["index.html"]);
        assert_eq!(settings.limits.connections, 20000);
    }

    #[test]
    fn a_console_is_for_this_machine() {
        let settings = with_console(from_folder(Path::new("."), &[]).unwrap()).unwrap();
        let route = &settings.sites[0].routes[1];
        assert_eq!(route.action, Action::Console { prefix: CONSOLE.to_owned(), may_change: false });
        assert!(route.access.levels[0].has_any_for_this_machine());
        for (listen, is_sound) in
            [("[::1]:1", true), (":1", false), ("192.0.2.1:1", false), ("unix:/x", false)]
        {
            let settings = from_folder(Path::new("."), &[listen.to_owned()]).unwrap();
            assert_eq!(with_console(settings).is_ok(), is_sound, "{listen}");
        }
    }

    #[test]
    fn tells_every_wrong_argument() {
        let wrong = from_folder(Path::new("/no/such"), &["localhost:1".into(), ":1".into(), ":1".into()]);
        let text: Vec<String> =
            wrong.unwrap_err().iter().map(|diagnostic| diagnostic.render(false)).collect();
        assert_eq!(text.len(), 3, "{text:?}");
    }
}
