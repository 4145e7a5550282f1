//! An authority of our own, for names that no public one may vouch for: `localhost`, addresses, and what lies
//! below `localhost`, `internal`, `local` and `home.arpa`. Browsers believe it once `tidegate trust` has told the
//! system to.

use super::manager::IssueError;
use super::storage::Storage;
use crate::certificate::{Certificate, Pair};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::net::IpAddr;

/// How long its own certificate is good, days.
const ROOT_LIFE: i64 = 3650;
/// How long those are good that it issues, days: short, since renewing costs nothing.
const LEAF_LIFE: i64 = 7;
const DAY: i64 = 86_400;

/// Whether a name is for the local authority alone.
pub fn is_local(name: &str) -> bool {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let below = [".localhost", ".internal", ".local", ".home.arpa"];
    name.parse::<IpAddr>().is_ok()
        || name.starts_with('[')
        || ["localhost", "internal", "local", "home.arpa"].contains(&name)
        || below.iter().any(|suffix| name.ends_with(suffix))
}

/// Issues certificates, with a key that the storage keeps.
pub struct LocalAuthority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

impl LocalAuthority {
    /// The one that the storage holds; a new one where it holds none, one that has expired, or a key that does not fit. `now` is in
    /// seconds since 1970.
    ///
    /// # Errors
    /// A new authority is needed and cannot be made, or the storage cannot keep it.
    pub fn open(storage: &Storage, now: i64) -> Result<LocalAuthority, IssueError> {
        let (certificate, key) = storage.local_root();
        let kept = || {
            let pair = Pair::read(&certificate, &key).ok()?;
            // Where the process has ended between the two files, they do not fit.
            let about = Certificate::new(&pair).ok()?.about;
            let (root, key) = (String::from_utf8(pair.certificate).ok()?, String::from_utf8(pair.key).ok()?);
            let issuer = Issuer::new(root_params(now)?, KeyPair::from_pem(&key).ok()?);
            (now < about.not_after - LEAF_LIFE * DAY).then_some(LocalAuthority { issuer, root })
        };
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        let made = || -> Result<(CertificateParams, KeyPair, String), rcgen::Error> {
            let (key, params) = (KeyPair::generate()?, root_params(now).ok_or(rcgen::Error::Time)?);
            let root = params.self_signed(&key)?.pem();
            Ok((params, key, root))
        };
        let (params, key, root) =
            made().map_err(|error| IssueError::new(format!("the local authority: {error}")))?;
        storage.keep_local_root(&root, &key.serialize_pem()).map_err(|error| {
            IssueError::new(format!(
                "cannot keep the local authority in {}: {error}",
                storage.root().display()
            ))
        })?;
        Ok(LocalAuthority { issuer: Issuer::new(params, key), root })
    }

    /// Its own certificate, PEM.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// A certificate for a name: chain and key, PEM.
    ///
    /// # Errors
    /// The name can stand in no certificate, the dates are out of range, or the key or the signature cannot
    /// be made.
    pub fn issue(&self, name: &str, now: i64) -> Result<(String, String), IssueError> {
        let made = || -> Result<(String, String), rcgen::Error> {
            let key = KeyPair::generate()?;
            let name = name.trim_start_matches('[').trim_end_matches(']');
            let mut params = CertificateParams::new(vec![name.to_owned()])?;
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.use_authority_key_identifier_extension = true;
            params.not_before = date(now - DAY).ok_or(rcgen::Error::Time)?;
            params.not_after = date(now + LEAF_LIFE * DAY).ok_or(rcgen::Error::Time)?;
            let certificate = params.signed_by(&key, &self.issuer)?;
            Ok((format!("{}{}", certificate.pem(), self.root), key.serialize_pem()))
        };
        made().map_err(|error| IssueError::new(format!("the local authority: {error}")))
    }
}

fn root_params(now: i64) -> Option<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).ok()?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Tidegate Local Authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date(now - DAY)?;
    params.not_after = date(now + ROOT_LIFE * DAY)?;
    Some(params)
}

fn date(seconds: i64) -> Option<time::OffsetDateTime> {
    time::OffsetDateTime::from_unix_timestamp(seconds).ok()
}
