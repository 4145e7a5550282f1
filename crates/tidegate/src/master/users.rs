//! Names of users and groups to numbers, by the databases of the system (getpwnam(3), getgrnam(3)).

use crate::link::Identity;
use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;
use std::io;
use std::path::Path;
use tidegate_config::settings::{SocketAccess, User as UserSettings};

/// Whom server processes become under these settings, and a word of warning. Only root can become another.
pub fn identity(user: Option<&UserSettings>) -> Result<(Option<Identity>, Option<String>)> {
    let own = nix::unistd::geteuid();
    let Some(user) = user else {
        let said = "server processes run as root, since the server was started as root and no `user` is named; add \
                    a line such as user \"www-data\"";
        return Ok((None, own.is_root().then(|| said.into())));
    };
    let at = || format!("{}: `user`", user.origin);
    let found = find_user(&user.name).with_context(at)?;
    let (uid, own_gid, name) = match found {
        Found::Whole(found) => (found.uid, Some(found.gid), Some(found.name)),
        Found::Number(uid) => (uid, None, None),
    };
    let gid = match (&user.group, own_gid) {
        (Some(group), _) => find_group(group).with_context(at)?,
        (None, Some(gid)) => gid,
        (None, None) => {
            bail!("{}: user {} has no entry, so a group=\"...\" is needed", user.origin, user.name)
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

/// Gives the file of a unix socket its owner, group and permissions.
pub fn grant(path: &Path, access: &SocketAccess) -> io::Result<()> {
    let wrong = |error: anyhow::Error| io::Error::other(format!("{error:#}"));
    let owner = match access.owner.as_deref().map(find_user).transpose().map_err(wrong)? {
        Some(Found::Whole(user)) => Some(user.uid.as_raw()),
        Some(Found::Number(uid)) => Some(uid.as_raw()),
        None => None,
    };
    let group = access.group.as_deref().map(find_group).transpose().map_err(wrong)?.map(Gid::as_raw);
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

enum Found {
    Whole(User),
    /// A number without an entry.
    Number(Uid),
}

fn find_user(name: &str) -> Result<Found> {
    let by_name = User::from_name(name).with_context(|| format!("cannot look up user {name}"))?;
    match (by_name, name.parse::<u32>()) {
        (Some(user), _) => Ok(Found::Whole(user)),
        (None, Ok(number)) => {
            let uid = Uid::from_raw(number);
            Ok(User::from_uid(uid).ok().flatten().map_or(Found::Number(uid), Found::Whole))
        }
        (None, Err(_)) => bail!("there is no user {name}; make one, such as with `useradd --system {name}`"),
    }
}

fn find_group(name: &str) -> Result<Gid> {
    let by_name = Group::from_name(name).with_context(|| format!("cannot look up group {name}"))?;
    match (by_name, name.parse::<u32>()) {
        (Some(group), _) => Ok(group.gid),
        (None, Ok(number)) => Ok(Gid::from_raw(number)),
        (None, Err(_)) => {
            bail!("there is no group {name}; make one, such as with `groupadd --system {name}`")
        }
    }
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
        assert!(format!("{unknown:#}").contains("there is no user no-such-user"));
        let unknown = identity(Some(&user("root", Some("no-such-group")))).unwrap_err();
        assert!(format!("{unknown:#}").contains("there is no group"));
        assert!(identity(Some(&user("4294000000", None))).is_err(), "a number alone has no group");
    }
}
