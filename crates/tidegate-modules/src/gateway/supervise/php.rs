//! PHP: which program there is, and how it is run so that its processes share one cache of compiled scripts.
//!
//! Either has one parent for all processes, since the cache (OPcache) is memory that a parent shares with its
//! children: php-fpm with settings of ours, or php-cgi with `PHP_FCGI_CHILDREN`.

use super::temporary::Folders;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tidegate_config::settings::pool::{Php, Processes};

/// Where distributions put them, beside `PATH`.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A way to run PHP that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Fpm(PathBuf),
    Cgi(PathBuf),
}

/// Looks for PHP.
///
/// # Errors
/// A sentence that says what to install.
pub(super) fn find(wanted: Php) -> Result<Found, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from)).collect();
    let fpm = || newest(&folders, "php-fpm").map(Found::Fpm);
    let cgi = || newest(&folders, "php-cgi").map(Found::Cgi);
    let (found, names) = match wanted {
        Php::Fpm => (fpm(), "php-fpm is"),
        Php::Cgi => (cgi(), "php-cgi is"),
        Php::Any => (fpm().or_else(cgi), "neither php-fpm nor php-cgi is"),
    };
    let is_not = if names.starts_with("neither") { "" } else { "not " };
    found.ok_or_else(|| format!("{names} {is_not}installed; on Debian: `apt install php-fpm`"))
}

/// The program of this name, or the one with the highest version behind it: `php-fpm8.4`.
fn newest(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let plain = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    plain.or_else(|| {
        let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        let versioned = entries.filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let version = version(file.strip_prefix(name)?)?;
            Some((version, entry.path()))
        });
        versioned.max().map(|(_, path)| path)
    })
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// What PHP is told of folders for uploads and sessions. It removes old sessions itself, which a distribution may have
/// left to a job that knows its own folder only.
pub(super) fn values_of(folders: &Folders) -> Vec<(&'static str, String)> {
    vec![
        ("upload_tmp_dir", folders.uploads.display().to_string()),
        ("session.save_path", folders.sessions.display().to_string()),
        ("session.gc_probability", "1".into()),
        ("session.gc_divisor", "1000".into()),
    ]
}

/// The settings of php-fpm for one parent that listens at `socket`. At `aside` it starts a process of its own when
/// somebody connects, which shares the cache of compiled scripts: for what the server asks, so that this never takes the
/// place of a request.
///
/// They name no user: the parent is the pool's user already, and so are its children.
pub(super) fn fpm_settings(
    socket: &Path,
    aside: &Path,
    processes: &Processes,
    values: &[(&'static str, String)],
) -> String {
    let mut out = String::from(
        "[global]\nerror_log = /proc/self/fd/2\nlog_level = warning\nlog_limit = 16384\ndaemonize = no\n\n[pool]\n",
    );
    let _ = writeln!(out, "listen = {}", socket.display());
    let _ = writeln!(out, "listen.backlog = 1024");
    let max = processes.max.max(1);
    let _ = writeln!(out, "pm.max_children = {max}");
    if processes.min == 0 {
        let idle = processes.idle.as_secs().max(1);
        let _ = writeln!(out, "pm = ondemand\npm.process_idle_timeout = {idle}s");
    } else if processes.min >= max {
        let _ = writeln!(out, "pm = static");
    } else {
        // It keeps so many free ones that a sudden wave finds some, and ends those beyond.
        let min = processes.min;
        let spare = (max / 4).clamp(min, max);
        let _ = writeln!(out, "pm = dynamic\npm.start_servers = {min}");
        let _ = writeln!(out, "pm.min_spare_servers = {min}\npm.max_spare_servers = {spare}");
    }
    if let Some(requests) = processes.requests {
        let _ = writeln!(out, "pm.max_requests = {requests}");
    }
    // What scripts write to standard error, each line once: PHP would send the same by FastCGI, all of a request in one
    // line. And the environment that the settings name.
    let _ = writeln!(out, "php_admin_flag[fastcgi.logging] = off");
    let _ = writeln!(out, "catch_workers_output = yes\ndecorate_workers_output = no\nclear_env = no");
    for (name, value) in values {
        // Only these are the system's to set; scripts may say otherwise of the others.
        let kind = if *name == "upload_tmp_dir" { "php_admin_value" } else { "php_value" };
        let _ = writeln!(out, "{kind}[{name}] = {value}");
    }
    let _ = writeln!(out, "pm.status_path = /tidegate-fpm-status");
    let _ = writeln!(out, "\n[aside]\nlisten = {}\npm = ondemand", aside.display());
    // With one it would warn of each question that comes while the process of the one before is still there.
    let _ = writeln!(out, "pm.max_children = 2\npm.process_idle_timeout = 10s");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_wins_unless_there_is_a_plain_name() {
        let folder = std::env::temp_dir().join(format!("tidegate-php-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("can be made");
        for name in ["php-fpm8.2", "php-fpm8.10", "php-fpm7.4", "php-fpm8.2.bak", "php-fpmx"] {
            std::fs::write(folder.join(name), "").expect("can be written");
        }
        let folders = [folder.clone()];
        assert_eq!(newest(&folders, "php-fpm"), Some(folder.join("php-fpm8.10")));
        assert_eq!(newest(&folders, "php-cgi"), None);
        std::fs::write(folder.join("php-fpm"), "").expect("can be written");
        assert_eq!(newest(&folders, "php-fpm"), Some(folder.join("php-fpm")));
        std::fs::remove_dir_all(folder).expect("is ours");
    }
}
