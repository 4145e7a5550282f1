//! Who was there lately: clients told apart in a little memory, where it matters that they are several.

use std::net::IpAddr;

/// Addresses that are remembered.
const KEPT: usize = 64;

/// The last different addresses of a worker.
#[derive(Debug, Default)]
pub(crate) struct RecentAddresses {
    addresses: Vec<IpAddr>,
    /// The one that goes for the next.
    oldest: usize,
}

impl RecentAddresses {
    /// Whether none of the last ones was this, which is one of them from now on.
    #[cold]
    pub(crate) fn is_new(&mut self, address: IpAddr) -> bool {
        if self.addresses.contains(&address) {
            return false;
        }
        let is_full = self.addresses.len() >= KEPT;
        match self.addresses.get_mut(self.oldest).filter(|_| is_full) {
            Some(place) => {
                *place = address;
                self.oldest = (self.oldest + 1) % KEPT;
            }
            None => self.addresses.push(address),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_that_comes_again_is_not_new_until_many_others_have_come() {
        let mut recent = RecentAddresses::default();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        assert!(recent.is_new(address(0)) && !recent.is_new(address(0)));
        assert!((1..KEPT as u32).all(|number| recent.is_new(address(number))));
        assert!(!recent.is_new(address(0)));
        assert!(recent.is_new(address(1_000)) && recent.is_new(address(0)), "the oldest has gone for it");
        assert!(!recent.is_new(address(2)) && recent.addresses.len() == KEPT);
    }
}
