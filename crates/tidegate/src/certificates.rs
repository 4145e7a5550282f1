//! Certificates that change on disk: read anew without a reload command, and looked over for what an operator
//! should know.
//!
//! A pair is read once both halves stand still ([`FileWatch`]). One that is broken then leaves the one in use where it
//! is (FAULTS 52).

use crate::file_watch::{FileWatch, Stamp, stamp_of};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::gateway::BackendTrust;
use tidegate_config::settings::{CertificateFiles, Site};
use tidegate_core::log;
use tidegate_core::tls::{TlsStore, backends, certificate_files, key_of, pair_files};
use tidegate_modules::status::CertificateInfo;
use tidegate_tls::certificate::Slot;
use tidegate_tls::inspect::{Finding, findings};
use tidegate_tls::{Certificate, CertificateError, Pair};

/// What is known of the files.
#[derive(Clone, Default)]
pub struct CertificateWatch {
    files: FileWatch,
    /// Keys that nobody else could read or change when they were seen first, and whose they were.
    private: HashMap<PathBuf, u32>,
    /// Those of them of which it was said that this is so no more.
    said: BTreeSet<PathBuf>,
}

/// What a look has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Pairs of which a file has changed, by their place among [`pair_files`].
    pub pairs: Vec<usize>,
    /// Authorities of clients or applications have changed: terms must be made anew.
    pub authorities: bool,
}

impl CertificateWatch {
    /// Takes the files of `settings` as they are now for those that will have been read. Comes before reading
    /// them, so that no change is missed.
    pub fn begin(settings: &Settings) -> CertificateWatch {
        let mut watch = CertificateWatch::default();
        watch.extend(settings);
        watch
    }

    /// The same for further files.
    pub fn extend(&mut self, settings: &Settings) {
        for path in paths(settings) {
            self.files.add(path, stamp_of);
        }
        for key in pair_files(settings).map(|files| &files.key) {
            if let Some(owner) = owner_of(key).filter(|_| !is_open(key)) {
                self.private.entry(key.clone()).or_insert(owner);
            }
        }
    }

    /// Why a key that was private is not used as it is now: an application that has the server's user can change the mode
    /// of a key that it can neither read nor write (landlock(7) knows no rights to that).
    ///
    /// # Errors
    /// The sentence.
    pub fn examine(&self, key: &Path) -> Result<(), String> {
        let Some(owner) = self.private.get(key) else { return Ok(()) };
        let shown = key.display();
        let what = match owner_of(key) {
            _ if is_open(key) => "can be read or changed by everybody now",
            Some(now) if now != *owner && now != 0 => "belongs to another user now",
            _ => return Ok(()),
        };
        Err(format!(
            "the key {shown} was its owner's alone and {what}: whoever did this may have it; make it private \
             (`chmod 600 {shown}`), and where it was not you, have a new key made"
        ))
    }

    /// A sentence for each key that was private and is no more, when that is seen first.
    pub fn opened(&mut self, settings: &Settings) -> Vec<String> {
        let mut keys: Vec<&Path> = pair_files(settings).map(|files| files.key.as_path()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut sentences = Vec::new();
        for key in keys {
            match self.examine(key) {
                Ok(()) => drop(self.said.remove(key)),
                Err(sentence) => {
                    sentences.extend(Some(sentence).filter(|_| self.said.insert(key.to_owned())));
                }
            }
        }
        sentences
    }

    /// Looks at every file; finds what has changed and stands still since the last look.
    pub fn look(&mut self, settings: &Settings, stamp: impl Fn(&Path) -> Stamp) -> Looked {
        let settled = self.files.settled(paths(settings), stamp);
        let is_settled = |path: &PathBuf| settled.contains(&path.as_path());
        let mut looked = Looked::default();
        for (place, files) in pair_files(settings).enumerate() {
            let both = [&files.certificate, &files.key];
            let stands_still = both.iter().all(|path| !self.files.is_moving(path) || is_settled(path));
            if both.into_iter().any(is_settled) && stands_still {
                looked.pairs.push(place);
            }
        }
        looked.authorities = authorities(settings).any(is_settled);
        for path in settled {
            // A file of a pair whose other half still moves is looked at again with it.
            let is_waiting = pair_files(settings).enumerate().any(|(place, files)| {
                (files.certificate == path || files.key == path) && !looked.pairs.contains(&place)
            });
            if !is_waiting {
                self.files.take_in(path);
            }
        }
        looked
    }
}

/// Of clients, and of applications.
fn authorities(settings: &Settings) -> impl Iterator<Item = &PathBuf> {
    let clients = settings
        .sites
        .iter()
        .filter_map(|site| site.tls.clients.as_ref())
        .map(|clients| &clients.authorities);
    clients.chain(backends(settings).filter_map(|backend| match &backend.trust {
        BackendTrust::Roots(path) => Some(path),
        BackendTrust::System | BackendTrust::Anybody => None,
    }))
}

fn paths(settings: &Settings) -> Vec<&Path> {
    let pairs = pair_files(settings).flat_map(|files| [&files.certificate, &files.key]);
    let mut paths: Vec<&Path> = pairs.chain(authorities(settings)).map(PathBuf::as_path).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Whether a key can be read or changed by everybody.
pub fn is_open(key: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(key).is_ok_and(|there| there.mode() & 0o006 != 0)
}

fn owner_of(key: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(key).ok().map(|there| there.uid())
}

/// Puts a pair that was read anew into its slot. With it comes what is to be said once all go by it; the log says why a pair
/// cannot be used.
pub fn renew(
    files: &CertificateFiles,
    read: Result<Pair, CertificateError>,
    tls: &TlsStore,
) -> Option<(Pair, String)> {
    let name = files.certificate.display();
    let renewed = read.and_then(|pair| {
        tls.fill(&key_of(files), &pair)?;
        Ok(pair)
    });
    match renewed {
        Ok(pair) => {
            let until = tls.slot(&key_of(files)).present().map_or(0, |present| present.about.not_after);
            let sentence =
                format!("the certificate {name} has changed and is in use, good until {}", day(until));
            Some((pair, sentence))
        }
        Err(error) => {
            log::error(format_args!(
                "the certificate {name} has changed, but the one before stays in use: {error}"
            ));
            None
        }
    }
}

/// Seconds since 1970 as a day.
pub fn day(seconds: i64) -> String {
    let date = tidegate_http::HttpDate(seconds).rfc3339();
    String::from_utf8_lossy(date.get(..10).unwrap_or_default()).into_owned()
}

/// Reads a pair, and tells what should be known of it. The error is of one that cannot be served at all.
pub fn look_over(
    settings: &Settings,
    files: &CertificateFiles,
    now: i64,
) -> Result<(Pair, Vec<Finding>), CertificateError> {
    let pair = Pair::read(&files.certificate, &files.key)?;
    let found = findings(&Certificate::new(&pair)?, &hosts_of(settings, files), now);
    Ok((pair, found))
}

/// The host names that a pair is there for.
fn hosts_of(settings: &Settings, files: &CertificateFiles) -> Vec<String> {
    let is_of_listeners = !settings.sites.iter().any(|site| site.tls.certificates.contains(files));
    let is_own = |site: &&Arc<Site>| {
        let own = &site.tls.certificates;
        if own.is_empty() {
            is_of_listeners
        } else {
            // One of several may be for some of the names only.
            own.len() == 1 && own.contains(files)
        }
    };
    let sites = settings.sites.iter().filter(is_own);
    sites.flat_map(|site| &site.names).map(ToString::to_string).collect()
}

/// The certificates for the status report: those of files, and those that are automatic.
pub fn of_settings(settings: &Settings, tls: &TlsStore) -> Vec<(String, Arc<Slot>)> {
    let mut slots: Vec<(String, Arc<Slot>)> = Vec::new();
    let named = certificate_files(settings)
        .map(|files| (files.certificate.display().to_string(), tls.slot(&key_of(files))));
    let automatic = tidegate_core::tls::automatic_names(settings);
    let automatic = automatic.iter().map(|name| (format!("automatic: {name}"), tls.automatic_slot(name)));
    for (source, slot) in named.chain(automatic) {
        if !slots.iter().any(|(known, _)| *known == source) {
            slots.push((source, slot));
        }
    }
    slots
}

/// What the status report says of a certificate.
pub fn info_of(source: &str, slot: &Slot) -> CertificateInfo {
    let present = slot.present();
    let about = present.as_ref().map(|present| &present.about);
    CertificateInfo {
        source: source.to_owned(),
        names: about.map(|about| about.names.clone()).unwrap_or_default(),
        key: about.map(|about| about.key.to_string()).unwrap_or_default(),
        issuer: about.map(|about| about.issuer.clone()).unwrap_or_default(),
        not_before: about.map(|about| about.not_before),
        not_after: about.map(|about| about.not_after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::{ProcessEnvironment, load_str};

    #[test]
    fn a_pair_is_read_once_both_halves_stand_still() {
        let text = "listen \":1\" { tls certificate=\"/a.pem\" key=\"/a.key\" }\n\
            site { respond 200; tls { client-certificates \"/ca.pem\" } }\n";
        let settings = load_str("a", text, "/".as_ref(), &ProcessEnvironment).settings.unwrap();
        let mut watch = CertificateWatch::default();
        let state = |pem: u64, key: u64, ca: u64| {
            move |path: &Path| {
                let version = match path.to_str() {
                    Some("/a.pem") => pem,
                    Some("/a.key") => key,
                    _ => ca,
                };
                Some((0, version, 0, 0, 0))
            }
        };
        for path in paths(&settings) {
            watch.files.add(path, state(1, 1, 1));
        }
        let nothing = Looked::default();
        let pair = || Looked { pairs: vec![0], authorities: false };
        let mut look = |pem, key, ca| watch.look(&settings, state(pem, key, ca));
        for ((pem, key, ca), expected) in [
            ((1, 1, 1), nothing),
            ((2, 1, 1), Looked::default()), // changed just now
            ((2, 2, 1), Looked::default()), // the other half too: wait for both
            ((2, 2, 1), pair()),
            ((2, 2, 1), Looked::default()),
            ((2, 3, 1), Looked::default()), // the key alone
            ((2, 3, 1), pair()),
            ((2, 4, 1), Looked::default()),
            ((2, 3, 1), Looked::default()), // and back
            ((2, 3, 1), Looked::default()),
            ((2, 3, 2), Looked::default()),
            ((2, 3, 2), Looked { pairs: vec![], authorities: true }),
            ((2, 3, 2), Looked::default()),
        ] {
            assert_eq!(look(pem, key, ca), expected, "{pem} {key} {ca}");
        }
    }
}
