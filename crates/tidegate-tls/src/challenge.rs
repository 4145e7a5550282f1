//! Certificates for the TLS-ALPN-01 challenge (RFC 8737): an authority connects, offers `acme-tls/1` alone and
//! wants to see a certificate that only who controls the account could have made.

use crate::certificate::{Certificate, CertificateError, Pair};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The challenges under way, by host name. Shared by all workers.
#[derive(Debug, Default)]
pub struct Challenges {
    configs: RwLock<HashMap<String, Arc<ServerConfig>>>,
}

impl Challenges {
    /// Answers for a name from now on.
    ///
    /// # Errors
    /// The pair is refused by [`Certificate::new`], or the configuration by rustls.
    pub fn set(&self, name: &str, pair: &Pair) -> Result<(), CertificateError> {
        let certificate = Certificate::new(pair)?;
        let builder = ServerConfig::builder_with_provider(crate::provider());
        let unusable = |error: rustls::Error| CertificateError::UnusableKey {
            path: pair.key_name.clone(),
            why: error.to_string(),
        };
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Only(certificate.key)));
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let mut configs = self.configs.write().unwrap_or_else(PoisonError::into_inner);
        configs.insert(name.to_ascii_lowercase(), Arc::new(config));
        Ok(())
    }

    /// The challenge is over.
    pub fn remove(&self, name: &str) {
        let mut configs = self.configs.write().unwrap_or_else(PoisonError::into_inner);
        configs.remove(&name.to_ascii_lowercase());
    }

    /// What answers for a name.
    pub fn find(&self, name: &str) -> Option<Arc<ServerConfig>> {
        self.configs.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}
