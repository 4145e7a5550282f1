//! Names of users and groups to numbers, by the databases of the system (getpwnam(3), getgrnam(3)).

use crate::link::Identity;
use anyhow::{Context, Result, anyhow};
use nix::unistd::{Gid, getgrouplist};
use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tidegate_config::Settings;
use tidegate_config::settings::pool::{Application, Hook, HookAction};
use tidegate_config::settings::{LogTarget, Origin, SecretKind, SocketAccess, User as UserSettings};
use tidegate_modules::gateway::supervise::launch::{self, Account};
use tidegate_modules::gateway::supervise::seal;

/// Where the settings name somebody who is not known, and as what.
#[derive(Debug)]
pub struct Place {
    /// The place.
    pub origin: Origin,
    what: String,
}

impl Place {
    fn new(origin: &Origin, what: impl Into<String>) -> Place {
        Place { origin: origin.clone(), what: what.into() }
    }

    /// The place that an error tells of, and the error without it.
    pub fn of(error: &anyhow::Error) -> (Option<&Origin>, String) {
        let Some(Place { origin, what }) = error.downcast_ref() else { return (None, format!("{error:#}")) };
        let rest: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
        (Some(origin), format!("{what}: {}", rest.join(": ")))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.origin, self.what)
    }
}

/// Whom server processes become under these settings, and a word of warning. Only root can become another.
pub fn identity(user: Option<&UserSettings>) -> Result<(Option<Identity>, Option<String>)> {
    let own = nix::unistd::geteuid();
    let Some(user) = user else {
        let said = "server processes run as root, since the server was started as root and no `user` is named; add \
                    a line such as user \"www-data\"";
        return Ok((None, own.is_root().then(|| said.into())));
    };
    let at = || Place::new(&user.origin, "`user`");
    let found = find_user(&user.name).with_context(at)?;
    let Account { uid, gid: own_gid, name } = found;
    let gid = match (&user.group, own_gid) {
        (Some(group), _) => find_group(group).with_context(at)?,
        (None, Some(gid)) => gid,
        (None, None) => {
            let message = format!("user {} has no entry, so a group=\"...\" is needed", user.name);
            return Err(anyhow!(message).context(at()));
        }
    };
    if !own.is_root() {
        let warning = (own != uid).then(|| {
            format!(
                "server processes stay user {own}: only a server that is started as root can give them to `user` \
                 {} ({})",
                user.name, user.origin
            )
        });
        return Ok((None, warning));
    }
    let groups = match (&user.group, name.map(CString::new)) {
        (None, Some(Ok(name))) => getgrouplist(&name, gid).with_context(at)?,
        _ => vec![gid],
    };
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    Ok((Some(Identity { uid: uid.as_raw(), gid: gid.as_raw(), groups }), None))
}

/// Why this process cannot give a socket its owner or group: only root gives files away, and others only to a group that
/// they are in.
fn ungranted(access: &SocketAccess) -> Option<String> {
    let own = nix::unistd::geteuid();
    if own.is_root() {
        return None;
    }
    let me = own_name();
    if let Some(name) = &access.owner
        && find_user(name).is_ok_and(|account| account.uid != own)
    {
        return Some(format!(
            "the socket cannot be given to user {name}: only a server that is started as root can, and this is user {me}; \
             take `owner` out, or start the server as root"
        ));
    }
    let name = access.group.as_ref()?;
    let group = find_group(name).ok()?;
    let is_mine = group == nix::unistd::getegid()
        || nix::unistd::getgroups().is_ok_and(|groups| groups.contains(&group));
    (!is_mine).then(|| {
        format!(
            "the socket cannot be given to group {name}: user {me}, who starts the server, is not in it; add the user \
             (`usermod -aG {name} {me}`, then log in anew), or start the server as root"
        )
    })
}

/// Gives the file of a unix socket its owner, group and permissions.
pub fn grant(path: &Path, access: &SocketAccess) -> io::Result<()> {
    let wrong = |error: anyhow::Error| io::Error::other(format!("{error:#}"));
    let owner = access.owner.as_deref().map(find_user).transpose().map_err(wrong)?;
    let owner = owner.map(|account| account.uid.as_raw());
    let group = access.group.as_deref().map(find_group).transpose().map_err(wrong)?.map(Gid::as_raw);
    if let Some(why) = ungranted(access) {
        return Err(io::Error::other(why));
    }
    if owner.is_some() || group.is_some() {
        std::os::unix::fs::chown(path, owner, group).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot give it to its owner and group: {error}"))
        })?;
    }
    if let Some(mode) = access.mode {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn find_user(name: &str) -> Result<Account> {
    let advice = || format!("make one, such as with `useradd --system {name}`");
    launch::find_user(name).map_err(|problem| anyhow!("{problem}; {}", advice()))
}

fn find_group(name: &str) -> Result<Gid> {
    let advice = || format!("make one, such as with `groupadd --system {name}`");
    launch::find_group(name).map_err(|problem| anyhow!("{problem}; {}", advice()))
}

/// Users that hooks name and this system does not have: an error for each.
pub fn unknown_of(hooks: &[Hook]) -> impl Iterator<Item = anyhow::Error> {
    hooks.iter().filter_map(|hook| {
        let HookAction::Run { user: Some(name), .. } = &hook.action else { return None };
        Some(find_user(name).err()?.context(Place::new(&hook.origin, "`on`")))
    })
}

/// Users and groups that the settings name and this system does not have, but for those of sites, which cost no more than
/// their site ([`unknown_of`]): an error for each.
pub fn unknown(settings: &Settings) -> Vec<anyhow::Error> {
    let mut said = Vec::new();
    said.extend(identity(settings.user.as_ref()).err());
    for listener in &settings.listeners {
        let owner = listener.access.owner.as_deref().and_then(|name| find_user(name).err());
        let group = listener.access.group.as_deref().and_then(|name| find_group(name).err());
        let wrong = [(owner, "`owner` of `listen`"), (group, "`group` of `listen`")];
        let at = |what| Place::new(&listener.origin, what);
        said.extend(wrong.into_iter().filter_map(|(error, what)| Some(error?.context(at(what)))));
    }
    let user = |name: &Option<String>| name.as_deref().and_then(|name| find_user(name).err());
    let group = |name: &Option<String>| name.as_deref().and_then(|name| find_group(name).err());
    for pool in &settings.pools {
        let at = || Place::new(&pool.origin, format!("pool `{}`", pool.name));
        if let Application::Processes(processes) = &pool.application {
            let wrong = [user(&processes.user), group(&processes.group)];
            said.extend(wrong.into_iter().flatten().map(|error| error.context(at())));
        }
        said.extend(unknown_of(&pool.hooks));
    }
    let of_groups = settings.upstreams.iter().flat_map(|group| unknown_of(&group.hooks));
    said.extend(unknown_of(&settings.hooks).chain(of_groups));
    let of_dns = settings.acme.dns_hook.as_ref().and_then(|hook| user(&hook.user));
    said.extend(of_dns.map(|error| error.context(Place::new(&settings.written.dns_hook, "`dns-hook`"))));
    said
}

/// The user that something which the server starts gets, and who has said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// What gets it: `pool php`.
    pub what: String,
    /// The user, and why: the end of a sentence.
    pub said: String,
}

impl std::fmt::Display for Assigned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} runs as {}", self.what, self.said)
    }
}

/// Whether what this process starts can be any user.
pub fn can_be_anybody() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Who is the user of what names none, where only root can be anybody: the server's `user`, never root, and where the
/// server names none one of those that systems have for it.
struct Usual {
    user: String,
    group: Option<String>,
    why: &'static str,
}

/// Users that systems have for applications of web servers.
const USUAL: [&str; 3] = ["www-data", "http", "nobody"];

impl Usual {
    fn of(server: Option<&UserSettings>) -> Result<Usual> {
        if let Some(server) = server
            && !find_user(&server.name).with_context(|| Place::new(&server.origin, "`user`"))?.uid.is_root()
        {
            let (user, group) = (server.name.clone(), server.group.clone());
            return Ok(Usual { user, group, why: "the server's `user`" });
        }
        let user = USUAL.into_iter().find(|name| launch::find_user(name).is_ok());
        let user =
            user.context("no `user` is named, and this system has none of www-data, http and nobody")?;
        let why = "since neither it nor the server names another `user`, and none is root unless it says so";
        Ok(Usual { user: user.to_owned(), group: None, why })
    }
}

/// Whether another user may write files into a folder, by owner, group and mode of it and of the way there; why not.
pub fn may_write(folder: &Path, identity: &Identity) -> std::result::Result<(), String> {
    may(folder, identity, 0o3, "write there")
}

/// Whether another user may open what lies in a folder; why not.
pub fn may_enter(folder: &Path, identity: &Identity) -> std::result::Result<(), String> {
    may(folder, identity, 0o1, "look into it")
}

/// What an access list says beyond owner, group and mode is the kernel's to judge.
fn has_access_list(path: &Path) -> bool {
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 4096][..]).is_ok_and(|length| length > 0)
}

fn may(folder: &Path, identity: &Identity, last: u32, to: &str) -> std::result::Result<(), String> {
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    for (step, path) in folder.ancestors().enumerate() {
        let there = std::fs::metadata(path).map_err(|error| error.to_string())?;
        let shift = if there.uid() == identity.uid {
            6
        } else if there.gid() == identity.gid || identity.groups.contains(&there.gid()) {
            3
        } else {
            0
        };
        let needed = if step == 0 { last } else { 0o1 };
        if identity.uid != 0 && there.mode() >> shift & needed != needed && !has_access_list(path) {
            let what = if step == 0 { to } else { "get there: the way leads through" };
            let through = if step == 0 { String::new() } else { format!(" {}", path.display()) };
            let user = launch::find_user(&identity.uid.to_string()).ok().and_then(|account| account.name);
            let user = user.unwrap_or_else(|| identity.uid.to_string());
            return Err(format!("user {user} may not {what}{through}"));
        }
    }
    Ok(())
}

/// Secrets that applications can read or change although they run as another user: a warning for each.
pub fn exposed(settings: &Settings) -> Vec<String> {
    let runs_something =
        settings.pools.iter().any(|pool| matches!(pool.application, Application::Processes(_)));
    if !runs_something {
        return Vec::new();
    }
    let mut secrets = settings.secrets();
    secrets.sort_unstable();
    secrets.dedup();
    let said =
        secrets.into_iter().filter(|(_, kind)| *kind != SecretKind::Storage).filter_map(|(path, kind)| {
            let mode = std::fs::metadata(&path).map_or(0, |there| there.mode());
            let (what, bits) = match mode & 0o006 {
                0 => return None,
                2 => ("changed", "o-w"),
                _ if kind.is_confidential() => ("read", "o-rw"),
                4 => return None,
                _ => ("changed", "o-w"),
            };
            let path = path.display();
            let kind = kind.as_str();
            Some(format!(
                "{kind}: {path} may be {what} by everybody, applications included: `chmod {bits} {path}`"
            ))
        });
    said.collect()
}

/// Logs in folders of users that applications run as, where the server is started as root: a warning for each, and who
/// names the log.
pub fn exposed_logs(settings: &Settings) -> Vec<(Origin, String)> {
    let mut assigned = settings.clone();
    if !can_be_anybody() || assign(&mut assigned, true).is_err() {
        return Vec::new(); // what is wrong with users is said elsewhere
    }
    let of_pools = assigned.pools.iter().filter_map(|pool| match &pool.application {
        Application::Processes(processes) => processes.user.as_deref(),
        _ => None,
    });
    let named = of_pools.chain(assigned.user.as_ref().map(|user| user.name.as_str()));
    let users: Vec<Account> =
        named.filter_map(|name| find_user(name).ok()).filter(|user| !user.uid.is_root()).collect();
    let written = &settings.written;
    let of_sites =
        settings.sites.iter().filter_map(|site| Some((&site.access_log.own()?.target, &site.origin)));
    let of_pools = settings.pools.iter().filter_map(|pool| Some((pool.log.target.as_ref()?, &pool.origin)));
    let access = settings.access_log.iter().map(|log| (&log.target, &written.access_log));
    let logs =
        access.chain([(&settings.error_log.target, &written.error_log)]).chain(of_sites).chain(of_pools);
    let mut said: Vec<(Origin, String)> = Vec::new();
    for (target, origin) in logs {
        let LogTarget::File(path) = target else { continue };
        let says = path.ancestors().skip(1).find_map(|folder| {
            let there = std::fs::metadata(folder).ok()?;
            let whose = users.iter().find(|user| user.uid.as_raw() == there.uid());
            let is_open = there.mode() & 0o002 != 0 && there.mode() & 0o1000 == 0;
            let (log, folder) = (path.display(), folder.display());
            match whose {
                Some(user) => {
                    let name = user.name.clone().unwrap_or_else(|| user.uid.to_string());
                    Some(format!(
                        "the log {log} lies in a folder of user {name}, as whom applications or server processes run and can \
                         replace it: `chown root {folder}`"
                    ))
                }
                None if is_open => Some(format!(
                    "the log {log} lies below {folder}, where everybody can put something else in its place: `chmod o-w {folder}`"
                )),
                None => None,
            }
        });
        // Several may write to one.
        let says = says.filter(|says| said.iter().all(|(_, known)| known != says));
        said.extend(says.map(|says| (origin.clone(), says)));
    }
    said
}

/// The name of this process's own user.
pub fn own_name() -> String {
    let own = nix::unistd::geteuid().to_string();
    launch::find_user(&own).ok().and_then(|account| account.name).unwrap_or(own)
}

/// Why what was named is not had.
const ONLY_ROOT: &str = "who starts the server: only a server that is started as root can give what it starts another \
                         `user` or `group`";

/// Users and groups that the settings name and a server which this process were to start could not give: a warning for
/// each. Whom they are for runs as the server's own user.
pub fn out_of_reach(settings: &Settings) -> Vec<(Origin, String)> {
    if can_be_anybody() {
        return Vec::new();
    }
    let is_other_user =
        |name: &str| find_user(name).is_ok_and(|account| account.uid != nix::unistd::geteuid());
    let is_other_group = |name: &str| find_group(name).is_ok_and(|group| group != nix::unistd::getegid());
    let said = |what: &str| format!("{what} runs as {}, {ONLY_ROOT}", own_name());
    let mut warnings = Vec::new();
    for listener in &settings.listeners {
        if let Some(why) = ungranted(&listener.access) {
            warnings.push((listener.origin.clone(), format!("`listen`: {why}")));
        }
    }
    for pool in &settings.pools {
        if let Application::Processes(processes) = &pool.application
            && (processes.user.as_deref().is_some_and(is_other_user)
                || processes.group.as_deref().is_some_and(is_other_group))
        {
            warnings.push((pool.origin.clone(), said(&format!("pool {}", pool.name))));
        }
        let mut users = pool.hooks.iter().filter_map(|hook| match &hook.action {
            HookAction::Run { user, .. } => user.as_deref(),
            _ => None,
        });
        if users.any(is_other_user) {
            warnings.push((pool.origin.clone(), said(&format!("`on` of pool {}", pool.name))));
        }
    }
    let of_load = settings.load_hooks().filter(|(_, hook)| match &hook.action {
        HookAction::Run { user, .. } => user.as_deref().is_some_and(is_other_user),
        HookAction::Call(_) => false,
    });
    warnings.extend(of_load.map(|(_, hook)| (hook.origin.clone(), said("`on`"))));
    let hook = settings.acme.dns_hook.as_ref().and_then(|hook| hook.user.as_deref());
    if hook.is_some_and(is_other_user) {
        warnings.push((settings.written.dns_hook.clone(), said("dns-hook")));
    }
    warnings
}

/// Gives pools and hooks that name no user the server's. Root is whoever names it, and nobody else (FAULTS 61). `is_root`:
/// whether the server is started as root. Another can only be itself, and so are all whom it starts: what they name is
/// taken out, and [`out_of_reach`] says so.
///
/// # Errors
/// A user or group that a pool or hook names, or that the server names, is none of this system.
pub fn assign(settings: &mut Settings, is_root: bool) -> Result<Vec<Assigned>> {
    let mut assigned = Vec::new();
    let server = settings.user.clone();
    let usual = || Usual::of(server.as_ref());
    for pool in &mut settings.pools {
        let at = || Place::new(&pool.origin, format!("pool `{}`", pool.name));
        let mut own: Option<(String, Option<String>)> = None;
        if let Application::Processes(processes) = &mut pool.application {
            let account = processes.user.as_deref().map(find_user).transpose().with_context(at)?;
            processes.group.as_deref().map(find_group).transpose().with_context(at)?;
            if !is_root {
                (processes.user, processes.group) = (None, None);
            }
            let said = match &processes.user {
                None if account.as_ref().is_some_and(|account| account.uid != nix::unistd::geteuid()) => {
                    format!("{}, {ONLY_ROOT}", own_name())
                }
                Some(name) => {
                    let warning = if account.is_some_and(|account| account.uid.is_root()) {
                        ", as it says: nothing of this machine is out of its reach, the server's keys included"
                    } else {
                        ", as it says"
                    };
                    format!("{name}{warning}")
                }
                None if is_root => {
                    let usual = usual().with_context(at)?;
                    let said = format!("{}, {}", usual.user, usual.why);
                    processes.user = Some(usual.user);
                    if processes.group.is_none() {
                        processes.group = usual.group;
                    }
                    said
                }
                None if settings.sandbox && seal::is_possible() => format!(
                    "{}, who starts the server: landlock keeps it from the server's keys and control socket",
                    own_name()
                ),
                None => format!(
                    "{}, who starts the server: it can read the server's keys and use its control socket; a server \
                     that is started as root can give it another `user`",
                    own_name()
                ),
            };
            assigned.push(Assigned { what: format!("pool {}", pool.name), said });
            own = processes.user.clone().map(|user| (user, processes.group.clone()));
        }
        for hook in &mut pool.hooks {
            let HookAction::Run { user, group, .. } = &mut hook.action else { continue };
            match user {
                Some(name) => {
                    find_user(name).with_context(|| Place::new(&pool.origin, "`on`"))?;
                    user.take_if(|_| !is_root);
                }
                None if is_root => {
                    // An application elsewhere has no user here; its hook has the server's.
                    let (name, its_group) = match &own {
                        Some(own) => own.clone(),
                        None => {
                            let usual = usual().with_context(|| Place::new(&pool.origin, "`on`"))?;
                            (usual.user, usual.group)
                        }
                    };
                    (*user, *group) = (Some(name), its_group);
                }
                None => {}
            }
        }
    }
    let mut of_load = Vec::new();
    for hook in settings.load_hooks_mut() {
        let HookAction::Run { user, group, .. } = &mut hook.action else { continue };
        match user {
            Some(name) => {
                find_user(name).with_context(|| Place::new(&hook.origin, "`on`"))?;
                user.take_if(|_| !is_root);
            }
            None if is_root => {
                let usual = usual().context("`on`")?;
                of_load
                    .push(Assigned { what: "`on`".into(), said: format!("{}, {}", usual.user, usual.why) });
                (*user, *group) = (Some(usual.user), usual.group);
            }
            None => {}
        }
    }
    of_load.dedup();
    assigned.extend(of_load);
    if let Some(hook) = &mut settings.acme.dns_hook {
        match &hook.user {
            Some(name) => {
                find_user(name).with_context(|| Place::new(&settings.written.dns_hook, "`dns-hook`"))?;
                hook.user.take_if(|_| !is_root);
            }
            None if is_root => {
                let usual = usual().context("`dns-hook`")?;
                assigned.push(Assigned {
                    what: "dns-hook".into(),
                    said: format!("{}, {}", usual.user, usual.why),
                });
                (hook.user, hook.group) = (Some(usual.user), usual.group);
            }
            None => {}
        }
    }
    Ok(assigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, group: Option<&str>) -> UserSettings {
        UserSettings { name: name.into(), group: group.map(Into::into), origin: Default::default() }
    }

    #[test]
    fn root_is_known_by_name_and_number_and_strangers_are_not() {
        for name in ["root", "0"] {
            let (identity, _) = identity(Some(&user(name, None))).unwrap();
            assert!(identity.is_none_or(|identity| (identity.uid, identity.gid) == (0, 0)));
        }
        let unknown = identity(Some(&user("no-such-user", None))).unwrap_err();
        assert!(format!("{unknown:#}").contains("there is no user `no-such-user`"));
        let unknown = identity(Some(&user("root", Some("no-such-group")))).unwrap_err();
        assert!(format!("{unknown:#}").contains("there is no group"));
        assert!(identity(Some(&user("4294000000", None))).is_err(), "a number alone has no group");
    }

    fn assigned(text: &str, is_root: bool) -> (Settings, Vec<Assigned>) {
        let loaded =
            tidegate_config::load_str("a", text, Path::new("/"), &tidegate_config::ProcessEnvironment);
        let mut settings = loaded.settings.expect("sound settings");
        let assigned = assign(&mut settings, is_root).unwrap();
        (settings, assigned)
    }

    #[test]
    fn a_group_that_is_not_there_is_a_mistake_with_and_without_a_user() {
        for user in ["", "user \"root\";"] {
            let text = format!(
                "listen \":1\"\npool \"p\" {{ command \"sh\"; {user} group \"no-such-group\" }}\n\
                 site {{ fastcgi \"p\"; root \"/tmp\" }}\n"
            );
            let environment = tidegate_config::ProcessEnvironment;
            let loaded = tidegate_config::load_str("a", &text, Path::new("/"), &environment);
            let mut settings = loaded.settings.expect("sound settings");
            for is_root in [false, true] {
                let error = assign(&mut settings, is_root).unwrap_err();
                assert!(
                    format!("{error:#}").contains("pool `p`: there is no group `no-such-group`"),
                    "{error:#}"
                );
            }
        }
    }

    fn user_of(settings: &Settings) -> Option<&str> {
        match &settings.pools[0].application {
            Application::Processes(processes) => processes.user.as_deref(),
            Application::External(_) => None,
        }
    }

    #[test]
    fn root_is_whoever_names_it_and_nobody_else() {
        let usual = USUAL.into_iter().find(|name| launch::find_user(name).is_ok());
        for (server, pool, expected) in [
            ("", "", usual),
            ("user \"root\"", "", usual),
            ("user \"nobody\"", "", Some("nobody")),
            ("user \"nobody\"", "user \"root\"", Some("root")),
            ("", "user \"root\"", Some("root")),
            ("user \"nobody\"", "user \"daemon\"", Some("daemon")),
        ] {
            let text = format!(
                "{server}\nlisten \":1\"\npool \"p\" {{ command \"sh\"; {pool} \n on queue above=1 run \"true\" }}\n\
                 site {{ fastcgi \"p\"; root \"/tmp\" }}\n"
            );
            let (settings, said) = assigned(&text, true);
            assert_eq!(user_of(&settings), expected, "{text}");
            assert!(said[0].said.starts_with(expected.unwrap()), "{said:?}");
            let HookAction::Run { user, .. } = &settings.pools[0].hooks[0].action else { panic!("it runs") };
            assert_eq!(user.as_deref(), expected, "{text}");
            let (settings, said) = assigned(&text, false);
            assert_eq!(user_of(&settings), None, "who is not root becomes nobody else");
            assert!(said[0].said.starts_with(&own_name()), "{said:?}");
            let HookAction::Run { user, .. } = &settings.pools[0].hooks[0].action else { panic!("it runs") };
            assert_eq!(*user, None, "{text}");
        }
    }
}
