//! What others are told of the server processes: the status registry, pools and upstream groups.

use super::super::pools::Served;
use super::super::status_registry::{Member, Told};
use super::{Servers, State};
use tidegate_modules::status::ProcessInfo;

impl Servers {
    /// Tells the status registry how things are.
    pub(super) fn publish(&self) {
        let now = tidegate_io::clock::wall_seconds();
        let mut members: Vec<Member> = Vec::new();
        for server in self.list.iter().filter(|server| !server.has_ended) {
            let state = match server.state {
                State::Starting(_) | State::Committing(_) => "starting",
                State::Serving => "serving",
                State::Draining => "draining",
            };
            members.push(Member {
                id: server.id,
                info: ProcessInfo {
                    pid: server.pid,
                    state: state.into(),
                    started: server.started,
                    workers: server.layout.workers,
                    restarts: self.places.get(server.place).map_or(0, |place| place.restarts),
                    ..ProcessInfo::default() // what it has counted is asked for with the report
                },
                link: Some(server.link.clone()),
                told: Told::default(),
            });
        }
        for place in self.places.iter().filter(|place| place.next_try.is_some()) {
            let (state, restarts) = ("waiting".to_owned(), place.restarts);
            let info = ProcessInfo { state, started: now, restarts, ..ProcessInfo::default() };
            members.push(Member { id: 0, info, link: None, told: Told::default() });
        }
        let links: Vec<Served> = members
            .iter()
            .filter_map(|member| {
                let is_draining = member.info.state == "draining";
                let server = self.list.iter().find(|server| server.id == member.id)?;
                let user = server.layout.identity.as_ref().map(|identity| (identity.uid, identity.gid));
                let (pid, link) = (member.info.pid, member.link.clone()?);
                Some(Served { id: member.id, pid, user, link, is_draining })
            })
            .collect();
        self.upstreams.set_servers(&links);
        self.pools.set_servers(links);
        self.status_registry.set_members(members);
    }
}
