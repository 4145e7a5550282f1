//! Folders of `cache`: made for the user of the server processes before these begin, since they cannot make them.
//!
//! A folder that cannot be had is said, and costs what would lie there: the store goes on with its other folders and its
//! memory.

use super::users;
use crate::link::Identity;
use rustix::fs::{Dir, Mode, OFlags, chmod, fchmod, fchown, fstat, open};
use rustix::process::{Gid, Uid, geteuid};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tidegate_config::Settings;
use tidegate_config::settings::CacheDisk;
use tidegate_io::unanswered;
use tidegate_modules::cache::examine_way;

/// All of them.
pub fn of(settings: &Settings) -> impl Iterator<Item = &CacheDisk> {
    settings.caches.iter().flat_map(|store| &store.disks)
}

/// Makes those that are not there, and gives them to the server processes. A sentence for each that these cannot use. Asks
/// file systems, which may hang: not for the master's thread while it serves.
pub fn make(settings: &Settings, identity: Option<&Identity>) -> Vec<String> {
    let stores = settings.caches.iter().flat_map(|store| store.disks.iter().map(move |disk| (store, disk)));
    let made = stores.filter_map(|(store, disk)| {
        let why = make_one(&disk.path, identity).err()?;
        let (name, path, origin) = (&store.name, disk.path.display(), &disk.origin);
        Some(format!("the cache `{name}` goes on without the folder {path} ({origin}): {why}"))
    });
    made.collect()
}

fn make_one(path: &Path, identity: Option<&Identity>) -> Result<(), String> {
    unanswered::examine(path).map_err(|error| error.to_string())?;
    others_cannot_move(path, identity)?;
    let said = |error: io::Error| error.to_string();
    match open_folder(path) {
        Ok(folder) => return take(path, &folder, identity),
        Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(said(error.into())),
    }
    make_way(path)?;
    DirBuilder::new().mode(0o700).create(path).map_err(|error| format!("it cannot be made: {error}"))?;
    take(path, &open_folder(path).map_err(|error| said(error.into()))?, identity)
}

/// Makes what is missing on the way to a folder, for everybody to go through whatever the umask says.
fn make_way(path: &Path) -> Result<(), String> {
    let missing: Vec<&Path> =
        path.ancestors().skip(1).take_while(|folder| folder.symlink_metadata().is_err()).collect();
    for folder in missing.into_iter().rev() {
        let made = DirBuilder::new().mode(0o700).create(folder);
        let opened = made.and_then(|()| Ok(chmod(folder, Mode::from_raw_mode(0o755))?));
        opened.map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    }
    Ok(())
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Has a folder be the server processes' alone, where it is ours to give.
fn take(path: &Path, folder: &OwnedFd, identity: Option<&Identity>) -> Result<(), String> {
    let said = |error: rustix::io::Errno| error.to_string();
    if let (Standing::ToBeGiven, Some(to)) = (judge(path, folder, identity)?, identity) {
        fchown(folder, Some(Uid::from_raw(to.uid)), Some(Gid::from_raw(to.gid))).map_err(said)?;
        fchmod(folder, Mode::RWXU).map_err(said)?;
    }
    identity.map_or(Ok(()), |identity| users::may_write(path, identity))
}

/// Whom the server processes run as.
fn user_of(identity: Option<&Identity>) -> u32 {
    identity.map_or_else(|| geteuid().as_raw(), |identity| identity.uid)
}

/// Whose a folder is.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// The server processes' alone.
    Theirs,
    /// Ours and empty.
    ToBeGiven,
}

fn judge(path: &Path, folder: &OwnedFd, identity: Option<&Identity>) -> Result<Standing, String> {
    let there = fstat(folder).map_err(|error| error.to_string())?;
    let (own, user) = (geteuid().as_raw(), user_of(identity));
    if there.st_uid == user {
        return match there.st_mode & 0o022 {
            0 => Ok(Standing::Theirs),
            _ => Err(format!(
                "others may write there, and would say what the server answers: `chmod go-w {}`",
                path.display()
            )),
        };
    }
    if there.st_uid == own && is_empty(folder) {
        return Ok(Standing::ToBeGiven);
    }
    Err(format!(
        "it belongs to user {}, and the server processes run as user {user}: `chown -R {user} {}`, or name another folder",
        there.st_uid,
        path.display()
    ))
}

/// Whether the server processes can use a folder that is there, or once [`make`] has given it to them; why not.
pub fn can_be_used(path: &Path, identity: Option<&Identity>) -> Result<(), String> {
    let folder = open_folder(path).map_err(|error| io::Error::from(error).to_string())?;
    judge(path, &folder, identity)?;
    others_cannot_move(path, identity)
}

/// Whether nobody else can put another folder in the place of this one, there or not.
pub fn others_cannot_move(path: &Path, identity: Option<&Identity>) -> Result<(), String> {
    examine_way(path, user_of(identity)).map_err(|exposed| exposed.to_string())
}

fn is_empty(folder: &OwnedFd) -> bool {
    let entries = Dir::read_from(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec()));
    // `lost+found` comes with some file systems.
    names.into_iter().all(|name| name.is_ok_and(|name| [&b"."[..], b"..", b"lost+found"].contains(&&*name)))
}

/// Where server processes may write what they store.
pub fn paths(settings: &Settings) -> Vec<PathBuf> {
    of(settings).map(|disk| disk.path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_made_for_its_owner_alone_with_the_way_to_it() {
        let folder =
            Folder(std::env::temp_dir().join(format!("tidegate-cache-folders-{}", std::process::id())));
        let path = folder.0.join("way/cache");
        assert_eq!(make_one(&path, None), Ok(()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(folder.0.join("way")).unwrap().mode() & 0o777, 0o755);
        assert_eq!(make_one(&path, None), Ok(()), "it is there already");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make_one(&path, None).unwrap_err().contains("others may write"));
        fs::write(folder.0.join("file"), "").unwrap();
        assert!(make_one(&folder.0.join("file"), None).is_err());
        assert!(make_one(&folder.0.join("file/cache"), None).is_err());
    }

    #[test]
    fn a_folder_that_others_could_replace_is_not_used() {
        let folder = Folder(std::env::temp_dir().join(format!("tidegate-cache-way-{}", std::process::id())));
        let path = folder.0.join("way/cache");
        assert_eq!(make_one(&path, None), Ok(()));
        for (mode, is_used) in [(0o777, false), (0o775, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(folder.0.join("way"), fs::Permissions::from_mode(mode)).unwrap();
            for used in
                [make_one(&path, None), can_be_used(&path, None), make_one(&folder.0.join("way/new"), None)]
            {
                assert_eq!(used.is_ok(), is_used, "{mode:o} {used:?}");
                assert!(is_used || used.unwrap_err().contains("chmod go-w"));
            }
            let _ = fs::remove_dir(folder.0.join("way/new"));
        }
    }

    #[test]
    fn a_folder_of_others_is_left_alone() {
        let folder =
            Folder(std::env::temp_dir().join(format!("tidegate-cache-others-{}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.0.join("theirs"), "").unwrap();
        let own = geteuid().as_raw();
        let other = Identity { uid: own + 1, gid: own + 1, groups: Vec::new() };
        assert!(make_one(&folder.0, Some(&other)).unwrap_err().contains("belongs to user"));
        assert_eq!(fs::metadata(&folder.0).unwrap().uid(), own);
    }
}
