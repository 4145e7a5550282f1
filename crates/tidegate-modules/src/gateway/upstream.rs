//! Which member of an application gets a request: the seam between the protocols and pools, groups and plain
//! addresses.

use super::board::{Board, Lease, Pool};
use super::places::{Place, PlaceLimits, Places, Refused};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tidegate_config::settings::gateway::{Destination, Gateway};
use tidegate_io::connect::Address;

/// Where the requests of a route go.
pub enum Upstream {
    /// One address, with as many requests at once as are set.
    Address {
        /// Where it is.
        address: Address,
        /// The queue before it, shared by the workers; `None` where nothing bounds it.
        places: Option<Arc<Places>>,
    },
    /// A pool that the server runs.
    Pool(Arc<Pool>),
}

/// A member that takes a request; its place is free again when this is dropped.
pub struct Pick(Held);

enum Held {
    Nothing,
    Place { _place: Place },
    Lease(Lease),
}

impl Pick {
    /// It has not answered until the deadline: where it is a process of ours, it is ended.
    pub fn hung(self) {
        if let Held::Lease(lease) = self.0 {
            lease.hung();
        }
    }

    /// Where to connect; `None` is the one address of the upstream.
    pub fn address(&self) -> Option<&Address> {
        match &self.0 {
            Held::Lease(lease) => Some(lease.address()),
            Held::Nothing | Held::Place { .. } => None,
        }
    }
}

/// The queues before plain addresses, one for each address and set of bounds, so that the workers, and the
/// routes that say the same, share it.
type Queues = HashMap<(Destination, Bounds), Weak<Places>>;

/// Places, length and age.
type Bounds = (usize, usize, Duration);

static QUEUES: Mutex<Option<Queues>> = Mutex::new(None);

impl Upstream {
    /// The upstream that settings name.
    pub fn of(settings: &Gateway, board: &Board) -> Upstream {
        let address = match &settings.to {
            Destination::Named(name) => return Upstream::Pool(board.pool(name)),
            Destination::Tcp(address) => Address::Tcp(*address),
            Destination::Unix(path) => Address::Unix(path.clone()),
        };
        let places = settings.connections.map(|connections| {
            let limits = PlaceLimits {
                places: connections as usize,
                queue_length: settings.queue_length as usize,
                queue_age: Some(settings.queue_age),
            };
            let key = (settings.to.clone(), (limits.places, limits.queue_length, settings.queue_age));
            let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
            let queues = queues.get_or_insert_default();
            queues.retain(|_, places| places.strong_count() > 0);
            queues.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
                let places = Places::new(limits);
                queues.insert(key, Arc::downgrade(&places));
                places
            })
        });
        Upstream::Address { address, places }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// The queue is full, the wait was too long, or the application is down.
    pub async fn pick(&self) -> Result<Pick, Refused> {
        let held = match self {
            Upstream::Address { places: None, .. } => Held::Nothing,
            Upstream::Address { places: Some(places), .. } => match places.try_take() {
                Some(place) => Held::Place { _place: place },
                None => Held::Place { _place: places.take().await? },
            },
            Upstream::Pool(pool) => Held::Lease(pool.take().await?),
        };
        Ok(Pick(held))
    }

    /// The one address, where there is one.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Upstream::Address { address, .. } => Some(address),
            Upstream::Pool(_) => None,
        }
    }
}
