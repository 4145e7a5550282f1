//! Files whose contents are secret, of all that settings name: what is kept out of the reach of applications, and what
//! `check` looks for below a root.
//!
//! Structures are taken apart here field by field: one with a new file in it does not compile until it says whether that is
//! secret.

use super::gateway::BackendTls;
use super::{
    AccountFiles, Acme, Admin, AdminListener, CertificateFiles, Directory, DirectoryBind, KeySource,
    LimitStore, OpenId, Settings, Statistics, TokenKey, Tokens, UrlKeys, UserSource,
};
use std::path::{Path, PathBuf};

/// What is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretKind {
    /// Of a certificate.
    PrivateKey,
    /// The folder of automatic certificates.
    Storage,
    /// Hashes of passwords.
    Passwords,
    /// Which groups users are in. Whoever can write it makes himself an administrator.
    Groups,
    /// A password by which the server itself logs in.
    Password,
    /// What the admin API asks for.
    AdminToken,
    /// Keys that sign URLs.
    UrlKeys,
    /// Keys that sessions are sealed with.
    SessionKeys,
    /// Keys that tokens are signed with.
    TokenKeys,
    /// A folder of responses that are stored, of whomever. Whoever can write there says what the server answers.
    Responses,
    /// Keys that tokens are verified with and nothing else. Whoever can write them is anybody.
    PublicKeys,
}

impl SecretKind {
    /// Whether nobody may read it; else it is that nobody may write it.
    pub fn is_confidential(self) -> bool {
        !matches!(self, SecretKind::PublicKeys | SecretKind::Groups)
    }

    /// As a message has it.
    pub fn as_str(self) -> &'static str {
        match self {
            SecretKind::PrivateKey => "a private key",
            SecretKind::Storage => "the storage of certificates",
            SecretKind::Passwords => "passwords",
            SecretKind::Groups => "groups of users",
            SecretKind::Password => "a password",
            SecretKind::AdminToken => "the token of the admin API",
            SecretKind::UrlKeys => "keys that sign URLs",
            SecretKind::SessionKeys => "keys that seal sessions",
            SecretKind::TokenKeys => "keys that sign tokens",
            SecretKind::Responses => "responses that are stored",
            SecretKind::PublicKeys => "keys that verify tokens",
        }
    }
}

impl Settings {
    /// The files that nobody but the server may have, each as often as it is named.
    pub fn secrets(&self) -> Vec<(PathBuf, SecretKind)> {
        let Settings {
            sites: _,     // see `pairs`
            listeners: _, // see `pairs`
            acme,
            users,
            limit_store,
            url_keys,
            pid_file: _, // nothing secret, but kept from applications
            control: _,  // that too
            admin,
            bans_file: _, // and that
            workers: _,
            processes: _,
            user: _,
            sandbox: _,
            pools: _,
            hooks: _,
            country_database: _,
            dns: _,
            upstreams: _,
            limits: _,
            busy: _,
            file_cache: _,
            caches,
            statistics: Statistics { otlp, of_sites: _, history: _, totals: _ },
            access_log: _,
            error_log: _,
            server_field: _,
            spill: _,
            written: _,
            drain_timeout: _,
        } = self;
        let mut found = Found(Vec::new());
        self.pairs().for_each(|pair| found.pair(pair));
        found.acme(acme);
        users.iter().for_each(|users| found.users(users));
        let fields = otlp.as_ref().and_then(|otlp| otlp.headers_file.as_ref());
        fields.into_iter().for_each(|file| found.add(file, SecretKind::Password));
        limit_store.iter().for_each(|store| found.limit_store(store));
        admin.iter().for_each(|admin| found.admin(admin));
        for UrlKeys { file, name: _, keys: _, origin: _ } in url_keys {
            found.add(file, SecretKind::UrlKeys);
        }
        let disks = caches.iter().flat_map(|store| &store.disks);
        disks.for_each(|disk| found.add(&disk.path, SecretKind::Responses));
        found.0
    }

    /// Every certificate with its key that is served or shown to others.
    pub fn pairs(&self) -> impl Iterator<Item = &CertificateFiles> {
        self.served_pairs().chain(self.backends().filter_map(|backend| backend.identity.as_ref()))
    }

    /// Every one that is served.
    pub fn served_pairs(&self) -> impl Iterator<Item = &CertificateFiles> {
        let listeners =
            self.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.certificate.as_ref());
        listeners.chain(self.sites.iter().flat_map(|site| &site.tls.certificates))
    }

    /// TLS with applications and directories, wherever it stands.
    pub fn backends(&self) -> impl Iterator<Item = &BackendTls> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        let directories = self.users.iter().filter_map(|users| users.directory.as_ref());
        let gateways = self.users.iter().flat_map(|users| users.gateways());
        let deciders = gateways.filter_map(|gateway| gateway.tls.as_ref());
        let of_users = directories.flat_map(Directory::tls).chain(deciders);
        routes.filter_map(|route| route.action.backend_tls()).chain(of_users)
    }
}

struct Found(Vec<(PathBuf, SecretKind)>);

impl Found {
    fn add(&mut self, path: &Path, kind: SecretKind) {
        self.0.push((path.to_owned(), kind));
    }

    fn pair(&mut self, pair: &CertificateFiles) {
        let CertificateFiles { key, certificate: _, origin: _ } = pair;
        self.add(key, SecretKind::PrivateKey);
    }

    fn admin(&mut self, admin: &Admin) {
        let Admin { socket: _, user: _, listeners, origin: _ } = admin;
        for AdminListener { address: _, token_file } in listeners {
            self.add(token_file, SecretKind::AdminToken);
        }
    }

    fn acme(&mut self, acme: &Acme) {
        let Acme { storage, email: _, authorities: _, challenges: _, dns_hook: _, dns_updates: _ } = acme;
        storage.iter().for_each(|storage| self.add(storage, SecretKind::Storage));
    }

    fn users(&mut self, users: &UserSource) {
        let UserSource {
            files: AccountFiles { passwords, groups },
            directory,
            forward: _, // its key is one of `pairs`
            tokens,
            openid,
            name: _,
            accounts: _,
            cache: _,
            origin: _,
        } = users;
        passwords.iter().for_each(|path| self.add(path, SecretKind::Passwords));
        groups.iter().for_each(|path| self.add(path, SecretKind::Groups));
        directory.iter().for_each(|directory| self.directory(directory));
        tokens.iter().for_each(|tokens| self.tokens(tokens));
        openid.iter().for_each(|openid| self.openid(openid));
    }

    fn directory(&mut self, directory: &Directory) {
        let Directory {
            bind,
            servers: _,
            base: _,
            filter: _,
            name: _,
            groups: _,
            timeout: _,
            connections: _,
            origin: _,
        } = directory;
        if let Some(DirectoryBind { file, dn: _, password: _ }) = bind {
            self.add(file, SecretKind::Password);
        }
    }

    fn tokens(&mut self, tokens: &Tokens) {
        let Tokens { source, keys, issuer: _, audience: _, user: _, groups: _, leeway: _ } = tokens;
        let is_secret = keys.iter().any(TokenKey::is_secret);
        match source {
            KeySource::File(file) => {
                self.add(file, if is_secret { SecretKind::TokenKeys } else { SecretKind::PublicKeys });
            }
            KeySource::Service(_) => {} // its key is one of `pairs`
        }
    }

    fn openid(&mut self, openid: &OpenId) {
        let OpenId {
            secret_file,
            session_keys_file,
            issuer: _,
            discovery: _, // its key is one of `pairs`
            keys: _,      // that too
            token: _,     // and that
            client: _,
            secret: _,
            session_keys: _,
            scopes: _,
            user: _,
            groups: _,
            session: _,
            refresh: _,
            leeway: _,
            callback: _,
            logout: _,
            after_logout: _,
        } = openid;
        secret_file.iter().for_each(|path| self.add(path, SecretKind::Password));
        self.add(session_keys_file, SecretKind::SessionKeys);
    }

    fn limit_store(&mut self, store: &LimitStore) {
        let LimitStore {
            password_file,
            address: _,
            database: _,
            user: _,
            password: _,
            prefix: _,
            nodes: _,
            origin: _,
        } = store;
        password_file.iter().for_each(|path| self.add(path, SecretKind::Password));
    }
}
