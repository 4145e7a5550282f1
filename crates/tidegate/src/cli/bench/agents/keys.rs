//! Who may talk to whom: `tidegate bench agent-keys` makes certificates for a controller and its agents, and [`Security`] is what
//! one side has of them. There are two authorities, one for the controller and one for agents, and each side trusts the other's
//! alone: no agent can pass for a controller. Their keys are forgotten as soon as they have signed. Agents that `ssh` starts get theirs by
//! it, for one run, and none of it is in a file ([`for_one_run`]).

use super::super::super::print;
use super::super::wrong;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_bench::agent::MOST_AGENTS;
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Names in certificates.
const CONTROLLER: &str = "tidegate-bench-controller";
const AGENT: &str = "tidegate-bench-agent";

/// Files of one side.
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const PEERS: &str = "peers.pem";

/// Makes the keys with which a controller and its agents know each other.
///
/// FOLDER gets a folder `controller` and one for each agent, `agent-1` and so on, with three files each: certificate, key, and
/// whom to trust. Each folder belongs on its machine alone (`--keys`). An agent cannot pass for the controller with its key.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench agent-keys keys --agents 3
  scp -r keys/agent-1 host1:keys
  ssh host1 tidegate bench agent --listen 0.0.0.0:7400 --keys keys
  tidegate bench run shop.kdl --agents host1:7400 --keys keys/controller

Exit codes: 0 they are there, 1 they could not be written, 2 the arguments are wrong")]
pub struct Arguments {
    /// The folder, which must not be there yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Agents
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_AGENTS as i64))]
    agents: u16,
    /// How long they are good for
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
}

/// Makes them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = &arguments.folder;
    make(folder, arguments.agents, arguments.days)?;
    let text = format!(
        "{}/controller is for this machine, {}/agent-1 to agent-{} are for the agents; good for {} days\n",
        folder.display(),
        folder.display(),
        arguments.agents,
        arguments.days
    );
    print(&text)
}

fn make(folder: &Path, agents: u16, days: u16) -> Result<()> {
    let authorities = Authorities::new(days)?;
    // Its folder, not those above it: keys that are there are never written over.
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
            "{} is there already: take it away, or name another folder; keys that are in use are not written over",
            folder.display()
        ),
        made => made.with_context(|| format!("cannot make {}", folder.display()))?,
    }
    authorities.side(Side::Controller, "controller")?.write(&folder.join("controller"))?;
    for number in 1..=agents {
        let name = format!("agent-{number}");
        authorities.side(Side::Agent, &name)?.write(&folder.join(&name))?;
    }
    Ok(())
}

/// Days for which the keys of one run are good.
const ONE_RUN: u16 = 30;

/// Keys for a controller and so many agents that are for one run, and in no file.
pub fn for_one_run(agents: usize) -> Result<(Pem, Vec<Pem>)> {
    let authorities = Authorities::new(ONE_RUN)?;
    let agents = (1..=agents).map(|number| authorities.side(Side::Agent, &format!("agent-{number}")));
    let agents: Result<Vec<Pem>> = agents.collect();
    Ok((authorities.side(Side::Controller, "controller")?, agents?))
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str, end: OffsetDateTime) -> Result<Authority> {
    let mut params = dated(Vec::new(), name, end)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn dated(names: Vec<String>, title: &str, end: OffsetDateTime) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, title);
    // A day for clocks that are behind.
    params.not_before = OffsetDateTime::now_utc() - Duration::days(1);
    params.not_after = end;
    Ok(params)
}

/// Who signs for controllers, and who for agents.
struct Authorities {
    of_controllers: Authority,
    of_agents: Authority,
    end: OffsetDateTime,
}

impl Authorities {
    fn new(days: u16) -> Result<Authorities> {
        let end = OffsetDateTime::now_utc() + Duration::days(i64::from(days));
        let of_controllers = authority("tidegate bench controllers", end)?;
        let of_agents = authority("tidegate bench agents", end)?;
        Ok(Authorities { of_controllers, of_agents, end })
    }

    /// A key of one side, signed by its authority, with whom that side trusts.
    fn side(&self, side: Side, title: &str) -> Result<Pem> {
        let (dns_name, signer, peers) = match side {
            Side::Controller => (CONTROLLER, &self.of_controllers, &self.of_agents),
            Side::Agent => (AGENT, &self.of_agents, &self.of_controllers),
        };
        let key = KeyPair::generate()?;
        let mut params = dated(vec![dns_name.to_owned()], title, self.end)?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, signer)?;
        Ok(Pem { certificate: certificate.pem(), key: key.serialize_pem(), peers: peers.pem() })
    }
}

/// What one side has, as PEM.
#[derive(Serialize, Deserialize)]
pub struct Pem {
    certificate: String,
    key: String,
    /// Whom it trusts.
    peers: String,
}

impl Pem {
    fn read(folder: &Path) -> Result<Pem> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Pem { certificate: read(CERTIFICATE)?, key: read(KEY)?, peers: read(PEERS)? })
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let at = |path: &Path| format!("cannot write {}", path.display());
        fs::DirBuilder::new().mode(0o700).create(folder).with_context(|| at(folder))?;
        for (name, content) in [(CERTIFICATE, &self.certificate), (KEY, &self.key), (PEERS, &self.peers)] {
            let path = folder.join(name);
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(content.as_bytes())).with_context(|| at(&path))?;
        }
        Ok(())
    }

    /// How links of this side are protected. `name` says where one of these is, for errors.
    pub fn security(&self, side: Side, name: impl Fn(&str) -> String) -> Result<Security> {
        let unusable = |part: &str| format!("{} cannot be used", name(part));
        let certificates = |text: &str, part: &str| -> Result<Vec<CertificateDer<'static>>> {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
            let read = read.with_context(|| unusable(part))?;
            if read.is_empty() {
                return Err(anyhow!("{} has no certificate", name(part)));
            }
            Ok(read)
        };
        let chain = certificates(&self.certificate, CERTIFICATE)?;
        let key = || PrivateKeyDer::from_pem_slice(self.key.as_bytes()).with_context(|| unusable(KEY));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.peers, PEERS)? {
            roots.add(certificate).with_context(|| unusable(PEERS))?;
        }
        let (roots, provider): (_, Arc<CryptoProvider>) =
            (Arc::new(roots), Arc::new(aws_lc_rs::default_provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key()?)
            .with_context(|| unusable(KEY))?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key()?)
            .with_context(|| unusable(KEY))?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        client.alpn_protocols = vec![b"h2".to_vec()];
        let peer = if side == Side::Controller { AGENT } else { CONTROLLER };
        Ok(Security::Tls {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            peer: ServerName::try_from(peer).context("invariant: a constant name")?,
        })
    }
}

/// Which side this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Of whom there is one.
    Controller,
    /// Of whom there are several.
    Agent,
}

/// How links are protected.
#[derive(Clone)]
pub enum Security {
    /// Not at all, which is for loopback addresses.
    Plain,
    /// Both sides show certificates.
    Tls {
        /// For who is dialled.
        acceptor: TlsAcceptor,
        /// For who dials.
        connector: TlsConnector,
        /// What the certificate of the other side says.
        peer: ServerName<'static>,
    },
}

/// What is said of it on a command line.
#[derive(Args, Clone)]
pub struct SecurityOptions {
    /// The folder of this side's keys, of `tidegate bench agent-keys`
    #[arg(long, value_name = "FOLDER")]
    pub keys: Option<PathBuf>,
    /// Agents on this machine without TLS; goes with loopback addresses only
    #[arg(long, conflicts_with = "keys")]
    pub insecure_loopback: bool,
}

impl SecurityOptions {
    /// Reads the keys.
    pub fn security(&self, side: Side) -> Result<Security> {
        match &self.keys {
            Some(folder) => Pem::read(folder)?.security(side, |name| folder.join(name).display().to_string()),
            None if self.insecure_loopback => Ok(Security::Plain),
            None => Err(wrong(
                "agents and controllers show each other certificates: make them with `tidegate bench agent-keys` and name \
                 the folder with --keys, or say --insecure-loopback where all are on this machine",
            )),
        }
    }
}
