//! An HTTP service that the server itself asks: an identity provider.

use super::Origin;
use super::gateway::Gateway;
use serde::{Deserialize, Serialize};

/// Where such a service is: `https://id.example.com/jwks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceAddress {
    /// As it was written.
    pub url: String,
    /// How it is reached.
    pub gateway: Gateway,
    /// What it is asked by: `Host`.
    pub authority: String,
    /// What is asked for, with its query; begins with a slash.
    pub path: String,
}

impl ServiceAddress {
    /// The same, wherever it was written.
    pub(super) fn without_origin(&self) -> ServiceAddress {
        let mut plain = self.clone();
        if let Some(tls) = &mut plain.gateway.tls {
            tls.origin = Origin::default();
        }
        plain
    }
}
