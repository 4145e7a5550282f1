//! How long and how a stored response may be used (RFC 9111 sections 4.2 and 5.2.2), as plain data.
//!
//! Made by `storing`, kept by the store in memory and on disk, read by `serving` for every hit.

/// Where a lifetime comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LifetimeSource {
    /// There is none: the response is stored to be validated at each use.
    None,
    /// A targeted field (RFC 9213).
    Targeted,
    /// `s-maxage`.
    SharedMaxAge,
    /// `max-age`.
    MaxAge,
    /// `Expires` less `Date`.
    Expires,
    /// The settings.
    Default,
    /// A tenth of the time since `Last-Modified`.
    Heuristic,
}

impl LifetimeSource {
    const ALL: [LifetimeSource; 7] = [
        LifetimeSource::None,
        LifetimeSource::Targeted,
        LifetimeSource::SharedMaxAge,
        LifetimeSource::MaxAge,
        LifetimeSource::Expires,
        LifetimeSource::Default,
        LifetimeSource::Heuristic,
    ];

    /// As status reports write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            LifetimeSource::None => "none",
            LifetimeSource::Targeted => "targeted field",
            LifetimeSource::SharedMaxAge => "s-maxage",
            LifetimeSource::MaxAge => "max-age",
            LifetimeSource::Expires => "Expires",
            LifetimeSource::Default => "default-lifetime",
            LifetimeSource::Heuristic => "heuristic",
        }
    }
}

/// How long and how a stored response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// When its head came, Unix seconds.
    pub answered: i64,
    /// How old it was then, in seconds (section 4.2.3).
    pub initial_age: u32,
    /// How long it is fresh, in seconds from its making (section 4.2.1); at most 2^31.
    pub lifetime: u32,
    /// Seconds behind the lifetime; 0 where a directive forbids it.
    pub stale_while_revalidate: u32,
    /// Seconds behind the lifetime; 0 where a directive forbids it.
    pub stale_if_error: u32,
    /// What says so.
    pub source: LifetimeSource,
    flags: u8,
}

const MUST_REVALIDATE: u8 = 1;
const NO_CACHE: u8 = 2;
const IMMUTABLE: u8 = 4;
const HAS_VALIDATOR: u8 = 8;
const IS_SHARED: u8 = 16;
const ALL_FLAGS: u8 = 31;

/// The claims of a response beside its lifetime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) must_revalidate: bool,
    pub(super) no_cache: bool,
    pub(super) immutable: bool,
    pub(super) has_validator: bool,
    pub(super) is_shared: bool,
}

impl Freshness {
    /// The length of [`Freshness::to_bytes`].
    pub const ENCODED: usize = 26;

    pub(super) fn new(answered: i64, initial_age: u32, claims: Claims) -> Freshness {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        Freshness {
            answered,
            initial_age,
            lifetime: 0,
            stale_while_revalidate: 0,
            stale_if_error: 0,
            source: LifetimeSource::None,
            flags: flag(claims.must_revalidate, MUST_REVALIDATE)
                | flag(claims.no_cache, NO_CACHE)
                | flag(claims.immutable, IMMUTABLE)
                | flag(claims.has_validator, HAS_VALIDATOR)
                | flag(claims.is_shared, IS_SHARED),
        }
    }

    /// Once stale, never to be used without asking the origin: `must-revalidate`, `proxy-revalidate`,
    /// `s-maxage`.
    #[inline]
    pub const fn must_revalidate(&self) -> bool {
        self.flags & MUST_REVALIDATE != 0
    }

    /// Never to be used without asking the origin.
    #[inline]
    pub const fn no_cache(&self) -> bool {
        self.flags & NO_CACHE != 0
    }

    /// Does not change while it is fresh (RFC 8246).
    #[inline]
    pub const fn is_immutable(&self) -> bool {
        self.flags & IMMUTABLE != 0
    }

    /// Whether the origin can be asked if it has changed.
    #[inline]
    pub const fn has_validator(&self) -> bool {
        self.flags & HAS_VALIDATOR != 0
    }

    /// Whether the response says that it is for shared caches: `public`, `s-maxage` or `must-revalidate`. Only
    /// such are for requests with `Authorization`.
    #[inline]
    pub const fn is_shared(&self) -> bool {
        self.flags & IS_SHARED != 0
    }

    /// How old it is, in seconds (section 4.2.3). A clock that goes back makes nothing younger than it came.
    #[inline]
    pub fn age(&self, now: i64) -> u32 {
        let resident = u32::try_from(now.saturating_sub(self.answered).max(0)).unwrap_or(u32::MAX);
        self.initial_age.saturating_add(resident)
    }

    /// How many seconds it is still fresh; 0 and less: stale.
    #[inline]
    pub fn ttl(&self, now: i64) -> i64 {
        i64::from(self.lifetime) - i64::from(self.age(now))
    }

    /// The same, stale from `now` on: what a soft purge leaves.
    #[must_use]
    pub fn expired(mut self, now: i64) -> Freshness {
        self.lifetime = self.lifetime.min(self.age(now));
        self
    }

    /// For a disk. See [`Freshness::from_bytes`].
    pub fn to_bytes(&self) -> [u8; Freshness::ENCODED] {
        let mut bytes = [0; Freshness::ENCODED];
        bytes[..8].copy_from_slice(&self.answered.to_le_bytes());
        let seconds = [self.initial_age, self.lifetime, self.stale_while_revalidate, self.stale_if_error];
        for (at, number) in seconds.iter().enumerate() {
            bytes[8 + 4 * at..12 + 4 * at].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24] = self.source as u8;
        bytes[25] = self.flags;
        bytes
    }

    /// The inverse; `None` where the bytes are none that [`Freshness::to_bytes`] has written.
    pub fn from_bytes(bytes: &[u8]) -> Option<Freshness> {
        let bytes: &[u8; Freshness::ENCODED] = bytes.try_into().ok()?;
        let (answered, rest) = bytes.split_first_chunk::<8>()?;
        let (seconds, _) = rest.as_chunks::<4>();
        let seconds = |at: usize| seconds.get(at).copied().map(u32::from_le_bytes);
        if bytes[25] & !ALL_FLAGS != 0 {
            return None;
        }
        Some(Freshness {
            answered: i64::from_le_bytes(*answered),
            initial_age: seconds(0)?,
            lifetime: seconds(1)?,
            stale_while_revalidate: seconds(2)?,
            stale_if_error: seconds(3)?,
            source: *LifetimeSource::ALL.get(usize::from(bytes[24]))?,
            flags: bytes[25],
        })
    }
}
