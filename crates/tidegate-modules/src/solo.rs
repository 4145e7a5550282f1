//! Static files, applications and what is kept of their answers, behind one connection driven by hand: what tests and benches count with.

use crate::cache::CacheDirectory;
use crate::files::{Files, Shared, open_root};
use crate::gateway::link;
use crate::gateway::pool_directory::PoolDirectory;
use crate::gateway::proxy::Proxy;
use crate::gateway::scripted::{Protocol, Scripted};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Action, Settings};
use tidegate_core::Handler;
use tidegate_core::decoration::Decoration;
use tidegate_core::series;
use tidegate_core::solo::Solo;
use tidegate_core::template::Scope;
use tidegate_core::worker::{LogSet, MakeRegistry, Registry};
use tidegate_core::{Engine, Route, Site};
use tidegate_io::runtime;
use tidegate_io::socket::Stream;
use tidegate_stats::Worker as Stats;
use tidegate_stats::series::SeriesDirectory;

/// Serves sites that have static files, `fastcgi` and `proxy` only.
struct Modules {
    shared: Rc<Shared>,
    stats: Arc<Stats>,
    caches: CacheDirectory,
}

impl Registry for Modules {
    fn engine(&mut self, settings: &Arc<Settings>, logs: &mut LogSet) -> io::Result<Engine> {
        let applications = link::Shared::new(PoolDirectory::new(), self.stats.clone(), &settings.spill);
        let mut sites = Vec::new();
        let series = series::number(settings, &Arc::<SeriesDirectory>::default(), &self.stats);
        for (site, series) in settings.sites.iter().zip(series) {
            let mut routes = Vec::new();
            for route in &site.routes {
                let handler: Rc<dyn Handler> = match &route.action {
                    Action::Files(files) => {
                        let root = open_root(&files.root, files.symlinks)?;
                        Rc::new(Files::new(&self.shared, root, files, route, settings))
                    }
                    Action::Fastcgi(application) => {
                        Rc::new(Scripted::new(Protocol::FastCgi, &applications, application, site, route)?)
                    }
                    Action::Proxy(proxy) => {
                        Rc::new(Proxy::new(&applications, proxy, (site, route), Scope::default(), None)?)
                    }
                    _ => return Err(io::Error::other("static files, fastcgi and proxy only")),
                };
                let handler = self.caches.before(handler, (site, route), settings, &self.stats);
                routes.push(Route::new(handler, Vec::new(), Decoration::of(route)));
            }
            let log = settings.access_log.as_ref();
            let sink = log.map(|log| logs.open(log)).transpose()?;
            sites.push(Site::new(site.clone(), routes, sink).logging(log).numbered(series));
        }
        applications.adopt(&settings.spill);
        Ok(Engine::new(settings.clone(), sites))
    }

    fn ask(&mut self, _: &str) -> String {
        String::new()
    }
}

/// One connection to what `settings` have.
///
/// # Errors
/// As [`Solo::new`].
pub fn solo(settings: &Arc<Settings>, stream: Stream) -> io::Result<Solo> {
    let cache = settings.file_cache.clone();
    let make: MakeRegistry = Arc::new(move |stats| {
        runtime::with(|runtime| {
            let shared = Shared::new(cache.clone(), stats.clone(), runtime);
            Box::new(Modules { shared, stats, caches: CacheDirectory::default() }) as _
        })
    });
    Solo::new(settings, &make, stream)
}
