//! TLS in the master: it reads certificates and keys, rotates the keys of session tickets, and hands both to the
//! server processes, which read no file.

use super::looks::{Look, Looks};
use super::servers::Revision;
use super::{Event, Master, Order};
use crate::certificates::{self, CertificateWatch};
use crate::file_watch::stamp_of;
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::CertificateFiles;
use tidegate_core::log;
use tidegate_core::tls::{TlsStore, TlsUpdate, backends, key_of, pair_files};
use tidegate_tls::{CertificateError, Pair, Slot};

/// What the master knows of TLS.
pub struct Tls {
    /// What server processes have too.
    store: Arc<TlsStore>,
    watch: CertificateWatch,
    pub looks: Looks,
}

/// What a look at the files has found.
pub struct Looked {
    look: Look,
    watch: CertificateWatch,
    pairs: Vec<(CertificateFiles, Result<Pair, CertificateError>)>,
    authorities: bool,
    /// Of keys that others may have come to know, as sentences.
    opened: Vec<String>,
}

impl Tls {
    /// With the ticket keys of a predecessor where there is one.
    pub fn new(tickets: Option<&[u8]>) -> Result<Tls> {
        let store = TlsStore::new().context("cannot make keys for TLS session tickets")?;
        if let Some(tickets) = tickets.filter(|tickets| !tickets.is_empty()) {
            // Clients come back with new sessions where this fails.
            let _ = store.tickets().inherit(tickets);
        }
        Ok(Tls { store, watch: CertificateWatch::default(), looks: Looks::new("certificates") })
    }

    /// Whether a revision can be served; an error is a sentence about the settings. Asks no file system.
    pub fn check(&self, next: &Revision) -> Result<()> {
        if let Some(wrong) = self.store.take(&next.tls).into_iter().next() {
            bail!(wrong);
        }
        self.store.sites(&next.settings)?;
        Ok(())
    }

    /// A revision is in force.
    pub fn adopt(&mut self, revision: &mut Revision) {
        let settings = &revision.settings;
        self.watch = std::mem::take(&mut revision.seen);
        let speaks = settings.listeners.iter().any(|listener| listener.tls.is_some())
            || backends(settings).next().is_some();
        self.looks.begin(speaks);
    }

    /// A reload is over: what nobody uses any more, or has come to use, goes.
    pub fn settle(&self, present: &Revision) {
        self.store.settle(&present.tls);
    }

    /// A revision was given up: what its files held is again what those of the one in force do.
    pub fn restore(&self, present: &Revision) {
        for wrong in self.store.take(&present.tls) {
            log::error(format_args!("a certificate that was in use cannot be used: {wrong}"));
        }
    }

    /// The state of the files that are in use.
    pub fn watch(&self) -> CertificateWatch {
        self.watch.clone()
    }

    /// What was read.
    pub fn store(&self) -> &TlsStore {
        &self.store
    }

    /// The keys of session tickets, for a successor.
    pub fn tickets(&self) -> Vec<u8> {
        self.store.tickets().to_bytes()
    }

    /// Certificates for the status report.
    pub fn certificates(&self, settings: &Settings) -> Vec<(String, Arc<Slot>)> {
        certificates::of_settings(settings, &self.store)
    }
}

impl Master {
    /// Before the first server process starts.
    pub(super) fn begin_tls(&mut self) -> Result<()> {
        self.tls.check(&self.current)?;
        self.tls.adopt(&mut self.current);
        self.servers.tls.tickets = Some(self.tls.tickets());
        Ok(())
    }

    /// What is automatic has changed: it is kept for processes that start, and told to those that run.
    pub(super) fn give_automatic(&mut self, update: &TlsUpdate) {
        for wrong in self.tls.store.apply(update) {
            log::error(format_args!("an automatic certificate cannot be used: {wrong}"));
        }
        let present = &mut self.servers.tls;
        for (name, pair) in &update.automatic {
            present.automatic.retain(|(known, _)| known != name);
            present.automatic.push((name.clone(), pair.clone()));
        }
        for (token, answer) in &update.tokens {
            present.tokens.retain(|(known, _)| known != token);
            present.tokens.extend(answer.is_some().then(|| (token.clone(), answer.clone())));
        }
        for (name, pair) in &update.challenges {
            present.challenges.retain(|(known, _)| known != name);
            present.challenges.extend(pair.is_some().then(|| (name.clone(), pair.clone())));
        }
        self.servers.give_tls(update);
    }

    /// Has a thread look at what has changed on the disk; and keys that are old enough.
    pub(super) fn look_at_tls(&mut self) {
        if !self.tls.looks.is_due() {
            return;
        }
        let mut update = TlsUpdate::default();
        if self.tls.store.tickets().rotate_if_due() {
            update.tickets = Some(self.tls.tickets());
            self.servers.tls.tickets.clone_from(&update.tickets);
        }
        let (settings, watch) = (self.current.settings.clone(), self.tls.watch.clone());
        let sender = self.sender.clone();
        self.tls.looks.start(move |of| {
            let _ = sender.send(Event::Looked(Box::new(look(&settings, watch, of))));
        });
        if update != TlsUpdate::default() {
            self.servers.give_tls(&update);
        }
    }

    /// The files were looked at.
    pub(super) fn have_looked(&mut self, looked: Looked) {
        if !self.tls.looks.end(looked.look) || !self.takes_what_is_found() {
            return;
        }
        self.tls.watch = looked.watch;
        for sentence in looked.opened {
            log::error(format_args!("{sentence}; the one in use was read before"));
        }
        let (mut update, mut sentences) = (TlsUpdate::default(), Vec::new());
        for (files, read) in looked.pairs {
            if let Some((pair, sentence)) = certificates::renew(&files, read, &self.tls.store) {
                sentences.push(sentence);
                self.current.tls.renew(key_of(&files), pair.clone());
                update.files.renew(key_of(&files), pair);
            }
        }
        if update != TlsUpdate::default() {
            self.servers.give_tls(&update);
        }
        self.announce(sentences);
        if looked.authorities {
            self.ask_for(Order::Authorities);
        }
    }
}

/// Looks at the files, and reads the pairs that have changed.
fn look(settings: &Settings, mut watch: CertificateWatch, look: Look) -> Looked {
    let opened = watch.opened(settings);
    let found = watch.look(settings, stamp_of);
    let mut pairs: Vec<(CertificateFiles, _)> = Vec::new();
    for (place, files) in pair_files(settings).enumerate() {
        let is_new = !pairs.iter().any(|(known, _)| key_of(known) == key_of(files));
        if found.pairs.contains(&place) && is_new && watch.examine(&files.key).is_ok() {
            pairs.push((files.clone(), Pair::read(&files.certificate, &files.key)));
        }
    }
    Looked { look, watch, pairs, authorities: found.authorities, opened }
}
