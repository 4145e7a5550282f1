//! Which number a site or route has: one directory for each process, whatever the revision.
//!
//! Asked when settings are loaded and when figures are read, never on a request. A number is never given to another
//! name: what a name has counted is there again when the name comes back.

use super::{NO_SITE, SeriesId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names of a site and of its routes, each different from its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesNames {
    /// Of the site.
    pub site: String,
    /// Of its routes, in the order of the settings.
    pub routes: Vec<String>,
}

/// What a number stands for: a site, and one of its routes if it is not the site itself.
pub type SeriesName = (Arc<str>, Option<Arc<str>>);

/// What a number is told as.
pub(super) enum Place {
    Site(Arc<str>),
    Route(Arc<str>, Arc<str>),
    /// A route that this site has no more.
    GoneOf(Arc<str>),
    /// Of a site that there is no more.
    Gone,
}

/// The numbers of a site and of its routes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteIds {
    /// Of requests that have come to none of its routes.
    pub unrouted: SeriesId,
    /// Of each route, in the order of the settings.
    pub routes: Box<[SeriesId]>,
}

impl SiteIds {
    /// The same of which nothing is counted.
    pub fn uncounted(self) -> SiteIds {
        let routes = self.routes.iter().map(|id| id.uncounted()).collect();
        SiteIds { unrouted: self.unrouted.uncounted(), routes }
    }
}

/// The numbers that were given.
#[derive(Debug)]
pub struct SeriesDirectory(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    /// By site, and then by route; without a route it is the site's own.
    numbers: HashMap<Arc<str>, HashMap<Option<Arc<str>>, u32>>,
    /// By number.
    names: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// By number: who takes the times that have no histogram of their own.
    sites: Vec<SeriesId>,
    /// By number: whether the settings in force have it. `None`: none are in force yet.
    in_force: Option<Vec<bool>>,
}

impl Default for SeriesDirectory {
    fn default() -> SeriesDirectory {
        let mut names = Names::default();
        names.number(&Arc::from(NO_SITE), None, None);
        SeriesDirectory(Mutex::new(names))
    }
}

impl SeriesDirectory {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of these sites, in their order. New names get new ones.
    pub fn adopt(&self, sites: &[SeriesNames]) -> Vec<SiteIds> {
        let mut names = self.names();
        let ids = sites.iter().map(|SeriesNames { site, routes }| {
            let site: Arc<str> = Arc::from(site.as_str());
            let unrouted = names.number(&site, None, None);
            let routes = routes.iter().map(|route| names.number(&site, Some(route), Some(unrouted)));
            SiteIds { unrouted, routes: routes.collect() }
        });
        ids.collect()
    }

    /// Settings with these names are in force: what others have counted is told together.
    pub fn settle(&self, sites: &[SeriesNames]) {
        let ids = self.adopt(sites);
        let mut names = self.names();
        let mut in_force = vec![false; names.names.len()];
        let of_site = |site: &SiteIds| site.routes.iter().copied().chain([site.unrouted]).collect::<Vec<_>>();
        for id in ids.iter().flat_map(of_site).chain([SeriesId::NONE]) {
            if let Some(is_in_force) = in_force.get_mut(id.number() as usize) {
                *is_in_force = true;
            }
        }
        names.in_force = Some(in_force);
    }

    /// What a number is told as: by its names, or with others where the settings in force do not have it.
    pub(super) fn place(&self, id: SeriesId) -> Option<Place> {
        let names = self.names();
        let (site, route) = names.names.get(id.number() as usize)?.clone();
        let is_in_force = |id: SeriesId| {
            names.in_force.as_ref().is_none_or(|all| all.get(id.number() as usize).is_some_and(|is| *is))
        };
        let of_site = names.sites.get(id.number() as usize).copied().unwrap_or(id);
        Some(match route {
            _ if !is_in_force(of_site) => Place::Gone,
            Some(_) if !is_in_force(id) => Place::GoneOf(site),
            Some(route) => Place::Route(site, route),
            None => Place::Site(site),
        })
    }

    /// For each number, the one of its site.
    pub fn sites(&self) -> Vec<SeriesId> {
        self.names().sites.clone()
    }

    /// The names of a number: the site, and the route if it is one. Those that nothing is counted of have them, too.
    pub fn name(&self, id: SeriesId) -> Option<SeriesName> {
        self.names().names.get(id.counted().number() as usize).cloned()
    }
}

impl Names {
    fn number(&mut self, site: &Arc<str>, route: Option<&str>, of: Option<SeriesId>) -> SeriesId {
        let routes = self.numbers.entry(site.clone()).or_default();
        let route: Option<Arc<str>> = route.map(Arc::from);
        if let Some(number) = routes.get(&route) {
            return SeriesId::of(*number);
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX); // beyond sixteen million they are nobody's
        routes.insert(route.clone(), number);
        self.names.push((site.clone(), route));
        self.sites.push(of.unwrap_or(SeriesId::of(number)));
        SeriesId::of(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stay() {
        let directory = SeriesDirectory::default();
        let names = |site: &str, routes: &[&str]| SeriesNames {
            site: site.into(),
            routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        };
        let first = directory.adopt(&[names("a.test", &["/x", "/*"]), names("b.test", &["/*"])]);
        let numbers = |ids: &SiteIds| ids.routes.iter().map(|id| id.number()).collect::<Vec<_>>();
        assert_eq!((first[0].unrouted.number(), numbers(&first[0])), (1, vec![2, 3]));
        assert_eq!((first[1].unrouted.number(), numbers(&first[1])), (4, vec![5]));
        let second = directory.adopt(&[names("b.test", &["/y", "/*"])]);
        assert_eq!((second[0].unrouted, numbers(&second[0])), (first[1].unrouted, vec![6, 5]));
        assert_eq!(directory.adopt(&[names("a.test", &["/x", "/*"])])[0], first[0]);
        let name = directory.name(first[0].routes[0]).unwrap();
        assert_eq!((&*name.0, name.1.as_deref()), ("a.test", Some("/x")));
        assert_eq!(directory.name(SeriesId::NONE), Some((Arc::from(NO_SITE), None)));
        let sites = directory.sites();
        assert_eq!((sites.len(), sites[2], sites[6]), (7, first[0].unrouted, first[1].unrouted));
    }
}
