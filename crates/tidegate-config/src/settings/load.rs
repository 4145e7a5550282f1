//! Whose load hooks look at: the server's, a site's, that of a group of servers elsewhere.

use super::Settings;
use super::pool::Hook;
use std::sync::Arc;

/// What a hook looks at the load of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOf {
    /// All of it.
    Server,
    /// A site, by [`Site::label`](super::Site::label).
    Site(String),
    /// A group of servers elsewhere, by its name.
    Upstream(String),
}

impl Settings {
    /// The hooks of the server, of sites and of upstream groups; those of pools are their own.
    pub fn load_hooks(&self) -> impl Iterator<Item = (LoadOf, &Hook)> {
        let of_sites = self
            .sites
            .iter()
            .flat_map(|site| site.hooks.iter().map(|hook| (LoadOf::Site(site.label()), hook)));
        let of_groups = self
            .upstreams
            .iter()
            .flat_map(|group| group.hooks.iter().map(|hook| (LoadOf::Upstream(group.name.clone()), hook)));
        self.hooks.iter().map(|hook| (LoadOf::Server, hook)).chain(of_sites).chain(of_groups)
    }

    /// The same, to be changed.
    pub fn load_hooks_mut(&mut self) -> impl Iterator<Item = &mut Hook> {
        let with_hooks = self.sites.iter_mut().filter(|site| !site.hooks.is_empty());
        let of_sites = with_hooks.flat_map(|site| &mut Arc::make_mut(site).hooks);
        let of_groups = self.upstreams.iter_mut().flat_map(|group| &mut group.hooks);
        self.hooks.iter_mut().chain(of_sites).chain(of_groups)
    }
}
