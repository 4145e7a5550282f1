//! What this server has a browser keep: sealed (AEAD, AES-256-GCM), so that nobody else can read it or make one.
//!
//! Each text has a key of its own, which comes of the key of the settings, of what the text is for, and of random bytes that go with
//! it: however many are sealed, no key is used for two of them.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_config::settings::UrlKey;

/// No other use of a key makes the same of it.
const DOMAIN: &[u8] = b"tidegate openid 1";
/// Random bytes in front of what is sealed.
const SALT: usize = 24;

/// The keys of some users, the one that seals first.
pub struct Seals(Vec<hmac::Key>);

/// Why something is not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    /// The settings have none.
    #[error("there is no key to seal it with")]
    NoKey,
    /// The system gives none.
    #[error("the system has no random numbers")]
    NoRandomNumbers,
    /// No browser would keep it.
    #[error("it is longer than a cookie can be")]
    TooLong,
}

/// What a text is for: no other purpose opens it.
#[derive(Debug, Clone, Copy)]
pub struct Purpose<'p>(pub &'p [&'p str]);

impl Seals {
    /// Of settings.
    pub fn new(keys: &[UrlKey]) -> Seals {
        Seals(keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key.bytes())).collect())
    }

    /// A sealed text, of letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// There is no key, there are no random numbers, or it is longer than the cipher takes.
    pub fn seal(&self, purpose: Purpose<'_>, plain: &[u8]) -> Result<String, Unsealed> {
        let key = self.0.first().ok_or(Unsealed::NoKey)?;
        let mut salt = [0; SALT];
        rand::fill(&mut salt).map_err(|_| Unsealed::NoRandomNumbers)?;
        let mut sealed = plain.to_vec();
        let key = cipher(key, purpose, &salt).ok_or(Unsealed::NoKey)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut sealed)
            .map_err(|_| Unsealed::TooLong)?;
        Ok(URL_SAFE_NO_PAD.encode([&salt[..], &sealed].concat()))
    }

    /// What was sealed for a purpose, with one of the keys.
    pub fn open(&self, purpose: Purpose<'_>, text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (salt, sealed) = bytes.split_at_checked(SALT)?;
        self.0.iter().find_map(|key| {
            let mut sealed = sealed.to_vec();
            let key = cipher(key, purpose, salt)?;
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            key.open_in_place(nonce, Aad::empty(), &mut sealed).ok().map(|plain| plain.to_vec())
        })
    }
}

/// The key of one text. Each part of a purpose goes with its length, so that no two purposes read as one.
fn cipher(key: &hmac::Key, Purpose(parts): Purpose<'_>, salt: &[u8]) -> Option<LessSafeKey> {
    let mut context = hmac::Context::with_key(key);
    context.update(DOMAIN);
    for part in parts.iter().map(|part| part.as_bytes()).chain([salt]) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let key = UnboundKey::new(&AES_256_GCM, context.sign().as_ref()).ok()?;
    Some(LessSafeKey::new(key))
}

/// Random text of so many bytes.
///
/// # Errors
/// The system has no random numbers.
pub fn random<const N: usize>() -> Result<String, Unsealed> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| Unsealed::NoRandomNumbers)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> UrlKey {
        UrlKey::from_bytes(vec![byte; 32])
    }

    #[test]
    fn what_is_sealed_is_opened_for_its_purpose_alone() {
        let (old, new) = (Seals::new(&[key(1)]), Seals::new(&[key(2), key(1)]));
        let purpose = Purpose(&["session", "corp"]);
        let sealed = old.seal(purpose, b"anna").unwrap();
        assert_ne!(sealed, old.seal(purpose, b"anna").unwrap());
        assert_eq!(
            new.open(purpose, &sealed).as_deref(),
            Some(&b"anna"[..]),
            "the key before is good as well"
        );
        assert!(Seals::new(&[key(2)]).open(purpose, &sealed).is_none());
        for other in [&["session", "corq"][..], &["sessionc", "orp"], &["session"], &["session", "corp", ""]]
        {
            assert!(old.open(Purpose(other), &sealed).is_none(), "{other:?}");
        }
        assert_eq!(Seals::new(&[]).seal(purpose, b""), Err(Unsealed::NoKey));
    }

    #[test]
    fn no_byte_can_be_changed_or_left_out() {
        let seals = Seals::new(&[key(1)]);
        let purpose = Purpose(&["session"]);
        let sealed = seals.seal(purpose, b"anna").unwrap();
        for at in 0..sealed.len() {
            let mut other = sealed.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert!(seals.open(purpose, std::str::from_utf8(&other).unwrap()).is_none(), "{at}");
            assert!(seals.open(purpose, &sealed[..at]).is_none(), "{at}");
        }
        for text in ["", "=", "\u{e4}", "AAAA"] {
            assert!(seals.open(purpose, text).is_none());
        }
    }
}
