//! Settings to handlers: which module answers a route. The only place that knows all modules.
//!
//! Each worker makes its own registry on its own thread; `explain` uses the same construction without one.

use crate::server::view::StatusView;
use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::{AccessLog, Action, Route, ServiceAddress, Site, UserSource};
use tidegate_core::access_data::AccessStore;
use tidegate_core::client_names::ClientNames;
use tidegate_core::decoration::Decoration;
use tidegate_core::engine::Engine;
use tidegate_core::explain::{Notes, Rehearsed};
use tidegate_core::hosts::Names;
use tidegate_core::log::{self, Sink};
use tidegate_core::rate::{BanGate, BandwidthGate, LimitGate, RateStore};
use tidegate_core::series;
use tidegate_core::site;
use tidegate_core::template::Scope;
use tidegate_core::tls::TlsStore;
use tidegate_core::worker::{self, LogSet, MakeRegistry};
use tidegate_core::{Filter, Gate, Handler};
use tidegate_io::descriptors;
use tidegate_io::runtime;
use tidegate_modules::cache::CacheDirectory;
use tidegate_modules::compress::CompressFilter;
use tidegate_modules::console::Console;
use tidegate_modules::cors::Preflight;
use tidegate_modules::files::{self, Files};
use tidegate_modules::gateway::consult::Consulted;
use tidegate_modules::gateway::link;
use tidegate_modules::gateway::pool_directory::PoolDirectory;
use tidegate_modules::gateway::proxy::Proxy;
use tidegate_modules::gateway::scripted::{Protocol, Scripted};
use tidegate_modules::gateway::service::Service;
use tidegate_modules::login::{
    Assumed, AssumedGate, BasicGate, CertificateGate, ForwardGate, LoginStore, OpenidGate, RequireGate,
    Services, SignedGate, TokenGate,
};
use tidegate_modules::redirect::{Close, Redirect, Respond};
use tidegate_modules::rewrite::{HandTo, Rewritten};
use tidegate_modules::status::StatusPage;
use tidegate_stats::Worker as Stats;
use tidegate_stats::series::SeriesDirectory;

/// The state of a process that outlives an engine.
#[derive(Clone)]
pub struct Stores {
    /// Of what access asks of files.
    pub access: Arc<AccessStore>,
    /// Of responses.
    pub caches: Arc<CacheDirectory>,
    /// Of applications.
    pub directory: Arc<PoolDirectory>,
    /// Of who has logged in.
    pub logins: Arc<LoginStore>,
    /// Of limits.
    pub rates: Arc<RateStore>,
    /// Of TLS.
    pub tls: Arc<TlsStore>,
    /// Of what statistics call sites and routes.
    pub series: Arc<SeriesDirectory>,
}

/// What the handlers of one worker share.
pub struct Registry {
    stats: Arc<Stats>,
    view: StatusView,
    stores: Stores,
    /// What cannot be opened costs its route alone, which answers 503: no site may keep others from new settings.
    serves: bool,
    /// Made with the first engine, when the limits of the cache are known.
    files: Option<Rc<files::Shared>>,
    applications: Option<Rc<link::Shared>>,
    /// Handlers say what they do, and ask no application.
    notes: Option<Notes>,
    /// Who has logged in, where that is explained.
    assumed: Option<Rc<Assumed>>,
}

/// Opens an access log, or says that none is to be written.
type OpenLog<'a> = dyn FnMut(&AccessLog) -> io::Result<Option<Sink>> + 'a;

impl Registry {
    /// For one worker, or for `explain`.
    pub fn new(stats: Arc<Stats>, view: StatusView, stores: Stores) -> Registry {
        Registry {
            stats,
            view,
            stores,
            serves: false,
            files: None,
            applications: None,
            notes: None,
            assumed: None,
        }
    }

    /// For `explain`: what answers says so.
    pub fn for_rehearsal(
        notes: Notes,
        access: Arc<AccessStore>,
        tls: Arc<TlsStore>,
        assumed: Option<Assumed>,
    ) -> Registry {
        let logins = Arc::new(LoginStore::silent(tls.clone()));
        let (caches, directory) = (Arc::new(CacheDirectory::for_rehearsal()), PoolDirectory::new());
        let (rates, series) = (Arc::default(), Arc::default());
        let stores = Stores { access, caches, directory, logins, rates, tls, series };
        let assumed = assumed.map(Rc::new);
        Registry {
            notes: Some(notes),
            assumed,
            ..Registry::new(Arc::default(), StatusView::default(), stores)
        }
    }

    /// What makes a registry on a worker's thread.
    pub fn maker(view: StatusView, stores: Stores) -> MakeRegistry {
        Arc::new(move |stats| {
            Box::new(Registry { serves: true, ..Registry::new(stats, view.clone(), stores.clone()) })
        })
    }

    /// The engine for a revision. Runs on a thread that has a [`tidegate_io::Runtime`].
    pub fn build(&mut self, settings: &Arc<Settings>, open_log: &mut OpenLog<'_>) -> io::Result<Engine> {
        let cache = settings.file_cache.clone();
        let files = match self.files.take() {
            Some(files) => files,
            None => runtime::with(|runtime| files::Shared::new(cache, self.stats.clone(), runtime)),
        };
        self.files = Some(files.clone());
        let applications = match &self.applications {
            Some(applications) => applications.clone(),
            None => link::Shared::new(self.stores.directory.clone(), self.stats.clone(), &settings.spill),
        };
        self.applications = Some(applications.clone());
        applications.begin(&settings.users);
        self.stores.directory.groups().prepare(&settings.upstreams);
        let mut sites = Vec::with_capacity(settings.sites.len());
        let series = series::number(settings, &self.stores.series, &self.stats);
        for (site, series) in settings.sites.iter().zip(series) {
            let mut routes = Vec::with_capacity(site.routes.len());
            for route in &site.routes {
                let handler = self.handler_for(settings, &files, &applications, site, route)?;
                let mut handler = self.stores.caches.before(handler, (site, route), settings, &self.stats);
                let rehearsed = |handler: Rc<dyn Handler>| match &self.notes {
                    Some(notes) => Rc::new(Rehearsed::new(handler, notes.clone())) as Rc<dyn Handler>,
                    None => handler,
                };
                handler = rehearsed(handler);
                if let Some(to) = &route.rewrite {
                    handler = rehearsed(Rc::new(Rewritten::new(to, Scope::of(route), handler)));
                }
                let made = site::Route::new(handler, filters_for(route, &self.stats), Decoration::of(route));
                routes.push(made.behind(self.gates_for(settings, &applications, site, route)?));
            }
            let log = site.access_log.within(settings.access_log.as_ref());
            let sink = log.map(&mut *open_log).transpose()?.flatten();
            let view = self.stores.access.view(site, settings)?;
            let (mut names, store) = (HashSet::new(), settings.limit_store.as_ref());
            let bans = site.routes.iter().flat_map(|route| &route.bans).filter(|ban| names.insert(&ban.name));
            let bans =
                bans.map(|ban| BanGate::new(ban, &self.stores.rates, store)).collect::<io::Result<_>>()?;
            let made = site::Site::new(site.clone(), routes, sink).logging(log);
            let callbacks = callbacks_of(site, &settings.users);
            sites.push(made.knowing(view).counting(bans).numbered(series).concealing(callbacks));
        }
        Ok(Engine::new(settings.clone(), sites).with_tls(&self.stores.tls)?)
    }

    /// What a route's access rules are followed by: what it takes to be refused by a limit is less than what a login takes,
    /// unless the limit counts who has logged in.
    fn gates_for(
        &self,
        settings: &Settings,
        applications: &Rc<link::Shared>,
        site: &Site,
        route: &Route,
    ) -> io::Result<Vec<Rc<dyn Gate>>> {
        let mut gates: Vec<Rc<dyn Gate>> = Vec::new();
        let mut by_user: Vec<Rc<dyn Gate>> = Vec::new();
        for ban in &route.bans {
            gates.push(Rc::new(BanGate::new(ban, &self.stores.rates, settings.limit_store.as_ref())?));
        }
        for rate in &route.rates {
            let scope = Scope::of(route);
            let gate =
                LimitGate::new(rate, scope, &self.stores.rates, settings.limit_store.as_ref(), &self.stats)?;
            let gates = if gate.is_by_user() { &mut by_user } else { &mut gates };
            gates.push(Rc::new(gate));
        }
        // Browsers ask without credentials: what answers them stands in front of what wants some.
        if let Some(cors) = &route.cors {
            gates.push(Rc::new(Preflight::new(cors.clone())));
        }
        if !route.identification.certificates.is_empty() {
            gates.push(Rc::new(CertificateGate::new(&route.identification)));
        }
        if let Some(signed) = &route.identification.signed {
            let keys = settings.url_keys.iter().find(|keys| keys.name == signed.keys);
            let keys = keys.ok_or_else(|| io::Error::other(format!("no keys are named {}", signed.keys)))?;
            gates.push(Rc::new(SignedGate::new(signed, self.stores.logins.key_rings.ring(keys))));
        }
        let mut source = None;
        if let Some(login) = &route.identification.login {
            let users = settings.users.iter().find(|users| users.name == login.users);
            let users =
                users.ok_or_else(|| io::Error::other(format!("no users are named {}", login.users)))?;
            if let Some(assumed) = &self.assumed {
                gates.push(Rc::new(AssumedGate::new(login, users, assumed.clone())));
            } else {
                let source = source.insert(self.stores.logins.source(users)?).clone();
                gates.push(match (&users.forward, &users.tokens, &users.openid) {
                    (Some(forward), ..) => {
                        let connector = forward.gateway.tls.as_ref();
                        let connector = connector.map(|tls| self.stores.tls.connector(tls)).transpose();
                        let connector = connector.map_err(io::Error::from)?;
                        let application = Consulted::new(applications, forward, site, connector)?;
                        let (scope, stats) = (Scope::of(route), self.stats.clone());
                        Rc::new(ForwardGate::new(login, forward, application, scope, source, stats))
                            as Rc<dyn Gate>
                    }
                    (None, Some(tokens), _) => {
                        let service =
                            tokens.service().map(|service| self.service(applications, service, site));
                        let service = service.transpose()?;
                        Rc::new(TokenGate::new(login, tokens, service, source, self.stats.clone()))
                    }
                    (None, None, Some(openid)) => {
                        let way = |service| self.service(applications, service, site);
                        let services = Services {
                            discovery: way(&openid.discovery)?,
                            keys: openid.keys.as_ref().map(way).transpose()?,
                            token: openid.token.as_ref().map(way).transpose()?,
                        };
                        Rc::new(OpenidGate::new(login, openid, services, source, self.stats.clone()))
                    }
                    (None, None, None) => Rc::new(BasicGate::new(login, source, self.stats.clone())),
                });
            }
        }
        let bandwidths = route.bandwidths.iter();
        let paced =
            bandwidths.map(|bandwidth| BandwidthGate::new(bandwidth, Scope::of(route), &self.stores.rates));
        let paced = paced.collect::<io::Result<Vec<_>>>()?;
        if !route.identification.requirements.is_empty() {
            gates.push(Rc::new(RequireGate::new(&route.identification, source, self.stats.clone())));
        }
        gates.extend(paced.into_iter().map(|gate| Rc::new(gate) as Rc<dyn Gate>));
        gates.extend(by_user);
        Ok(gates)
    }

    /// The way to a service that the server itself asks.
    fn service(
        &self,
        applications: &Rc<link::Shared>,
        address: &ServiceAddress,
        site: &Site,
    ) -> io::Result<Rc<Service>> {
        let connector = address.gateway.tls.as_ref().map(|tls| self.stores.tls.connector(tls)).transpose();
        Service::new(applications, address, site, connector.map_err(io::Error::from)?)
    }

    /// A handler; where requests are served, one that cannot be made answers 503 in its place.
    fn or_recover(&self, made: io::Result<impl Handler + 'static>) -> io::Result<Rc<dyn Handler>> {
        match made {
            Ok(handler) => Ok(Rc::new(handler)),
            Err(error) if self.serves => {
                log::error(format_args!("{error}; the route answers 503 until the next reload"));
                Ok(Rc::new(Respond::new(
                    503,
                    Some("This part of the site is not to be had at the moment.\n"),
                    None,
                )))
            }
            Err(error) => Err(error),
        }
    }

    /// What answers a route.
    fn handler_for(
        &self,
        settings: &Settings,
        shared: &Rc<files::Shared>,
        applications: &Rc<link::Shared>,
        site: &Site,
        route: &Route,
    ) -> io::Result<Rc<dyn Handler>> {
        Ok(match &route.action {
            Action::Files(files) => {
                let opened = match files::open_root(&files.root, files.symlinks) {
                    // Nothing is the matter with the settings: those of before stay in force.
                    Err(error) if descriptors::is_exhaustion(&error) => return Err(error),
                    opened => opened.map_err(|error| {
                        let (root, origin) = (files.root.display(), &route.origin);
                        io::Error::new(
                            error.kind(),
                            format!("cannot open the root {root} ({origin}): {error}"),
                        )
                    }),
                };
                self.or_recover(opened.map(|root| Files::new(shared, root, files, route, settings)))?
            }
            Action::Redirect { to, status } => Rc::new(Redirect::new(to, *status, Scope::of(route))),
            Action::HandTo { to } => Rc::new(HandTo::new(to, Scope::of(route))),
            Action::Respond { status, .. } if site.left_out.is_some() => Rc::new(Respond::left_out(*status)),
            Action::Close => Rc::new(Close),
            Action::Respond { status, body, media_type } => {
                Rc::new(Respond::new(*status, body.as_deref(), media_type.as_deref()).at(route))
            }
            Action::Fastcgi(application) => {
                self.or_recover(Scripted::new(Protocol::FastCgi, applications, application, site, route))?
            }
            Action::Scgi(application) => {
                self.or_recover(Scripted::new(Protocol::Scgi, applications, application, site, route))?
            }
            Action::Cgi(application) => {
                self.or_recover(Scripted::new(Protocol::Cgi, applications, application, site, route))?
            }
            Action::Proxy(proxy) => {
                let connector =
                    proxy.gateway.tls.as_ref().map(|tls| self.stores.tls.connector(tls)).transpose();
                self.or_recover(connector.map_err(io::Error::from).and_then(|connector| {
                    Proxy::new(applications, proxy, (site, route), Scope::of(route), connector)
                }))?
            }
            Action::Status => {
                let names =
                    Names::new(settings.sites.iter().flat_map(|site| &site.names).map(|name| (name, 0)));
                Rc::new(StatusPage::new(Rc::new(self.view.clone()), Rc::new(names)))
            }
            Action::Console { prefix, may_change } => {
                let names =
                    Names::new(settings.sites.iter().flat_map(|site| &site.names).map(|name| (name, 0)));
                Rc::new(Console::new(Rc::new(self.view.clone()), Rc::new(names), prefix, *may_change))
            }
        })
    }
}

/// The paths of a site to which identity providers send browsers back.
fn callbacks_of(site: &Site, users: &[UserSource]) -> Vec<String> {
    let logins = site.routes.iter().filter_map(|route| route.identification.login.as_ref());
    let sources = logins.filter_map(|login| users.iter().find(|users| users.name == login.users));
    let mut paths: Vec<String> =
        sources.filter_map(|users| Some(users.openid.as_ref()?.callback.clone())).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// What changes the responses of a route, in order.
fn filters_for(route: &Route, stats: &Arc<Stats>) -> Vec<Rc<dyn Filter>> {
    let compress = route.compress.as_ref();
    compress.into_iter().map(|settings| Rc::new(CompressFilter::new(settings, stats)) as _).collect()
}

impl worker::Registry for Registry {
    fn engine(&mut self, settings: &Arc<Settings>, logs: &mut LogSet) -> io::Result<Engine> {
        self.build(settings, &mut |log| logs.open(log).map(Some))
    }

    fn in_force(&mut self, settings: &Arc<Settings>) {
        if let Some(files) = &self.files {
            files.adopt(settings.file_cache.clone());
        }
        if let Some(applications) = &self.applications {
            applications.adopt(&settings.spill);
        }
    }

    fn client_names(&self) -> Arc<ClientNames> {
        self.stores.access.names().clone()
    }

    fn draining(&mut self) {
        if let Some(applications) = &self.applications {
            applications.drain();
        }
    }

    fn spare_descriptors(&mut self) -> usize {
        self.files.as_ref().map_or(0, |files| files.spare_descriptors())
    }

    fn ask(&mut self, question: &str) -> String {
        match (question.strip_prefix("cache"), &self.files) {
            (Some(command), Some(files)) => files.command(command.trim()),
            _ => format!("`{question}` is not known here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::{ProcessEnvironment, load_str};
    use tidegate_io::{Poller, Runtime};

    fn settings(lines: &str) -> Arc<Settings> {
        let text = format!("listen \"127.0.0.1:0\"\n{lines}\n");
        let loaded = load_str("a", &text, "/".as_ref(), &ProcessEnvironment);
        let said = loaded.render(false);
        Arc::new(loaded.settings.unwrap_or_else(|| panic!("{said}")))
    }

    /// FAULTS 67: a revision that is given up leaves nothing, and until it is in force nobody feels anything of it.
    #[test]
    fn an_engine_that_never_comes_into_force_leaves_nothing() {
        let runtime = Runtime::install(Poller::new().unwrap().registry().unwrap()).unwrap();
        let (directory, tls) = (PoolDirectory::new(), TlsStore::new().unwrap());
        let rates = Arc::<RateStore>::default();
        let logins = Arc::new(LoginStore::new(tls.clone(), rates.clone()));
        let access = Arc::<AccessStore>::default();
        let stores = Stores {
            access: access.clone(),
            caches: Arc::default(),
            directory: directory.clone(),
            logins: logins.clone(),
            rates: rates.clone(),
            tls: tls.clone(),
            series: Arc::default(),
        };
        let mut registry = Registry::new(Arc::default(), StatusView::default(), stores);
        let present = settings("site { proxy \"http://127.0.0.1:9\" { connections 2 } }");
        let engine = registry.build(&present, &mut |_| Ok(None)).unwrap();
        worker::Registry::in_force(&mut registry, &present);
        let held = || (directory.held(), tls.held(), rates.held(), logins.held());
        let before = held();
        let htpasswd = std::env::temp_dir().join(format!("tidegate-registry-{}", std::process::id()));
        std::fs::write(&htpasswd, "ben:$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0\n").unwrap();
        for number in 0..5 {
            let next = settings(&format!(
                "spill \"/tmp\" size=\"{}MiB\"\nusers \"staff\" {{ htpasswd \"{}\" }}\npool \"p{number}\" {{ command \"true\" }}\n\
                 limit \"l{number}\" requests=\"1/s\"\nlogin basic \"staff\"\n\
                 upstream \"u{number}\" {{ member \"127.0.0.1:8\" }}\n\
                 site \"a{number}.test\" {{ proxy \"http://p{number}\"; route \"/u\" {{ proxy \"http://u{number}\" }} }}\n\
                 site \"b.test\" {{ proxy \"http://127.0.0.1:{}\" }}\n\
                 site {{ proxy \"http://127.0.0.1:9\" {{ connections 2 }} }}",
                number + 2,
                htpasswd.display(),
                number + 10
            ));
            let discarded = registry.build(&next, &mut |_| Ok(None)).unwrap();
            let there = held();
            assert_ne!(there.0, before.0, "pools are there as long as it may come into force");
            assert!(there.2 > before.2 && there.3 > before.3, "and limits and logins: {there:?}");
            drop((discarded, next));
            directory.keep(&present);
            tls.settle(&Default::default());
            rates.settle(&present);
            logins.settle(&present);
            assert_eq!(held(), before, "round {number}");
        }
        std::fs::remove_file(&htpasswd).unwrap();
        drop(engine);
        runtime.end();
    }
}
