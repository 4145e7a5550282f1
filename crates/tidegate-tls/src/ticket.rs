//! Session tickets: keys that rotate on the monotonic clock, shared by all workers, and a scope for each site.
//!
//! Rustls asks for a ticket and gives one back (RFC 8446 section 4.6.1, RFC 5077). The scope of a site is
//! authenticated with every ticket, so that a session of one site never resumes into another (FAULTS 53), nor
//! into the same one after its rules for client certificates have changed, nor after the certificate of the client has
//! expired. Keys travel as bytes: between processes, and to the next program in an upgrade. They are never written to a disk.

use crate::resumed_client;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use rustls::server::danger::ClientCertVerifier;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use thiserror::Error;
use tidegate_io::clock::monotonic_ns;

const NAME: usize = 16;
const SECRET: usize = 32;
/// One key in the form that travels: name, secret, time of birth.
const ENCODED: usize = NAME + SECRET + 8;
/// Keys that are accepted: the one in use and two before it.
const KEPT: usize = 3;
/// Larger tickets are none of ours.
const TICKET_MAX: usize = 16 << 10;

/// How long a key makes tickets unless said otherwise.
pub const ROTATION: Duration = Duration::from_secs(6 * 3600);

/// Why ticket keys could not be made or taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TicketKeysError {
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a session ticket key")]
    Random,
    /// The bytes are no keys.
    #[error("what was handed over is no set of session ticket keys")]
    Malformed,
}

/// The keys of all tickets of a server.
pub struct TicketKeys {
    /// Newest first, never empty.
    keys: RwLock<Arc<[Key]>>,
    rotation: Duration,
    /// Somebody else rotates, and tells.
    is_led: AtomicBool,
    clock: fn() -> u64,
}

#[derive(Clone)]
struct Key {
    name: [u8; NAME],
    secret: [u8; SECRET],
    /// Monotonic, nanoseconds.
    born: u64,
    cipher: Arc<LessSafeKey>,
}

impl TicketKeys {
    /// New keys that rotate by themselves.
    ///
    /// # Errors
    /// [`TicketKeysError::Random`]: the system gave no random bytes.
    pub fn new(rotation: Duration) -> Result<TicketKeys, TicketKeysError> {
        TicketKeys::with_clock(rotation, monotonic_ns)
    }

    /// New keys on a clock of the caller's: monotonic, nanoseconds.
    ///
    /// # Errors
    /// [`TicketKeysError::Random`]: the system gave no random bytes.
    pub fn with_clock(rotation: Duration, clock: fn() -> u64) -> Result<TicketKeys, TicketKeysError> {
        let first: Arc<[Key]> = [Key::random(clock())?].into();
        Ok(TicketKeys { keys: RwLock::new(first), rotation, is_led: AtomicBool::new(false), clock })
    }

    /// Makes a new key where the present one is old enough; whether it did. Tickets call it, and whoever leads
    /// others must, now and then. Keys that came by [`TicketKeys::replace`] are rotated by whoever sent them.
    pub fn rotate_if_due(&self) -> bool {
        if self.is_led.load(Relaxed) {
            return false;
        }
        let now = (self.clock)();
        let is_due = |keys: &[Key]| {
            keys.first().is_none_or(|key| now.saturating_sub(key.born) >= self.rotation.as_nanos() as u64)
        };
        if !is_due(&self.present()) {
            return false;
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if is_due(&keys)
            && let Ok(fresh) = Key::random(now)
        {
            // After a long rest old keys are not merely old, they are over.
            let life = (self.rotation.as_nanos() as u64).saturating_mul(KEPT as u64);
            let kept = keys.iter().filter(|key| now.saturating_sub(key.born) < life);
            *keys = std::iter::once(&fresh).chain(kept).take(KEPT).cloned().collect();
            return true;
        }
        false
    }

    /// The keys as bytes, for another process of this server on this machine. Secret.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(KEPT * ENCODED);
        for key in self.present().iter() {
            bytes.extend_from_slice(&key.name);
            bytes.extend_from_slice(&key.secret);
            bytes.extend_from_slice(&key.born.to_be_bytes());
        }
        bytes
    }

    /// Puts the keys of [`TicketKeys::to_bytes`] in the place of all, and rotates no more by itself. On an error
    /// nothing has changed.
    ///
    /// # Errors
    /// [`TicketKeysError::Malformed`]: the length is not that of one to three keys.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), TicketKeysError> {
        self.inherit(bytes)?;
        self.is_led.store(true, Relaxed);
        Ok(())
    }

    /// Puts the keys of a predecessor in the place of all, and goes on rotating.
    ///
    /// # Errors
    /// [`TicketKeysError::Malformed`]: the length is not that of one to three keys. Nothing has changed then.
    pub fn inherit(&self, bytes: &[u8]) -> Result<(), TicketKeysError> {
        let keys = decode(bytes).ok_or(TicketKeysError::Malformed)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Tickets that are good only where `scope` is the same, and while `clients`, where certificates are asked for, lets in
    /// who has shown one.
    pub(crate) fn scoped(
        self: &Arc<Self>,
        scope: &[u8],
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Arc<dyn ProducesTickets> {
        Arc::new(Scoped { keys: self.clone(), scope: scope.into(), clients })
    }

    fn present(&self) -> Arc<[Key]> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKeys({} keys)", self.present().len())
    }
}

fn decode(bytes: &[u8]) -> Option<Arc<[Key]>> {
    if bytes.is_empty() || bytes.len() > KEPT * ENCODED || !bytes.len().is_multiple_of(ENCODED) {
        return None;
    }
    let key = |encoded: &[u8]| {
        let (name, rest) = encoded.split_first_chunk::<NAME>()?;
        let (secret, rest) = rest.split_first_chunk::<SECRET>()?;
        Key::new(*name, *secret, u64::from_be_bytes(*rest.first_chunk()?))
    };
    bytes.chunks(ENCODED).map(key).collect()
}

impl Key {
    fn random(now: u64) -> Result<Key, TicketKeysError> {
        let (mut name, mut secret) = ([0; NAME], [0; SECRET]);
        let random = SystemRandom::new();
        random
            .fill(&mut name)
            .and_then(|()| random.fill(&mut secret))
            .map_err(|_| TicketKeysError::Random)?;
        Key::new(name, secret, now).ok_or(TicketKeysError::Random)
    }

    fn new(name: [u8; NAME], secret: [u8; SECRET], born: u64) -> Option<Key> {
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &secret).ok()?);
        Some(Key { name, secret, born, cipher: Arc::new(cipher) })
    }
}

/// The tickets of one scope. A ticket is: name of the key, nonce, sealed state.
struct Scoped {
    keys: Arc<TicketKeys>,
    scope: Box<[u8]>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl fmt::Debug for Scoped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tickets of a site")
    }
}

impl ProducesTickets for Scoped {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        let seconds = self.keys.rotation.as_secs().saturating_mul(KEPT as u64 - 1);
        seconds.min(7 * 86_400) as u32 // RFC 8446 section 4.6.1: a week at most
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.rotate_if_due();
        let keys = self.keys.present();
        let key = keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let aad = Aad::from(&self.scope);
        key.cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        let ticket = [&key.name[..], &nonce, &sealed].concat();
        (ticket.len() <= TICKET_MAX).then_some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_MAX {
            return None;
        }
        self.keys.rotate_if_due();
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys.present();
        let key = keys.iter().find(|key| key.name == *name)?; // names are public
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(&self.scope);
        let length =
            key.cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed).ok()?.len();
        sealed.truncate(length);
        let holds = |clients| resumed_client::holds(&sealed, clients, UnixTime::now());
        self.clients.as_deref().is_none_or(holds).then_some(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! { static NOW: Cell<u64> = const { Cell::new(0) }; }

    fn after(time: Duration) {
        NOW.set(NOW.get() + time.as_nanos() as u64);
    }

    fn keys() -> Arc<TicketKeys> {
        Arc::new(TicketKeys::with_clock(Duration::from_secs(100), || NOW.get()).unwrap())
    }

    #[test]
    fn a_ticket_is_good_in_its_scope_alone() {
        let keys = keys();
        let (a, b) = (keys.scoped(b"a", None), keys.scoped(b"b", None));
        let ticket = a.encrypt(b"session").unwrap();
        assert_eq!(a.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(b.decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut broken = ticket.clone();
            broken[at] ^= 1;
            assert_eq!(a.decrypt(&broken), None, "byte {at}");
            assert_eq!(a.decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn keys_rotate_and_end() {
        let keys = keys();
        let tickets = keys.scoped(b"a", None);
        let first = tickets.encrypt(b"s").unwrap();
        assert_eq!(tickets.lifetime(), 200);
        after(Duration::from_secs(99));
        assert_eq!(tickets.encrypt(b"s").unwrap()[..NAME], first[..NAME]);
        after(Duration::from_secs(1));
        assert_ne!(tickets.encrypt(b"s").unwrap()[..NAME], first[..NAME]);
        assert!(tickets.decrypt(&first).is_some());
        after(Duration::from_secs(100));
        assert!(tickets.decrypt(&first).is_some());
        after(Duration::from_secs(100));
        assert!(tickets.decrypt(&first).is_none());
        let last = tickets.encrypt(b"s").unwrap();
        after(Duration::from_secs(10_000));
        assert!(tickets.decrypt(&last).is_none());
    }

    #[test]
    fn keys_travel_as_bytes() {
        let (here, there) = (keys(), keys());
        let ticket = here.scoped(b"a", None).encrypt(b"s").unwrap();
        assert_eq!(there.scoped(b"a", None).decrypt(&ticket), None);
        there.replace(&here.to_bytes()).unwrap();
        assert!(there.scoped(b"a", None).decrypt(&ticket).is_some());
        for bad in [&[][..], &[0; ENCODED - 1], &[0; ENCODED * 4]] {
            assert_eq!(there.replace(bad), Err(TicketKeysError::Malformed));
        }
        assert!(there.scoped(b"a", None).decrypt(&ticket).is_some());
    }
}
