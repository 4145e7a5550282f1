//! Redirections and routes that lead round in a circle, for `check`: found by sending a request for the shortest path of each
//! such route through the phases that serve, and again for where it is sent.
//!
//! Nothing is read and nobody is asked: all that answers otherwise is taken for an answer. What is found comes with a
//! witness, the addresses that lead to each other.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Access, Action, HostPattern, Origin, Route, Site};
use tidegate_config::{Diagnostic, Loaded, Settings};
use tidegate_core::decoration::Decoration;
use tidegate_core::explain::{Asked, Notes};
use tidegate_core::template::Scope;
use tidegate_core::{Engine, Exchange, Handler, Reply, site};
use tidegate_http::path::encode_path;
use tidegate_http::{Field, Fields};
use tidegate_io::socket::Peer;
use tidegate_modules::redirect::{Redirect, Respond};
use tidegate_modules::rewrite::HandTo;

/// Redirections that a browser may be asked to follow, one behind the other.
const MOST: usize = 10;
/// Most routes that are tried.
const TRIED: usize = 5_000;

/// Warns of circles.
pub fn look(loaded: &mut Loaded) {
    let Some(settings) = &loaded.settings else { return };
    // Made for the first route that leads on: with very many sites that takes a while, and most have none.
    let engine = OnceCell::new();
    let mut found: Vec<(Origin, String)> = Vec::new();
    let mut known: HashSet<Origin> = HashSet::new();
    let mut tried = 0;
    for site in &settings.sites {
        for route in site.routes.iter().filter(|route| leads_on(route)) {
            tried += 1;
            if tried > TRIED {
                break;
            }
            let engine = engine.get_or_init(|| self::engine(settings));
            let circle = starts(settings, site, route).find_map(|start| circle(engine, settings, start));
            if let Some(circle) = circle.filter(|_| known.insert(route.origin.clone())) {
                found.push((route.origin.clone(), circle));
            }
        }
    }
    let warnings = found.into_iter().map(|(origin, circle)| {
        let warning = Diagnostic::warning(format!("this leads round in a circle: {circle}"));
        let help = "let the pattern leave out where it leads to, or answer there";
        (None, loaded.point_at(warning.help(help), &origin))
    });
    let warnings: Vec<_> = warnings.collect();
    loaded.add(warnings);
}

fn leads_on(route: &Route) -> bool {
    matches!(route.action, Action::Redirect { .. } | Action::HandTo { .. })
}

/// The sites as far as they lead on, open to everybody.
fn engine(settings: &Settings) -> Engine {
    let mut settings = settings.clone();
    for site in &mut settings.sites {
        let mut open = Site::clone(site);
        for route in &mut open.routes {
            (route.access, route.error_pages) = (Access::default(), Vec::new());
        }
        *site = Arc::new(open);
    }
    let made = settings.sites.iter().map(|site| {
        let routes = site.routes.iter().map(|route| {
            let handler: Rc<dyn Handler> = match &route.action {
                Action::Redirect { to, status } => Rc::new(Redirect::new(to, *status, Scope::of(route))),
                Action::HandTo { to } => Rc::new(HandTo::new(to, Scope::of(route))),
                _ => Rc::new(Respond::new(200, None, None)),
            };
            site::Route::new(handler, Vec::new(), Decoration::of(route))
        });
        site::Site::new(site.clone(), routes.collect(), None)
    });
    let sites = made.collect();
    Engine::new(Arc::new(settings), sites)
}

/// A request: where it comes to, its host, and its path with its query.
#[derive(Clone, PartialEq, Eq)]
struct Step {
    is_secure: bool,
    host: String,
    target: String,
}

impl Step {
    fn shown(&self) -> String {
        match self.host.as_str() {
            "" => self.target.clone(),
            host => format!("{}://{host}{}", if self.is_secure { "https" } else { "http" }, self.target),
        }
    }
}

/// The requests by which a route is tried.
fn starts(settings: &Settings, site: &Site, route: &Route) -> impl Iterator<Item = Step> {
    let path = route.pattern.shortest().map(|path| encode_path(path.as_bytes()));
    let host = host_of(site);
    let spoken = [false, true].into_iter().filter(|is_secure| listener(settings, *is_secure).is_some());
    let spoken: Vec<bool> = spoken.collect();
    spoken
        .into_iter()
        .filter_map(move |is_secure| Some(Step { is_secure, host: host.clone(), target: path.clone()? }))
}

/// A host that a site answers for.
pub(super) fn host_of(site: &Site) -> String {
    match site.names.first() {
        Some(HostPattern::Exact(name)) => name.clone(),
        Some(HostPattern::Suffix(suffix)) => format!("x{suffix}"),
        None => String::new(),
    }
}

/// A listener for a scheme.
pub(super) fn listener(settings: &Settings, is_secure: bool) -> Option<usize> {
    settings.listeners.iter().position(|listener| listener.tls.is_some() == is_secure)
}

/// Where a request leads in the end to where it has been, the way there.
fn circle(engine: &Engine, settings: &Settings, start: Step) -> Option<String> {
    let mut way = vec![start];
    loop {
        let step = way.last()?;
        let next = match answer(engine, settings, step)? {
            Led::Nowhere => return Some(format!("{} is handed on and on", step.shown())),
            Led::To(next) => next,
        };
        let is_known = way.contains(&next);
        way.push(next);
        if is_known || way.len() > MOST {
            let shown: Vec<String> = way.iter().map(Step::shown).collect();
            return Some(shown.join(", "));
        }
    }
}

/// Where a request leads.
enum Led {
    /// There.
    To(Step),
    /// Routes hand it to each other.
    Nowhere,
}

fn answer(engine: &Engine, settings: &Settings, step: &Step) -> Option<Led> {
    let (raw_path, query) =
        step.target.split_once('?').map_or((step.target.as_str(), None), |(path, query)| (path, Some(query)));
    let fields = [Field { name: "Host", value: step.host.as_bytes() }];
    let exchange = Exchange {
        target: &step.target,
        query,
        scheme: if step.is_secure { "https" } else { "http" },
        authority: &step.host,
        fields: Fields::new(&fields),
        ..Exchange::empty()
    };
    let listener = u16::try_from(listener(settings, step.is_secure)?).ok()?;
    let peer = Peer::Tcp(([192, 0, 2, 1], 0).into());
    let asked = Asked { listener, peer, raw_path, client: None, size: step.target.len(), exchange };
    let Reply::Ready(response) = engine.rehearse(asked, &Notes::short()) else { return None };
    if response.status.0 == 508 {
        return Some(Led::Nowhere);
    }
    let location =
        response.head.lines().first("Location").filter(|_| (300..400).contains(&response.status.0))?;
    next(settings, step, str::from_utf8(location).ok()?).map(Led::To)
}

/// The request that a `Location` asks for; `None` where it is somebody else's.
fn next(settings: &Settings, step: &Step, location: &str) -> Option<Step> {
    let location = location.split('#').next()?;
    if location.starts_with('/') {
        return Some(Step { target: location.to_owned(), ..step.clone() });
    }
    let (scheme, rest) = location.split_once("://")?;
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // Another port is another server.
    let is_ours = host.eq_ignore_ascii_case(&step.host)
        || settings.sites.iter().flat_map(|site| &site.names).any(|name| match name {
            HostPattern::Exact(name) => name.eq_ignore_ascii_case(host),
            HostPattern::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        });
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let is_secure = scheme.eq_ignore_ascii_case("https");
    (is_ours && listener(settings, is_secure).is_some()).then(|| Step {
        is_secure,
        host: host.to_owned(),
        target,
    })
}
