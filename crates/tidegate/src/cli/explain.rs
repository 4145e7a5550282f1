//! `tidegate explain`: what the server would do with a request, and why, without a server.
//!
//! Builds the same engine that a worker would and asks it. Looks at the file system, never at the network.

use super::{complain, default_config, has_color, print};
use crate::master::users;
use crate::preflight;
use crate::registry::Registry;
use crate::revision::SettingsFrom;
use crate::server::privileges::become_user;
use anyhow::{Context as _, Error, Result, anyhow, bail};
use clap::Args;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tidegate_config::settings::{Country, ListenAddress};
use tidegate_config::{Diagnostic, Loaded, ProcessEnvironment, Settings, from_folder, load_file};
use tidegate_core::access_data::{AccessFile, AccessFiles, AccessStore};
use tidegate_core::client_names::{ClientName, name_of};
use tidegate_core::exchange::Local;
use tidegate_core::explain::{Asked, Known, Notes, refusal};
use tidegate_core::tls::{TlsFiles, TlsStore, key_of};
use tidegate_core::{Exchange, Reply, RequestState, Response};
use tidegate_http::field::is_token;
use tidegate_http::target::origin_form;
use tidegate_http::{Authority, Field, Fields, Method, Target, Version};
use tidegate_io::runtime::{self, Runtime};
use tidegate_io::socket::Peer;
use tidegate_io::{Kind, Poller, Slab};
use tidegate_modules::login::Assumed;
use tidegate_tls::{ClientIdentity, NOT_FOR_THIS_USER};

/// How long an answer may wait for the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says what would answer a request, and why.
///
/// Walks the way of a request through the settings: the listener, the site, each route that was tried, who
/// is let in, and the file or answer in the end, with the file and line where each is written. Nothing is
/// sent and no server needs to run; files are looked at. Keys and passwords that this user may not read are named,
/// and taken for empty: root is told the whole.
#[derive(Args)]
#[command(
    override_usage = "tidegate explain [OPTIONS] [METHOD] URL",
    after_long_help = "\
Examples:
  tidegate explain http://www.example.com/static/app.css
  tidegate explain --config site.kdl HEAD http://example.com/ -H 'Accept-Encoding: br'
  tidegate explain --dir /srv/www http://127.0.0.1:8080/downloads/
  tidegate explain --from 192.0.2.7 http://example.com/.perf
  tidegate explain --user anna --at '2026-01-05 08:00 Europe/Berlin' http://example.com/admin/

Exit codes:
  0  the request is sound, and what would answer it was said
  1  the settings or the request are wrong
  2  the arguments are wrong"
)]
pub struct Arguments {
    /// Method and URL; the method is GET unless named
    #[arg(value_names = ["METHOD", "URL"], num_args = 1..=2, required = true)]
    request: Vec<String>,
    /// Field of the request; may be given several times. `Host` takes the place of the URL's host
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// Address of the client, for `allow` and `deny`; `unix` for one on a unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = peer)]
    from: Peer,
    /// The country of the client, in place of what the database says: `DE`; `ZZ` for none that is known
    #[arg(long, value_name = "CC", value_parser = Country::read)]
    country: Option<Country>,
    /// What the client is called, in place of what name servers say, which are not asked here; `none` for a client without a name
    #[arg(long, value_name = "HOST", value_parser = client_name)]
    name: Option<ClientName>,
    /// When the request comes: `2026-01-05T08:00:00Z`, or with a time zone `2026-01-05 08:00 Europe/Berlin`
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<i64>,
    /// Who has logged in, instead of a name and a password in the request
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The client shows the certificate of this PEM file, which is taken for verified
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// A group of that user beside those of the settings; may be given several times
    #[arg(long = "group", value_name = "NAME", requires = "user")]
    groups: Vec<String>,
    /// Settings file [default: tidegate.kdl here, else /etc/tidegate/tidegate.kdl]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Explain `tidegate serve DIR` instead of a settings file
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    dir: Option<PathBuf>,
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a field is written `Name: value`")?;
    if !is_token(name.as_bytes()) {
        return Err(format!("`{name}` is no name of a field"));
    }
    let value = value.trim_matches([' ', '\t']);
    if value.bytes().any(|byte| byte != b'\t' && byte.is_ascii_control()) {
        return Err("a field holds no control characters".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn client_name(text: &str) -> Result<ClientName, String> {
    match text {
        "none" => Ok(ClientName::Nameless),
        name => name_of(name.split('.').map(str::as_bytes))
            .map(ClientName::Known)
            .ok_or_else(|| "a name of letters, digits, `-`, `_` and dots is needed, or `none`".into()),
    }
}

fn instant(text: &str) -> Result<i64, String> {
    tidegate_config::settings::read_instant(text).ok_or_else(|| {
        "write it as `2026-01-05T08:00:00Z`, or with a time zone as `2026-01-05 08:00 Europe/Berlin`".into()
    })
}

/// The client of `--from`.
///
/// # Errors
/// A clause that says what is needed.
pub fn peer(text: &str) -> Result<Peer, String> {
    match text {
        "unix" => Ok(Peer::Unix),
        address => match address.parse::<IpAddr>() {
            Ok(address) => Ok(Peer::Tcp((address, 0).into())),
            Err(_) => Err("an IPv4 or IPv6 address, or `unix`, is needed".into()),
        },
    }
}

/// Explains.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (method_token, url) = match arguments.request.as_slice() {
        [url] => ("GET", url.as_str()),
        [method, url] => (method.as_str(), url.as_str()),
        _ => bail!("a URL is needed"),
    };
    if arguments.request.iter().any(|text| text.contains(char::is_control)) {
        bail!("a control character is no part of a method or a URL");
    }
    if !is_token(method_token.as_bytes()) {
        bail!("`{method_token}` is no method");
    }
    if arguments.request.len() == 1 && is_method(url) {
        bail!(
            "`{url}` is a method, and the URL behind it is missing: `tidegate explain {url} http://example.com/`"
        );
    }
    let has_host = arguments.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    if url.starts_with('/') && !has_host {
        bail!("{url}: a whole URL is needed, with the host: `http://example.com{url}`");
    }
    let Found { settings, access: found, denied } = load(arguments)?;
    let settings = Arc::new(settings);
    let method = Method::from_token(method_token);
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let target =
        Target::parse(method, url).map_err(|error| match url.contains("://") || url.starts_with('/') {
            true => anyhow!("{url}: {error}"),
            false => anyhow!("{url}: {error}; write `http://{url}`"),
        })?;
    if let Target::Absolute { scheme, .. } = &target
        && !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    {
        bail!("{url}: the scheme `{scheme}` is none that this server speaks; write http or https");
    }
    let Some(raw_path) = target.path() else {
        return print("the request asks about the server as a whole: 204 with `Allow`\n");
    };

    let mut out = String::new();
    let _ = writeln!(out, "{method_token} {url}");
    if let Some(fragment) = fragment {
        let _ = writeln!(out, "fragment #{fragment}: stays with the client");
    }
    let listener = choose_listener(&settings, &target, arguments.from, &mut out);
    let (authority, fields) = authority_and_fields(arguments, url, &target);
    let head = head_of(method_token, url, &fields);
    let size = head.len();
    let refused = match not_spoken(&settings, listener, &target) {
        Some(said) => Some(said.to_owned()),
        None => {
            refusal(&settings, &head).map(|(status, why)| format!("{} {}: {why}", status.0, status.reason()))
        }
    };
    if let Some(refused) = refused {
        let _ = writeln!(out, "answer: {refused}");
        print(&out)?;
        return Ok(ExitCode::FAILURE);
    }
    let fields: Vec<Field<'_>> =
        fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
    // Handlers belong to a worker; this thread is one that never serves.
    let mut poller = Poller::new().context("cannot open a poller")?;
    let runtime = Runtime::install(poller.registry()?).context("cannot set up a worker")?;
    let tls = TlsStore::new()?;
    match TlsFiles::read(&settings, &TlsFiles::default(), &HashMap::new()) {
        Ok(files) => drop(tls.take(&files)),
        // Which certificate is shown decides nothing here.
        Err(_) if !denied.is_empty() => {}
        Err(error) => return Err(error.into()),
    }
    let notes = Notes::default();
    let access = Arc::<AccessStore>::default();
    let files = AccessFiles::read(&settings, &AccessFiles::default(), found).map_err(Error::msg)?;
    access.take(&files)?;
    if let Some(country) = arguments.country {
        access.assume(country);
    }
    if let Some(name) = &arguments.name {
        access.assume_name(name.clone());
    }
    let user = arguments.user.as_ref().map(|name| Assumed::new(name, &arguments.groups, notes.clone()));
    let engine = Registry::for_rehearsal(notes.clone(), access, tls, user)
        .build(&settings, &mut |_| Ok(None))
        .map_err(|error| anyhow!("{error}"))?;
    become_the_user(&settings)?;
    let is_secure = settings.listeners.get(listener).is_some_and(|listener| listener.tls.is_some());
    let origin = origin_form(url);
    let exchange = Exchange {
        method,
        method_token,
        target: &origin,
        path: b"/",
        query: target.query(),
        scheme: if is_secure { "https" } else { "http" },
        authority: &authority,
        fields: Fields::new(&fields),
        protocol: None,
        version: Version::Http11,
        is_early: false,
        now: arguments.at.unwrap_or_else(tidegate_io::clock::wall_seconds),
        started: tidegate_io::clock::monotonic_ns(),
        local: Local::default(),
        state: RequestState::default(),
    };
    let listener = u16::try_from(listener).unwrap_or(0);
    let client = arguments.certificate.as_deref().map(ClientIdentity::read).transpose()?;
    let asked = Asked { listener, peer: arguments.from, raw_path, client, size, exchange };
    let response = wait(engine.rehearse(asked, &notes), &runtime, &mut poller)?;
    for sentence in notes.take() {
        let _ = writeln!(out, "{sentence}");
    }
    for why in &denied {
        let _ = writeln!(out, "not known: {why}; what it decides is as if nothing stood there");
    }
    let (known, status) = (notes.known(&response), response.status);
    let said = match (notes.unanswered(), known) {
        (Some(why), _) => format!("none: {why}"),
        (None, Known::All) => format!("{} {}", status.0, status.reason()),
        (None, Known::Status) => format!(
            "{} {}, with the page that the application makes; as it is where that fails",
            status.0,
            status.reason()
        ),
        (None, Known::Nothing) => "what the application says".to_owned(),
    };
    let _ = match notes.undecided() {
        None => writeln!(out, "answer: {said}"),
        // No status that the server may not give.
        Some(gate) => writeln!(out, "answer: what {gate} says; only if that lets the request in, {said}"),
    };
    let has_fields = known == Known::All && notes.unanswered().is_none();
    for (name, value) in response.head.lines().iter().take_while(|_| has_fields) {
        let _ = writeln!(out, "  {name}: {}", String::from_utf8_lossy(value));
    }
    print(&out)?;
    Ok(if notes.is_malformed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether a word is the name of a method, and no host.
fn is_method(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// The server processes read files as a user of their own, and so does this from here on.
fn become_the_user(settings: &Settings) -> Result<()> {
    let (identity, _) = users::identity(settings.user.as_ref())?;
    identity.as_ref().map_or(Ok(()), become_user)
}

/// The answer, which may have to wait for the disk.
fn wait(reply: Reply, runtime: &Runtime, poller: &mut Poller) -> Result<Response> {
    let waker = runtime::waker(Slab::default().insert(()));
    let (mut settled, mut ready) = (pin!(reply.settled()), Vec::new());
    let until = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(response) = settled.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(response);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the disk has not answered for {} s", PATIENCE.as_secs());
        }
        if !runtime.has_ready() {
            ready.clear();
            poller.wait(Some(left), &mut ready).context("cannot wait for the disk")?;
        }
        for event in &ready {
            match event.kind() {
                Kind::Io => runtime.on_io(event),
                Kind::Remote => runtime.on_remote(),
                Kind::Connection | Kind::Listener => {}
            }
        }
        runtime.run_tasks();
        runtime.take_ready(&mut Vec::new()); // there is only the one
    }
}

fn load(arguments: &Arguments) -> Result<Found> {
    let from = match (&arguments.dir, &arguments.config) {
        (Some(folder), _) => {
            SettingsFrom::Folder { folder: folder.clone(), listen: Vec::new(), console: false }
        }
        (None, Some(path)) => SettingsFrom::File(path.clone()),
        (None, None) => SettingsFrom::File(default_config()?),
    };
    let mut loaded = match from {
        SettingsFrom::File(path) => load_file(&path, &ProcessEnvironment),
        SettingsFrom::Folder { folder, listen, .. } => match from_folder(&folder, &listen) {
            Ok(settings) => return Ok(Found { settings, access: Vec::new(), denied: Vec::new() }),
            Err(diagnostics) => Loaded { diagnostics, ..Loaded::default() },
        },
    };
    // Keys and passwords are for the user that starts the server. Who may not read them is told what there is without.
    let without =
        if is_denied_alone(&loaded) { loaded.settings.clone().or(loaded.partial.clone()) } else { None };
    let found = preflight::look(&mut loaded);
    loaded.answer_for_rejected(|files| found.pairs.contains_key(&key_of(files)));
    let found = found.access;
    complain(&loaded.render(has_color()));
    let denied: Vec<String> =
        loaded.diagnostics.iter().filter(|said| is_denied(said)).map(|said| said.message.clone()).collect();
    let settings = match without.filter(|_| !denied.is_empty() && is_denied_alone(&loaded)) {
        None => loaded.settings,
        without => without,
    };
    let settings = settings.ok_or_else(|| anyhow!("nothing could be served, so nothing can be explained"))?;
    Ok(Found { settings, access: found, denied })
}

/// What is explained.
struct Found {
    settings: Settings,
    access: Vec<AccessFile>,
    /// Files that this user may not read, a sentence each.
    denied: Vec<String>,
}

/// Whether a mistake is that this user may not read a file.
fn is_denied(said: &Diagnostic) -> bool {
    let denied = io::Error::from(Errno::ACCESS).to_string();
    said.is_error() && (said.message.contains(&denied) || said.message.ends_with(NOT_FOR_THIS_USER))
}

/// Whether there is no other.
fn is_denied_alone(loaded: &Loaded) -> bool {
    loaded.diagnostics.iter().all(|said| !said.is_error() || is_denied(said))
}

/// The host that the request names, and its fields.
fn authority_and_fields(
    arguments: &Arguments,
    url: &str,
    target: &Target<'_>,
) -> (String, Vec<(String, String)>) {
    let mut fields = arguments.fields.clone();
    // As with curl, a `Host` that is given takes the place of that of the URL.
    let named =
        fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.clone());
    let of_url = target.authority().map(|_| {
        let behind = url.split_once("://").map_or("", |(_, behind)| behind);
        behind.split(['/', '?']).next().unwrap_or_default().to_owned()
    });
    let authority = named.clone().or(of_url).unwrap_or_default();
    if named.is_none() {
        fields.push(("Host".into(), authority.clone()));
    }
    (authority, fields)
}

/// The head of the request, as a client would send it.
fn head_of(method: &str, url: &str, fields: &[(String, String)]) -> Vec<u8> {
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {} HTTP/1.1\r\n{lines}\r\n", origin_form(url)).into_bytes()
}

/// What keeps a client of this scheme from asking this listener at all.
fn not_spoken(settings: &Settings, listener: usize, target: &Target<'_>) -> Option<&'static str> {
    let listener = settings.listeners.get(listener)?;
    let Target::Absolute { scheme, authority, .. } = target else { return None };
    let is_https = scheme.eq_ignore_ascii_case("https");
    let port = authority.port.unwrap_or(if is_https { 443 } else { 80 });
    // One that was only assumed may be reached in any way.
    let is_reached = matches!(listener.address, ListenAddress::Tcp(address) if address.port() == port);
    match (is_reached, is_https, listener.tls.is_some()) {
        (true, false, true) => {
            Some("400 Bad Request: plain HTTP sent to a listener that speaks TLS; ask with https")
        }
        (true, true, false) => {
            Some("none: the client speaks TLS to a listener that does not, and cannot connect; ask with http")
        }
        _ => None,
    }
}

/// The listener that a client of this URL would reach: by port, then by address.
fn choose_listener(settings: &Settings, target: &Target<'_>, from: Peer, out: &mut String) -> usize {
    let listeners = &settings.listeners;
    let describe = |index: usize| match listeners.get(index) {
        Some(listener) if listener.origin.line > 0 => format!("{} ({})", listener.address, listener.origin),
        Some(listener) => listener.address.to_string(),
        None => "none".into(),
    };
    if from == Peer::Unix {
        let unix = |address: &ListenAddress| matches!(address, ListenAddress::Unix(_));
        return match listeners.iter().position(|listener| unix(&listener.address)) {
            Some(index) => {
                let _ = writeln!(out, "listener {}: the client is on a unix socket", describe(index));
                index
            }
            None => {
                let _ =
                    writeln!(out, "listener: none is a unix socket; going on as if it were {}", describe(0));
                0
            }
        };
    }
    let (scheme, authority) = match *target {
        Target::Absolute { scheme, authority, .. } => (scheme, Some(authority)),
        _ => ("http", None),
    };
    let Some(authority) = authority else {
        let _ = writeln!(out, "listener {}: the first, since the URL names no host", describe(0));
        return 0;
    };
    let default_port = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let port = authority.port.unwrap_or(default_port);
    let fits: Vec<usize> = (0..listeners.len())
        .filter(|&index| {
            matches!(listeners.get(index).map(|listener| &listener.address),
                Some(ListenAddress::Tcp(address)) if address.port() == port)
        })
        .collect();
    let host = host_address(&authority);
    let is = |index: &&usize, wanted: &dyn Fn(IpAddr) -> bool| {
        matches!(listeners.get(**index).map(|listener| &listener.address),
            Some(ListenAddress::Tcp(address)) if wanted(address.ip()))
    };
    let exact = fits.iter().find(|index| is(index, &|address| Some(address) == host));
    let any = fits.iter().find(|index| is(index, &|address| address.is_unspecified()));
    match (exact, any, fits.first()) {
        (Some(&index), _, _) => {
            let _ = writeln!(out, "listener {}: address and port fit", describe(index));
            index
        }
        (None, Some(&index), _) => {
            let _ = writeln!(out, "listener {}: the port fits, and it takes every address", describe(index));
            index
        }
        (None, None, Some(&index)) => {
            let _ = writeln!(
                out,
                "listener {}: the port fits, if the host leads to this address",
                describe(index)
            );
            index
        }
        (None, None, None) => {
            let all: Vec<String> = listeners.iter().map(|listener| listener.address.to_string()).collect();
            // One that speaks what the URL says, rather than one that does not.
            let is_https = scheme.eq_ignore_ascii_case("https");
            let spoken =
                listeners.iter().position(|listener| listener.tls.is_some() == is_https).unwrap_or(0);
            let _ = writeln!(
                out,
                "listener: none has port {port}, only {}; going on as if the request had come to {}",
                all.join(", "),
                describe(spoken)
            );
            spoken
        }
    }
}

fn host_address(authority: &Authority<'_>) -> Option<IpAddr> {
    match authority.host {
        host if host.eq_ignore_ascii_case("localhost") => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.trim_matches(['[', ']']).parse().ok(),
    }
}
