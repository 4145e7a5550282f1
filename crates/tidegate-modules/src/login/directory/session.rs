//! What is asked of a server of a directory: who somebody is, whether a password is theirs, and what groups they are in.

use super::connection::{Connection, Fault};
use super::message::{self, Search};
use super::name;
use super::ways::Ways;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Instant;
use tidegate_config::settings::{Directory, DirectoryGroups, Filter, GroupsBy};

/// The most groups that somebody may be in, nested ones included.
const GROUPS: u32 = 2000;
/// Groups whose own groups are searched for at once.
const AT_ONCE: usize = 50;

/// Somebody who was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name of the entry.
    pub dn: String,
    /// What the user goes by.
    pub name: String,
    /// The DNs of groups that the entry names; `None` where it was not asked.
    named: Option<Vec<String>>,
}

impl Found {
    /// Somebody who was found before.
    pub fn again(dn: &str, name: &str) -> Found {
        Found { dn: dn.to_owned(), name: name.to_owned(), named: None }
    }
}

/// How often a directory was asked for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Searches.
    pub searches: u64,
    /// Passwords of users.
    pub binds: u64,
}

/// The connections of a thread to one server: one that searches, and one whose identity changes with every password.
pub struct Session {
    server: usize,
    searching: Connection,
    binding: Option<Connection>,
    deadline: Instant,
    asked: Asked,
    /// Something was answered since the last deadline was set.
    has_answered: bool,
}

impl Session {
    /// Connects to a server, and becomes who searches there.
    ///
    /// # Errors
    /// That is not possible in time.
    pub fn open(
        directory: &Directory,
        ways: &Ways,
        server: usize,
        deadline: Instant,
    ) -> Result<Session, Fault> {
        let mut searching = connection(directory, ways, server, deadline)?;
        if let Some(bind) = &directory.bind {
            searching.become_searcher(&bind.dn, &bind.password)?;
        }
        Ok(Session {
            server,
            searching,
            binding: None,
            deadline,
            asked: Asked::default(),
            has_answered: false,
        })
    }

    /// Which server it is with.
    pub fn server(&self) -> usize {
        self.server
    }

    /// By when what is asked from now on has to be answered.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.has_answered = false;
        self.searching.set_deadline(deadline);
        if let Some(binding) = &mut self.binding {
            binding.set_deadline(deadline);
        }
    }

    /// Whether the server has answered anything since the last deadline was set.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// What was asked since it was last told.
    pub fn take_asked(&mut self) -> Asked {
        std::mem::take(&mut self.asked)
    }

    fn search(
        &mut self,
        directory: &Directory,
        search: Search<'_>,
    ) -> Result<Option<Vec<message::Entry>>, Fault> {
        self.asked.searches += 1;
        let seconds = u32::try_from(directory.timeout.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let found = self.searching.search(&Search { seconds, ..search })?;
        self.has_answered = true;
        Ok(found)
    }

    /// Who goes by a name. `None`: nobody, or more than one.
    ///
    /// # Errors
    /// That could not be found out.
    pub fn find(&mut self, directory: &Directory, typed: &str) -> Result<Option<Found>, Fault> {
        let by_attribute = directory.groups.as_ref().and_then(|groups| match &groups.found_by {
            GroupsBy::Attribute(attribute) => Some(attribute.as_str()),
            GroupsBy::Search(_) => None,
        });
        let wanted = [directory.name.as_str(), by_attribute.unwrap_or("1.1")];
        let search = Search {
            base: &directory.base,
            is_of_base: false,
            filter: message::filter(&directory.filter, typed, ""),
            attributes: &wanted[..1 + usize::from(by_attribute.is_some())],
            most: 2,
            seconds: 0,
        };
        let found = self.search(directory, search)?;
        // Without the entry that all lie below, nobody can be told from nobody.
        let Some(entries) = found else {
            return Err(Fault::Terms(format!("there is no `{}`", directory.base)));
        };
        let [entry] = entries.as_slice() else { return Ok(None) };
        // Of several names, as mail addresses are, the one that was meant.
        let mut names = entry.texts(&directory.name).filter(|name| !name.is_empty());
        let first = names.next();
        let meant = first.into_iter().chain(names).find(|name| name.to_lowercase() == typed.to_lowercase());
        let Some(name) = meant.or(first) else { return Ok(None) };
        if entry.dn.is_empty() || name.bytes().any(|byte| byte.is_ascii_control()) {
            return Ok(None);
        }
        let named = by_attribute.map(|attribute| entry.texts(attribute).map(str::to_owned).collect());
        Ok(Some(Found { dn: entry.dn.clone(), name: name.to_owned(), named }))
    }

    /// Whether a password is that of somebody who was found.
    ///
    /// # Errors
    /// That could not be found out.
    pub fn is_password(
        &mut self,
        directory: &Directory,
        ways: &Ways,
        user: &Found,
        password: &[u8],
    ) -> Result<bool, Fault> {
        let mut binding = match self.binding.take() {
            Some(binding) => binding,
            None => connection(directory, ways, self.server, self.deadline)?,
        };
        self.asked.binds += 1;
        let is_password = binding.is_password(&user.dn, password)?;
        self.binding = Some(binding);
        self.has_answered = true;
        Ok(is_password)
    }

    /// The names of the groups that somebody is in, sorted.
    ///
    /// # Errors
    /// That could not be found out, or not to the end.
    pub fn groups(&mut self, directory: &Directory, user: &Found) -> Result<Vec<String>, Fault> {
        let Some(groups) = &directory.groups else { return Ok(Vec::new()) };
        let names = match &groups.found_by {
            GroupsBy::Search(filter) => self.groups_by_search(directory, groups, filter, user)?,
            GroupsBy::Attribute(attribute) => self.groups_by_attribute(directory, groups, attribute, user)?,
        };
        Ok(names.into_iter().collect())
    }

    /// Breadth first: the groups of the user, those of these groups, and so on; each once, so that a circle ends.
    fn groups_by_search(
        &mut self,
        directory: &Directory,
        groups: &DirectoryGroups,
        template: &Filter,
        user: &Found,
    ) -> Result<BTreeSet<String>, Fault> {
        let (mut names, mut seen) = (BTreeSet::new(), HashSet::new());
        let mut members = VecDeque::from([user.dn.clone()]);
        while !members.is_empty() {
            let some = members.drain(..members.len().min(AT_ONCE));
            let mut filters: Vec<rasn_ldap::Filter> =
                some.map(|dn| message::filter(template, &user.name, &dn)).collect();
            let filter = match filters.len() {
                1 => filters.swap_remove(0),
                _ => rasn_ldap::Filter::Or(rasn::types::SetOf::from(filters)),
            };
            let attributes = &[groups.name.as_str()];
            let search = Search {
                base: &groups.base,
                is_of_base: false,
                filter,
                attributes,
                most: GROUPS,
                seconds: 0,
            };
            let found = self.search(directory, search)?;
            let Some(found) = found else {
                return Err(Fault::Terms(format!("there is no `{}`", groups.base)));
            };
            let is_everywhere = groups.base.trim().is_empty();
            for group in found {
                // A directory that passes a search on may find more than was asked for.
                let is_one = is_everywhere || name::is_within(&group.dn, &groups.base);
                if !is_one || !seen.insert(group.dn.to_lowercase()) {
                    continue;
                }
                names.extend(group.texts(&groups.name).map(str::to_owned));
                if groups.is_nested {
                    members.push_back(group.dn);
                }
            }
            if seen.len() >= usize::try_from(GROUPS).unwrap_or(usize::MAX) {
                return Err(Fault::TooMuch);
            }
        }
        Ok(names)
    }

    fn groups_by_attribute(
        &mut self,
        directory: &Directory,
        groups: &DirectoryGroups,
        attribute: &str,
        user: &Found,
    ) -> Result<BTreeSet<String>, Fault> {
        let (mut names, mut seen) = (BTreeSet::new(), HashSet::new());
        let named = match &user.named {
            Some(named) => named.clone(),
            None => self.named_by(attribute, directory, &user.dn)?,
        };
        let mut members = VecDeque::from(named);
        while let Some(dn) = members.pop_front() {
            if !name::is_within(&dn, &groups.base) || !seen.insert(dn.to_lowercase()) {
                continue;
            }
            if seen.len() >= usize::try_from(GROUPS).unwrap_or(usize::MAX) {
                return Err(Fault::TooMuch);
            }
            names.extend(name::first_value(&dn, &groups.name));
            if groups.is_nested {
                members.extend(self.named_by(attribute, directory, &dn)?);
            }
        }
        Ok(names)
    }

    /// The DNs in an attribute of an entry; none of one that is not there any more.
    fn named_by(&mut self, attribute: &str, directory: &Directory, dn: &str) -> Result<Vec<String>, Fault> {
        let filter = rasn_ldap::Filter::Present("objectClass".into());
        let attributes = &[attribute];
        let search = Search { base: dn, is_of_base: true, filter, attributes, most: 1, seconds: 0 };
        let found = self.search(directory, search)?.unwrap_or_default();
        Ok(found.iter().flat_map(|entry| entry.texts(attribute)).map(str::to_owned).collect())
    }
}

fn connection(
    directory: &Directory,
    ways: &Ways,
    server: usize,
    deadline: Instant,
) -> Result<Connection, Fault> {
    let Some(settings) = directory.servers.get(server) else {
        return Err(Fault::Terms("there is no such server".into()));
    };
    let way = settings.security.tls().map(|terms| ways.way(server, terms)).transpose()?;
    Connection::open(settings, way.as_ref(), deadline)
}
