//! Both ends of a connection, moved by hand, and an authority that signs what a test needs.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tidegate_io::socket::{Received, Stream};
use tidegate_tls::session::BUFFER_MIN;
use tidegate_tls::{
    Certificate, ClientPolicy, Pair, Session, SessionError, SiteConfig, Slot, Terms, TicketKeys, Versions,
};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    pub fn sign_with(&self, names: &[&str], key: &KeyPair) -> Pair {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, names.first().map_or("client", |name| name));
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        Pair {
            certificate_name: "site.pem".into(),
            key_name: "site.key".into(),
            certificate: format!("{}{}", certificate.pem(), self.pem).into_bytes(),
            key: key.serialize_pem().into_bytes(),
        }
    }

    pub fn sign(&self, names: &[&str]) -> Pair {
        self.sign_with(names, &KeyPair::generate().unwrap())
    }

    pub fn slot(&self, names: &[&str]) -> Arc<Slot> {
        Slot::new(Certificate::new(&self.sign(names)).unwrap())
    }
}

pub fn tickets() -> Arc<TicketKeys> {
    Arc::new(TicketKeys::new(Duration::from_secs(3600)).unwrap())
}

pub fn terms(scope: &str, slots: Vec<Arc<Slot>>) -> Terms {
    Terms {
        unnamed: None,
        scope: scope.into(),
        certificates: slots,
        versions: Versions::default(),
        protocols: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        clients: ClientPolicy::None,
        takes_early_data: false,
    }
}

pub fn client_config(authority: &Authority) -> ClientConfig {
    client_config_of(authority, rustls::crypto::aws_lc_rs::default_provider())
}

/// One whose first key share is of this group.
pub fn client_config_preferring(
    authority: &Authority,
    group: &'static dyn rustls::crypto::SupportedKxGroup,
) -> ClientConfig {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups.insert(0, group);
    client_config_of(authority, provider)
}

fn client_config_of(authority: &Authority, provider: rustls::crypto::CryptoProvider) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

pub fn client_config_with(authority: &Authority, pair: &Pair) -> ClientConfig {
    let mut config = client_config(authority);
    let chain = CertificateDer::pem_slice_iter(&pair.certificate).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(&pair.key).unwrap();
    let key = config.crypto_provider().key_provider.load_private_key(key).unwrap();
    let certified = rustls::sign::CertifiedKey::new(chain, key);
    config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    config
}

/// A connection with both its ends.
pub struct Both {
    pub client: ClientConnection,
    pub socket: UnixStream,
    pub session: Session,
    pub stream: Stream,
    pub buffer: Vec<u8>,
    pub sites: Vec<(&'static str, Arc<SiteConfig>)>,
    /// Plaintext that has arrived.
    pub at_server: Vec<u8>,
    pub at_client: Vec<u8>,
    pub is_client_told: bool,
    pub is_server_told: bool,
}

impl Both {
    pub fn new(
        config: &Arc<ClientConfig>,
        name: &'static str,
        sites: &[(&'static str, Arc<SiteConfig>)],
    ) -> Both {
        let (socket, stream) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        Both {
            client: ClientConnection::new(config.clone(), ServerName::try_from(name).unwrap()).unwrap(),
            socket,
            session: Session::new(),
            stream: Stream::new(stream.into()),
            buffer: vec![0; BUFFER_MIN],
            sites: sites.to_vec(),
            at_server: Vec::new(),
            at_client: Vec::new(),
            is_client_told: false,
            is_server_told: false,
        }
    }

    /// The client sends what it has and takes what there is.
    pub fn turn_client(&mut self) -> Result<(), rustls::Error> {
        while self.client.wants_write() {
            match self.client.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => break,
            }
        }
        while let Ok(count) = self.client.read_tls(&mut self.socket) {
            let state = self.client.process_new_packets()?;
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            self.client.reader().read_exact(&mut plain).unwrap();
            self.at_client.extend(plain);
            self.is_client_told |= state.peer_has_closed();
            if count == 0 {
                break;
            }
        }
        while self.client.wants_write() && self.client.write_tls(&mut self.socket).is_ok() {}
        Ok(())
    }

    /// The server takes what there is.
    pub fn turn_server(&mut self) -> Result<(), SessionError> {
        let Both { session, stream, buffer, sites, .. } = self;
        loop {
            let mut choose = |hello: &tidegate_tls::Hello| {
                let name = hello.server_name.as_deref().unwrap_or("");
                sites.iter().find(|(known, _)| *known == name || *known == "*").map(|(_, site)| site.clone())
            };
            match session.receive(stream, buffer, &mut choose)? {
                Received::Bytes { count, .. } => self.at_server.extend_from_slice(&buffer[..count]),
                Received::End => {
                    self.is_server_told = true;
                    break;
                }
                Received::WouldBlock => break,
            }
        }
        session.flush(stream)?;
        Ok(())
    }

    /// Both, until neither has anything to say. The outcome is the server's.
    pub fn settle(&mut self) -> Result<(), SessionError> {
        for _ in 0..8 {
            let client = self.turn_client();
            self.turn_server()?;
            if client.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).unwrap();
    }
}
