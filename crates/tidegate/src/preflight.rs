//! What is wrong with settings that only this machine can tell: files of TLS, folders, users.
//!
//! The loader knows only the names of these. Everything that takes settings up looks here first, so that `check`,
//! `serve` and `reload` say the same of the same file. What cannot be opened for one site is a mistake of that
//! site: it is left out, or stays as it was, and the others move on. A certificate that is missing is never
//! served without (FAULTS 52).

use crate::certificates;
use crate::link::Identity;
use crate::master::cache_folders;
use crate::master::rates::Extent;
use crate::master::users;
use crate::server::privileges;
use rustix::fs::{Access, AtFlags, CWD, accessat, statfs};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tidegate_config::settings::gateway::{BackendTls, BackendTrust};
use tidegate_config::settings::pool::{Application, Place, Pool, Processes};
use tidegate_config::settings::{
    AcmeChallenge, Action, CertificateFiles, Directory, HostPattern, Listener, Origin, Site,
    User as UserSettings,
};
use tidegate_config::{Diagnostic, Loaded, Settings};
use tidegate_core::access_data::{AccessFile, AccessReader, DataKey, DataKind, database_of, lists_of};
use tidegate_core::admission::{memory_for_connections, memory_of_process};
use tidegate_core::tls::{PairKey, TlsError, automatic_names, key_of, read_clients, read_roots};
use tidegate_io::clock::wall_seconds;
use tidegate_tls::acme::local::is_local;
use tidegate_tls::{Certificate, CertificateError, NOT_FOR_THIS_USER, Pair};

/// Findings, each with the place of the site that it costs where it is an error of one.
struct Findings<'a> {
    loaded: &'a Loaded,
    settings: &'a Settings,
    list: Vec<(Option<usize>, Diagnostic)>,
    /// What has become of each pair: many sites may name the same.
    pairs: HashMap<PairKey, Result<Pair, CertificateError>>,
    /// The same of what access asks.
    access: AccessReader,
    /// The same of each root: `Err` says why the server processes may not look into it.
    roots: HashMap<&'a OsStr, Result<(), String>>,
}

/// What was read, so that nobody reads it once more.
#[derive(Default)]
pub struct Read {
    /// Certificates that can be served.
    pub pairs: HashMap<PairKey, Pair>,
    /// What access asks of files.
    pub access: Vec<AccessFile>,
}

/// Adds what is wrong with files and users to what loading has found. What was read and can be served comes back.
pub fn look(loaded: &mut Loaded) -> Read {
    // Where nothing can be served the rest is looked at as well, so that one run tells all.
    let Some(settings) = loaded.settings.as_ref().or(loaded.partial.as_ref()) else { return Read::default() };
    let mut findings = Findings {
        loaded,
        settings,
        list: Vec::new(),
        pairs: HashMap::new(),
        access: AccessReader::default(),
        roots: HashMap::new(),
    };
    findings.users();
    findings.directories();
    findings.tokens();
    findings.spill();
    findings.made_later();
    findings.listeners();
    findings.countries();
    // Of what was read in part it is not known what is missing.
    if loaded.settings.is_some() {
        findings.logs();
        findings.wildcards();
        findings.tables();
        findings.caches();
    }
    // One that cannot be found out has been said.
    let identity = users::identity(settings.user.as_ref()).ok().and_then(|(identity, _)| identity);
    for (at, site) in settings.sites.iter().enumerate() {
        findings.site(at, site);
        if let Some(identity) = &identity {
            findings.roots(at, site, identity);
        }
    }
    // Sites that a mistake has cost already: the next run should not be the one to tell the next.
    let (list, access) = (std::mem::take(&mut findings.list), std::mem::take(&mut findings.access));
    for (rejected, site) in &loaded.unserved {
        findings.site(*rejected, site);
        if let Some(identity) = &identity {
            findings.roots(*rejected, site, identity);
        }
    }
    let Findings { list: of_rejected, pairs, .. } = findings;
    loaded.add(list);
    let of_rejected = of_rejected.into_iter().filter_map(|(at, finding)| Some((at?, finding)));
    loaded.add_of_rejected(of_rejected.collect());
    Read {
        pairs: pairs.into_iter().filter_map(|(key, read)| Some((key, read.ok()?))).collect(),
        // Where that cannot be done, whoever takes the settings up reads them, and says why.
        access: access.finish().unwrap_or_default(),
    }
}

impl<'a> Findings<'a> {
    fn add(&mut self, site: Option<usize>, origin: &Origin, diagnostic: Diagnostic) {
        self.list.push((site, self.loaded.point_at(diagnostic, origin)));
    }

    /// The same for what may not be written at all, since it has a default.
    fn add_at(&mut self, origin: &Origin, diagnostic: Diagnostic) {
        match origin.line {
            0 => self.list.push((None, diagnostic)),
            _ => self.add(None, origin, diagnostic),
        }
    }

    /// Whom server processes, pools and hooks run as.
    fn users(&mut self) {
        let exposed = users::exposed(self.settings).into_iter().map(Diagnostic::warning);
        self.list.extend(exposed.map(|warning| (None, warning)));
        let mut wrong = users::unknown(self.settings);
        let of_sites = self.settings.sites.iter().flat_map(|site| users::unknown_of(&site.hooks));
        if wrong.is_empty() && of_sites.count() == 0 {
            let assigned = users::assign(&mut self.settings.clone(), users::can_be_anybody());
            wrong.extend(assigned.err());
        }
        let of_admin = self.settings.admin.as_ref().and_then(|admin| admin.user.as_ref());
        wrong.extend(of_admin.and_then(|user| users::identity(Some(user)).err()));
        for (origin, message) in users::out_of_reach(self.settings) {
            self.add(None, &origin, Diagnostic::warning(message));
        }
        wrong.into_iter().for_each(|error| self.user(None, &error));
    }

    /// A user that this system does not have.
    fn user(&mut self, site: Option<usize>, error: &anyhow::Error) {
        let (origin, message) = users::Place::of(error);
        match origin {
            Some(origin) => self.add(site, origin, Diagnostic::error(message)),
            None => self.list.push((site, Diagnostic::error(message))),
        }
    }

    /// Whoever may read a token may do with the server what they like.
    fn tokens(&mut self) {
        let listeners = self.settings.admin.iter().flat_map(|admin| &admin.listeners);
        let tokens =
            listeners.map(|listener| (&listener.token_file, "the token {}, and with it change the server"));
        let collectors = self.settings.statistics.otlp.iter().filter_map(|otlp| otlp.headers_file.as_ref());
        let headers = collectors.map(|file| {
            (file, "the fields of `otlp` in {}, and with them ask the collector as this server does")
        });
        for (file, what) in tokens.chain(headers) {
            if std::fs::metadata(file).is_ok_and(|there| there.mode() & 0o004 != 0) {
                let what = what.replace("{}", &file.display().to_string());
                let message = format!("everybody on this machine may read {what}");
                let help = format!("give it to nobody else: `chmod 600 {}`", file.display());
                self.list.push((None, Diagnostic::warning(message).help(help)));
            }
        }
    }

    /// Whether it can be told who signs the certificates of directories. No directory is asked.
    fn directories(&mut self) {
        let settings = self.settings;
        let directories = settings.users.iter().filter_map(|users| users.directory.as_ref());
        for mut terms in directories.map(Directory::tls) {
            // What is wrong with a file is said once, for the first server.
            if let Some(error) = terms.find_map(|terms| read_roots(terms).err()) {
                self.tls(None, Err(error));
            }
        }
        let deciders = settings
            .users
            .iter()
            .flat_map(|users| users.gateways())
            .filter_map(|gateway| gateway.tls.as_ref());
        deciders.for_each(|backend| self.backend(None, backend));
    }

    /// Whether content of requests can be kept where the settings say, by whom the server processes will be.
    fn spill(&mut self) {
        let Some(folder) = privileges::spill(self.settings) else { return };
        let wrong = match users::identity(self.settings.user.as_ref()) {
            Ok((Some(identity), _)) => users::may_write(&folder, &identity),
            Ok((None, _)) => may(&folder, Access::WRITE_OK | Access::EXEC_OK),
            Err(_) if !folder.is_dir() => Err("there is no such folder".to_owned()),
            Err(_) => Ok(()), // has been said
        };
        if let Err(why) = wrong {
            let message =
                format!("cannot keep content of requests in the folder {}: {why}", folder.display());
            let help = "let the server's user write there, or name another folder with `spill`";
            self.add_at(&self.settings.written.spill, Diagnostic::error(message).help(help));
        }
    }

    /// Folders that are made when they are needed: without them the server goes on, and not as it was meant.
    fn made_later(&mut self) {
        let settings = self.settings;
        if let Some(storage) =
            settings.acme.storage.as_deref().filter(|_| !automatic_names(settings).is_empty())
            && let Err(why) = may_make(storage)
        {
            let message =
                format!("no automatic certificate can be kept in the folder {}: {why}", storage.display());
            let help =
                "let the user that starts the server write there, or name another folder with `storage`";
            self.add_at(&settings.written.storage, Diagnostic::warning(message).help(help));
        }
        for pool in &settings.pools {
            let Application::Processes(processes) = &pool.application else { continue };
            if let Place::Folder(folder) = &processes.temporary.place
                && let Err(why) = may_make(folder)
            {
                let (name, folder) = (&pool.name, folder.display());
                let message =
                    format!("pool {name} cannot have uploads and sessions in the folder {folder}: {why}");
                let help = "let the user that starts the server write there, or name another folder with `temporary`";
                self.add(None, &pool.origin, Diagnostic::warning(message).help(help));
            } else if let Place::Folder(folder) = &processes.temporary.place
                && let Err(why) = self.may_reach(folder, pool, processes)
            {
                // The folders in it are made for that user; the way there is not.
                let (name, folder) = (&pool.name, folder.display());
                let message = format!(
                    "the processes of pool {name} cannot write uploads and sessions below {folder}: {why}"
                );
                let help = "let that user look into the folders on the way (`chmod o+x`), or name another one with `temporary`";
                self.add(None, &pool.origin, Diagnostic::warning(message).help(help));
            }
        }
    }

    /// Whether responses can be stored where the settings say, and as many of them.
    fn caches(&mut self) {
        let settings = self.settings;
        // One that cannot be found out has been said.
        let identity = users::identity(settings.user.as_ref()).ok().and_then(|(identity, _)| identity);
        for disk in cache_folders::of(settings) {
            let wrong = match disk.path.is_dir() {
                true => cache_folders::can_be_used(&disk.path, identity.as_ref()),
                false => may_make(&disk.path)
                    .and_then(|()| cache_folders::others_cannot_move(&disk.path, identity.as_ref())),
            };
            if let Err(why) = wrong {
                let message = format!("nothing can be stored in the folder {}: {why}", disk.path.display());
                let help = "without it the store goes on with what else it has; let the server's user have the folder alone, or \
                            name another one";
                self.add(None, &disk.origin, Diagnostic::warning(message).help(help));
            }
        }
        let stores = settings.caches.iter().map(|store| store.memory).sum::<u64>();
        let stores = stores.saturating_mul(settings.processes.into());
        let connections = memory_for_connections(settings.limits.memory);
        let all = memory_of_process();
        if let Some(last) = settings.caches.last().filter(|_| stores.saturating_add(connections) > all) {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let message = format!(
                "the stores of responses may take {} MiB of memory in all processes and connections {} MiB (`limits memory`), and \
                 there are {} MiB",
                mib(stores),
                mib(connections),
                mib(all)
            );
            let help = "lower `memory` of the stores: what lies on a disk is held in memory by the kernel as far as there is room";
            self.add(None, &last.origin, Diagnostic::warning(message).help(help));
        }
    }

    /// Whether the user of a pool may go where a folder is, or will be.
    fn may_reach(&self, folder: &Path, pool: &Pool, processes: &Processes) -> Result<(), String> {
        if !users::can_be_anybody() {
            return Ok(());
        }
        let own = processes.user.as_ref().map(|name| UserSettings {
            name: name.clone(),
            group: processes.group.clone(),
            origin: pool.origin.clone(),
        });
        // One that nobody knows has been said.
        let Ok((Some(identity), _)) = users::identity(own.as_ref().or(self.settings.user.as_ref())) else {
            return Ok(());
        };
        let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
        users::may_enter(there, &identity)
    }

    /// Whether a log lies in a folder of whom applications run as, who can replace it.
    fn logs(&mut self) {
        for (origin, message) in users::exposed_logs(self.settings) {
            self.add_at(&origin, Diagnostic::warning(message));
        }
    }

    /// Whether the tables of limits can outgrow what connections may own: clients choose their keys, and fill them.
    fn tables(&mut self) {
        let Extent { bytes, tables, largest } = Extent::of(self.settings);
        let connections = memory_for_connections(self.settings.limits.memory);
        let Some((largest, its)) = largest.filter(|_| bytes > connections) else { return };
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let message = format!(
            "{tables} tables of limits, bandwidths and logins come to {} MiB once all `keys` are used, more than connections \
             may own ({} MiB, `limits memory`); the largest is that of `{}`: {} keys, {} MiB",
            mib(bytes),
            mib(connections),
            largest.name,
            largest.keys,
            mib(its)
        );
        let help =
            "say with `keys=` how many clients each has to tell apart at a time, or have sites share a limit";
        self.list.push((None, Diagnostic::warning(message).help(help)));
    }

    /// What tells countries.
    fn countries(&mut self) {
        if let Some((key, origin)) = database_of(self.settings) {
            self.access(None, &key, &origin);
        }
    }

    /// A file that access asks: nobody is let in or refused by one that cannot be read.
    fn access(&mut self, site: Option<usize>, key: &DataKey, origin: &Origin) {
        if let Err(why) = self.access.read(key) {
            let help = match key.kind {
                _ if !key.path.exists() && key.kind == DataKind::Countries => {
                    "databases are to be had of MaxMind (`geoipupdate`), DB-IP and IPinfo, in the format of MaxMind (`.mmdb`)"
                }
                DataKind::Networks => {
                    "a list has a network in each line, such as `10.0.0.0/8`, and what follows a `#` is a comment"
                }
                DataKind::Countries => {
                    "name a file in the format of MaxMind, such as `GeoLite2-Country.mmdb`"
                }
            };
            let error = Diagnostic::error(why).help(help);
            self.add(site, origin, error);
        }
    }

    fn listeners(&mut self) {
        let of_listeners = self.settings.listeners.iter();
        for files in of_listeners.filter_map(|listener| listener.tls.as_ref()?.certificate.as_ref()) {
            self.certificate(None, files);
        }
    }

    /// A certificate for every name below one is only given by way of the DNS. Where a site has no other names and
    /// no listener serves it without one, nobody can reach it.
    fn wildcards(&mut self) {
        let settings = self.settings;
        if settings.acme.challenges.contains(&AcmeChallenge::Dns01) {
            return;
        }
        let automatic: HashSet<String> = automatic_names(settings).into_iter().collect();
        if automatic.is_empty() {
            return;
        }
        let needs_one = |listener: &Listener| {
            listener.tls.as_ref().is_some_and(|tls| tls.certificate.is_none())
                || listener.redirects_to_https.is_some()
        };
        let all_need_one = settings.listeners.iter().all(needs_one);
        for (at, site) in settings.sites.iter().enumerate() {
            let wildcards = site.names.iter().filter(|name| matches!(name, HostPattern::Suffix(_)));
            let is_unissued = |name: &String| automatic.contains(name) && !is_local(name);
            let unissued: Vec<String> = wildcards.map(ToString::to_string).filter(is_unissued).collect();
            let Some(name) = unissued.first() else { continue };
            let message = format!(
                "nobody issues a certificate for `{name}` without the challenge `dns-01`, and TLS clients of its names \
                 cannot connect"
            );
            let help =
                "write `acme { challenge \"dns-01\"; dns-update … }`, or name a certificate in the site";
            let is_reached = !all_need_one || unissued.len() < site.names.len();
            let said = if is_reached { Diagnostic::warning(message) } else { Diagnostic::error(message) };
            self.add((!is_reached).then_some(at), &site.origin, said.help(help));
        }
    }

    /// All that a site has opened.
    fn site(&mut self, at: usize, site: &Site) {
        users::unknown_of(&site.hooks).for_each(|error| self.user(Some(at), &error));
        for files in &site.tls.certificates {
            self.certificate(Some(at), files);
        }
        if let Some(clients) = &site.tls.clients {
            self.tls(Some(at), read_clients(clients).map(drop));
        }
        for (key, origin) in lists_of(site) {
            self.access(Some(at), &key, &origin);
        }
        for route in &site.routes {
            let Action::Proxy(proxy) = &route.action else { continue };
            let Some(backend) = &proxy.gateway.tls else { continue };
            self.backend(Some(at), backend);
        }
    }

    /// TLS with an application.
    fn backend(&mut self, site: Option<usize>, backend: &BackendTls) {
        self.tls(site, read_roots(backend).map(drop));
        if let Some(files) = &backend.identity
            && let Err(error) =
                Pair::read(&files.certificate, &files.key).and_then(|pair| Certificate::new(&pair))
        {
            let help = help_with_pair(&error, files);
            self.add(site, &files.origin, Diagnostic::error(error.to_string()).help(help));
        }
        if backend.trust == BackendTrust::Anybody {
            let message = "`verify=none` believes every server: whoever can stand between may read and change everything";
            let help = "name who has signed its certificate: `tls roots=\"ca.pem\"`";
            self.add(None, &backend.origin, Diagnostic::warning(message).help(help));
        }
    }

    fn tls(&mut self, site: Option<usize>, outcome: Result<(), TlsError>) {
        let help = "name a file of certificates in PEM that is there and that the user who starts the server may read";
        let (origin, said) = match outcome {
            Ok(()) => return,
            Err(TlsError::Certificate { origin, error }) => (origin, error.to_string()),
            Err(TlsError::Backend { origin, error }) => (origin, error.to_string()),
            Err(TlsError::Terms { origin, error }) => (origin, error.to_string()),
        };
        self.add(site, &origin, Diagnostic::error(said).help(help));
    }

    fn certificate(&mut self, site: Option<usize>, files: &CertificateFiles) {
        let key = key_of(files);
        if !self.pairs.contains_key(&key) {
            let read =
                certificates::look_over(self.settings, files, wall_seconds()).map(|(pair, findings)| {
                    for finding in findings {
                        let message =
                            format!("the certificate {}: {}", files.certificate.display(), finding.said);
                        self.add(None, &files.origin, Diagnostic::warning(message));
                    }
                    pair
                });
            self.pairs.insert(key.clone(), read);
        }
        if let Some(Err(error)) = self.pairs.get(&key) {
            let help = format!("no client is served without it: {}", help_with_pair(error, files));
            let error = Diagnostic::error(error.to_string()).help(help);
            self.add(site, &files.origin, error);
        }
    }

    /// A root that the server processes may not look into would answer 403 to everything. This process may be
    /// allowed to, and so the settings look right; what it may not look into either has been said.
    fn roots(&mut self, at: usize, site: &'a Site, identity: &Identity) {
        let mut said: HashSet<&Path> = HashSet::new();
        for route in &site.routes {
            let Some(root) = route.action.root() else { continue };
            let opened = self.roots.entry(root.as_os_str()).or_insert_with(|| {
                may(root, Access::EXEC_OK).map_or(Ok(()), |()| users::may_enter(root, identity))
            });
            if let Err(why) = opened
                && said.insert(root)
            {
                let message = format!("cannot open the root {}: {why}", root.display());
                let help = "let the user whom the server processes run as enter it: `chmod o+x`, or `chgrp` and \
                            `chmod g+x`";
                let origin = route.root_origin.as_ref().filter(|origin| origin.is_written());
                self.add(Some(at), origin.unwrap_or(&route.origin), Diagnostic::error(message).help(help));
            }
        }
    }
}

/// Whether this process may make a folder, and what is missing on the way there; why not.
fn may_make(folder: &Path) -> Result<(), String> {
    let there = folder.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    let what = there.metadata().map_err(|error| format!("{}: {error}", there.display()))?;
    if !what.is_dir() {
        return Err(format!("{} is no folder", there.display()));
    }
    // Root may write everywhere, says the kernel, and these take nothing all the same.
    if statfs(there).is_ok_and(|system| NO_PLACE.contains(&(system.f_type as u64))) {
        return Err(format!("{} is of the kernel, which keeps no files", there.display()));
    }
    may(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| format!("{}: {error}", there.display()))
}

/// What `statfs(2)` says of `/proc` and `/sys`.
const NO_PLACE: [u64; 2] = [0x9fa0, 0x6265_6572];

/// Whether this process may use a folder; why not.
fn may(folder: &Path, access: Access) -> Result<(), String> {
    accessat(CWD, folder, access, AtFlags::EACCESS).map_err(|error| std::io::Error::from(error).to_string())
}

/// What to do about a certificate or its key that cannot be used.
fn help_with_pair(error: &CertificateError, files: &CertificateFiles) -> &'static str {
    match error {
        CertificateError::NoKey { .. } if files.key == files.certificate => {
            "where the key lies in a file of its own, name it as well: `key=\"FILE\"`"
        }
        CertificateError::NoKey { .. } => "name the file of its private key: `key=\"FILE\"`",
        CertificateError::NoCertificate { .. } => {
            "name the file that the certificate lies in; that of the key stands behind `key=`"
        }
        CertificateError::Mismatch { .. } => {
            "both files are whole, and no pair: name the key that this certificate was made for"
        }
        CertificateError::HasPassphrase { .. } => {
            "name the new file, which nobody but the server and who starts it should read (`chmod 600`)"
        }
        CertificateError::UnusableKey { .. } => "name a key that can be used, or take the line out",
        CertificateError::Unreadable { why, .. } if why == NOT_FOR_THIS_USER => {
            "start the server as root, which reads it before it becomes its `user`, or let the user read it that starts it \
             (`chown`, `chmod 600`)"
        }
        CertificateError::Unreadable { .. } | CertificateError::Malformed { .. } => {
            "name a file that is there and whole, or take the line out"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_with_files_that_are_whole() {
        let files = |key: &str| CertificateFiles {
            certificate: "a.pem".into(),
            key: key.into(),
            origin: Default::default(),
        };
        let no_key = CertificateError::NoKey { path: "a.pem".into() };
        let mismatch = CertificateError::Mismatch { certificate: "a.pem".into(), key: "b.pem".into() };
        let has_passphrase = CertificateError::HasPassphrase { path: "b.pem".into() };
        for (error, key, help) in [
            (&no_key, "a.pem", "name it as well: `key=\"FILE\"`"),
            (&no_key, "b.pem", "name the file of its private key"),
            (&mismatch, "b.pem", "both files are whole, and no pair"),
            (&has_passphrase, "b.pem", "name the new file"),
        ] {
            let said = help_with_pair(error, &files(key));
            assert!(said.contains(help), "{said}");
        }
    }
}
