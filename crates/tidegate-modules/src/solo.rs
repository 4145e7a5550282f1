//! Static files behind one connection driven by hand: what tests and benches count with.

use crate::files::{Files, Shared};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Action, Settings};
use tidegate_core::phase::{Decoration, Engine, Route, Site};
use tidegate_core::solo::Solo;
use tidegate_core::worker::{LogSet, MakeRegistry, Registry};
use tidegate_io::file::Root;
use tidegate_io::runtime;
use tidegate_io::socket::Stream;

/// Serves sites that have static files only.
struct FilesOnly {
    shared: Rc<Shared>,
}

impl Registry for FilesOnly {
    fn engine(&mut self, settings: &Arc<Settings>, logs: &mut LogSet) -> io::Result<Engine> {
        let mut sites = Vec::new();
        for site in &settings.sites {
            let mut routes = Vec::new();
            for route in &site.routes {
                let Action::Files(files) = &route.action else {
                    return Err(io::Error::other("static files only"));
                };
                let root = Arc::new(Root::open(&files.root)?);
                let handler = Rc::new(Files::new(&self.shared, root, files, route, settings));
                routes.push(Route::new(handler, Vec::new(), Decoration::of(route)));
            }
            let log = settings.access_log.as_ref().map(|log| logs.open(log)).transpose()?;
            sites.push(Site::new(site.clone(), routes, log));
        }
        Ok(Engine::new(settings.clone(), sites))
    }

    fn ask(&mut self, _: &str) -> String {
        String::new()
    }
}

/// One connection to the static files of `settings`.
pub fn solo(settings: &Arc<Settings>, stream: Stream) -> io::Result<Solo> {
    let cache = settings.file_cache.clone();
    let make: MakeRegistry = Arc::new(move |stats| {
        runtime::with(|runtime| {
            Box::new(FilesOnly { shared: Shared::new(cache.clone(), stats, runtime) }) as _
        })
    });
    Solo::new(settings, &make, stream)
}
