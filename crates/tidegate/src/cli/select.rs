//! Which requests are meant: the arguments that `tidegate tail` and `tidegate cancel` have in common.

use super::wrong;
use anyhow::Result;
use clap::Args;
use tidegate_config::settings::Network;
use tidegate_core::selection::Selection;

/// All of it has to hold.
#[derive(Args)]
pub struct Which {
    /// Requests of this site, by any of its names
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// Requests of the route with this pattern, such as "/app/*"
    #[arg(long, value_name = "PATTERN")]
    route: Option<String>,
    /// Requests of this address or network
    #[arg(long, value_name = "ADDRESS")]
    client: Option<Network>,
    /// Requests that have asked this application, by its address or a part of it
    #[arg(long, value_name = "ADDRESS")]
    upstream: Option<String>,
}

impl Which {
    /// As workers go by it.
    ///
    /// # Errors
    /// A name is none.
    pub fn selection(&self) -> Result<Selection> {
        let Which { site, route, client, upstream } = self;
        for (what, name) in [("site", site), ("route", route), ("upstream", upstream)] {
            if let Some(name) = name {
                named(what, name)?;
            }
        }
        let (site, route, upstream) = (site.clone(), route.clone(), upstream.clone());
        Ok(Selection { site, route, client: *client, upstream, ..Selection::default() })
    }
}

/// Refuses what cannot be the name of anything, and could not be told to a server in a line.
///
/// # Errors
/// It is empty or holds control characters.
pub fn named(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 1024 || name.chars().any(char::is_control) {
        return Err(wrong(format!("{name:?} is no name of a {what}")));
    }
    Ok(())
}
