//! `url-keys` and `signed`: URLs that whoever has the key has made.

use super::{Origin, Shared};
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// Padding may be there or not.
const CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, CONFIG);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, CONFIG);

/// Keys of signed URLs: `url-keys "downloads" "/etc/tidegate/url-keys"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UrlKeys {
    /// What `signed` calls them.
    pub name: String,
    /// Where they were read; the master reads them anew when it changes.
    #[serde(with = "crate::path_encoding::path")]
    pub file: PathBuf,
    /// One or two; all are good, and the first one signs.
    pub keys: Shared<Vec<UrlKey>>,
    /// Where it was written.
    pub origin: Origin,
}

/// A key. It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlKey(Vec<u8>);

impl UrlKey {
    /// From base64 in either alphabet.
    pub fn from_base64(text: &str) -> Option<UrlKey> {
        STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok().map(UrlKey)
    }

    /// From its bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> UrlKey {
        UrlKey(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a file has it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.0)
    }
}

impl std::fmt::Debug for UrlKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UrlKey")
    }
}

impl Serialize for UrlKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_base64().serialize(to)
    }
}

impl<'de> Deserialize<'de> for UrlKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UrlKey, D::Error> {
        let text = String::deserialize(from)?;
        UrlKey::from_base64(&text).ok_or_else(|| serde::de::Error::custom("a key is no base64"))
    }
}

/// `signed "downloads" client host`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signed {
    /// By which keys.
    pub keys: String,
    /// Whether a URL is good for one client alone.
    pub by_client: bool,
    /// Whether it is good for the host alone that it was signed for.
    #[serde(default)]
    pub by_host: bool,
    /// Where it was written.
    pub origin: Origin,
}
