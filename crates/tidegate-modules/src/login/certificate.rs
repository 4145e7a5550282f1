//! `require certificate`: who of those who have shown a client certificate goes on, by what it calls them.
//!
//! The certificate has been verified by the handshake, against the authorities of the site that it was made for; a request to
//! a site with others is answered 421 before it comes here. A session that is resumed brings the same certificate along.

use std::sync::Arc;
use tidegate_config::settings::{
    CertificateName, CertificateRequirement, Identification, Shared, TextPattern,
};
use tidegate_core::user::User;
use tidegate_core::{Exchange, Gate, Verdict, answer};
use tidegate_http::Status;
use tidegate_tls::{AlternativeName, ClientIdentity};

/// Names of a client that `explain` tells.
const SAID: usize = 10;

/// Lets in whom `require certificate` names.
pub struct CertificateGate {
    requirements: Vec<Shared<CertificateRequirement>>,
}

impl CertificateGate {
    /// The gate of a route that requires something of certificates.
    pub fn new(identification: &Identification) -> CertificateGate {
        CertificateGate { requirements: identification.certificates.clone() }
    }
}

impl Gate for CertificateGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let mut name = None;
        for required in &self.requirements {
            match exchange
                .client()
                .ok_or(None)
                .and_then(|client| fitting(required, client).ok_or(Some(client)))
            {
                Ok(found) => name = name.or(Some(found)),
                Err(client) => {
                    let who = match client {
                        Some(client) => format!("`{}`{} is none of whom ", client.subject, unread(client)),
                        None => "the client has shown no certificate, and some are whom ".to_owned(),
                    };
                    let why = format!("{who}`{}` ({}) lets in", **required, required.origin);
                    let response = answer::refused(exchange, Status::FORBIDDEN, why);
                    answer::remedy(|| remedy(client));
                    return Verdict::Refuse(response);
                }
            }
        }
        if let Some(name) = name {
            // A `login` behind this one says it anew, also where the request has passed it before.
            let user = Arc::new(User { name, groups: Vec::new(), unlisted: None });
            exchange.identify().certify(user);
        }
        Verdict::Pass
    }
}

/// What is said of a certificate with more names than are looked at.
fn unread(client: &ClientIdentity) -> String {
    match client.further_names {
        0 => String::new(),
        more => {
            format!(", of whose {} names the first {} count,", client.names.len() + more, client.names.len())
        }
    }
}

fn remedy(client: Option<&ClientIdentity>) -> String {
    match client {
        None => "to see what somebody gets who has shown one, say so: `--certificate FILE`".to_owned(),
        Some(client) => {
            let names: Vec<String> =
                names_of(client).take(SAID).map(|name| format!("`\"{name}\"`")).collect();
            format!("to let it in, add one of its names to that line: {}", names.join(", "))
        }
    }
}

/// What a client is called, as `require certificate` would have it.
fn names_of(client: &ClientIdentity) -> impl Iterator<Item = String> {
    let alternative = client.names.iter().map(|name| match name {
        AlternativeName::Dns(name) => format!("dns:{name}"),
        AlternativeName::Email(name) => format!("email:{name}"),
        AlternativeName::Uri(name) => format!("uri:{name}"),
    });
    alternative.chain([format!("subject:{}", client.subject)])
}

/// The name by which a client fits.
fn fitting(required: &CertificateRequirement, client: &ClientIdentity) -> Option<String> {
    if required.issuer.as_ref().is_some_and(|issuer| !issuer.fits(&client.issuer)) {
        return None;
    }
    if required.names.is_empty() {
        return Some(client.subject.clone());
    }
    let among = |pattern: &TextPattern, is_kind: fn(&AlternativeName) -> bool| {
        let mut names = client.names.iter().filter(|name| is_kind(name)).map(AlternativeName::as_str);
        names.find(|name| pattern.fits(name.as_bytes())).map(str::to_owned)
    };
    required.names.iter().find_map(|name| match name {
        CertificateName::CommonName(pattern) => {
            client.common_name.clone().filter(|name| pattern.fits(name.as_bytes()))
        }
        CertificateName::Dns(pattern) => among(pattern, |name| matches!(name, AlternativeName::Dns(_))),
        CertificateName::Email(pattern) => among(pattern, |name| matches!(name, AlternativeName::Email(_))),
        CertificateName::Uri(pattern) => among(pattern, |name| matches!(name, AlternativeName::Uri(_))),
        CertificateName::Fingerprint(digits) => {
            (*digits == client.fingerprint).then(|| client.subject.clone())
        }
        CertificateName::Subject(pattern) => pattern.fits(&client.subject).then(|| client.subject.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientIdentity {
        ClientIdentity {
            subject: "CN=anna,O=Corp".into(),
            issuer: "CN=Corp CA".into(),
            common_name: Some("anna".into()),
            names: vec![
                AlternativeName::Dns("host.corp.example".into()),
                AlternativeName::Email("anna@example.com".into()),
                AlternativeName::Uri("spiffe://corp/anna".into()),
            ],
            further_names: 0,
            serial: "01".into(),
            fingerprint: "ab".repeat(32),
            not_after: 0,
            certificate: Vec::new(),
        }
    }

    #[test]
    fn by_any_of_its_names_and_their_kind() {
        let fingerprint = format!("fingerprint:{}", "AB:".repeat(31) + "AB");
        for (names, issuer, expected) in [
            (&[][..], None, Some("CN=anna,O=Corp")),
            (&["cn:anna"], None, Some("anna")),
            (&["cn:a*", "dns:x"], None, Some("anna")),
            (&["dns:*.Corp.example"], None, Some("host.corp.example")),
            (&["email:*@EXAMPLE.com"], None, Some("anna@example.com")),
            (&["uri:spiffe://corp/*"], None, Some("spiffe://corp/anna")),
            (&["subject:CN=anna,*"], None, Some("CN=anna,O=Corp")),
            (&[fingerprint.as_str()], None, Some("CN=anna,O=Corp")),
            (&["cn:anna"], Some("CN=Corp CA"), Some("anna")),
            (&["cn:anna"], Some("CN=Other CA"), None),
            // A name of one kind is none of another.
            (&["dns:anna@example.com"], None, None),
            (&["email:host.corp.example"], None, None),
            (&["uri:*.corp.example"], None, None),
            (&["cn:anna@example.com"], None, None),
            (&["dns:*.corp.example.evil"], None, None),
        ] {
            let required = CertificateRequirement {
                names: names.iter().map(|name| CertificateName::read(name).unwrap()).collect(),
                issuer: issuer.map(|issuer: &str| issuer.to_owned().try_into().unwrap()),
                origin: Default::default(),
            };
            assert_eq!(fitting(&required, &client()).as_deref(), expected, "{required}");
        }
    }
}
