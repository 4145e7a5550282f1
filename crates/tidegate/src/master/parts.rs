//! What each of several server processes gets of the bounds that hold for all of them together: an equal part, rounded
//! up. They count apart from each other, so that one which ends leaves nothing behind in the count of the others.

use std::sync::Arc;
use tidegate_config::settings::gateway::Connections;
use tidegate_config::settings::{Action, Route, Settings};

/// Leaves each process its part.
pub fn divide(settings: &mut Settings) {
    let processes = u32::from(settings.processes.max(1));
    let limits = &mut settings.limits;
    for part in [
        &mut limits.connections,
        &mut limits.keep_alive_connections,
        &mut limits.in_flight,
        &mut limits.incoming_bodies,
        &mut limits.queue_length,
    ] {
        *part = part.div_ceil(processes);
    }
    let memory = tidegate_core::admission::memory_for_connections(limits.memory);
    limits.memory = Some(memory.div_ceil(processes.into()));
    let members = settings.upstreams.iter_mut().flat_map(|group| &mut group.members);
    for places in members.filter_map(|member| member.places.as_mut()) {
        *places = places.div_ceil(processes);
    }
    for site in &mut settings.sites {
        // Most sites stay shared with the settings of all.
        let is_bounded = |route: &Route| matches!(connections(&route.action), Some(Connections::Most(_)));
        if site.routes.iter().any(is_bounded) {
            for route in &mut Arc::make_mut(site).routes {
                if let Some(Connections::Most(most)) = connections_mut(&mut route.action) {
                    *most = most.div_ceil(processes);
                }
            }
        }
    }
}

fn connections(action: &Action) -> Option<Connections> {
    match action {
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            Some(application.gateway.connections)
        }
        Action::Proxy(proxy) => Some(proxy.gateway.connections),
        Action::Files(_)
        | Action::HandTo { .. }
        | Action::Redirect { .. }
        | Action::Respond { .. }
        | Action::Close
        | Action::Status
        | Action::Console { .. } => None,
    }
}

fn connections_mut(action: &mut Action) -> Option<&mut Connections> {
    match action {
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            Some(&mut application.gateway.connections)
        }
        Action::Proxy(proxy) => Some(&mut proxy.gateway.connections),
        Action::Files(_)
        | Action::HandTo { .. }
        | Action::Redirect { .. }
        | Action::Respond { .. }
        | Action::Close
        | Action::Status
        | Action::Console { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Connections of the routes, and `limits connections`, of one process.
    fn parts(processes: u16) -> (Vec<Connections>, u32) {
        let text = format!(
            "processes {processes}\nlisten \":80\"\nlimits {{ connections 1000 }}\n\
             site {{ root \"/\"; route \"/a*\" {{ proxy \"http://127.0.0.1:1\" {{ connections 5 }} }}\n\
             route \"/b*\" {{ fastcgi \"127.0.0.1:2\" {{ connections 1 }} }}\n\
             route \"/c*\" {{ scgi \"127.0.0.1:3\" }} }}\n"
        );
        let loaded = tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new());
        assert!(!loaded.has_errors(), "{}", loaded.render(false));
        let mut settings = loaded.settings.unwrap();
        divide(&mut settings);
        let routes = settings.sites.iter().flat_map(|site| &site.routes);
        (routes.filter_map(|route| connections(&route.action)).collect(), settings.limits.connections)
    }

    #[test]
    fn an_application_gets_as_many_requests_from_all_as_its_route_says() {
        use Connections::{Auto, Most};
        assert_eq!(parts(1), (vec![Most(5), Most(1), Auto], 1000));
        assert_eq!(parts(2), (vec![Most(3), Most(1), Auto], 500));
        assert_eq!(parts(3), (vec![Most(2), Most(1), Auto], 334));
    }
}
