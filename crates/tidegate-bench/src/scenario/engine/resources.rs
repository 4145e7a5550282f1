//! What pages load, known to all users of a worker under a number: paths, and what a server says to tell versions apart.
//!
//! A server may name another path each time, and as long ones as it likes: what finds no place here passes, under a number that
//! one user knows for one page.

use std::collections::HashMap;
use std::rc::Rc;

/// Resources that are known at most. What comes after them is loaded in full each time.
const MOST: usize = 65_536;

/// Bytes of their paths and validators, at most.
const MOST_BYTES: usize = 32 << 20;

/// A resource.
pub(super) struct Resource {
    pub path: Rc<str>,
    /// The field line that asks whether it has changed, of the last answer.
    pub validator: Option<Box<[u8]>>,
    /// What its last answer loads, where it is a page.
    loads: Box<[u32]>,
}

/// The number of what is not known.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// The first number of those that pass.
const PASSING: u32 = 1 << 31;

/// Whether a number is one of a resource that is known to all.
pub(in super::super) fn is_known(number: u32) -> bool {
    number < PASSING
}

#[derive(Default)]
pub(super) struct Resources {
    by_path: HashMap<Rc<str>, u32>,
    all: Vec<Resource>,
    bytes: usize,
}

impl Resources {
    /// The number of a path, a new one where it has none; [`UNKNOWN`] where there are too many.
    pub fn number(&mut self, path: &str) -> u32 {
        if let Some(number) = self.by_path.get(path) {
            return *number;
        }
        if self.all.len() >= MOST || self.bytes.saturating_add(path.len()) > MOST_BYTES {
            return UNKNOWN;
        }
        let path: Rc<str> = path.into();
        let number = self.all.len() as u32;
        self.bytes += path.len();
        self.by_path.insert(path.clone(), number);
        self.all.push(Resource { path, validator: None, loads: Box::default() });
        number
    }

    /// The number of a path that a page loads; one that passes has a place among `passing`.
    pub fn number_or_pass(&mut self, path: &str, passing: &mut Vec<Rc<str>>) -> u32 {
        match self.number(path) {
            UNKNOWN => {
                passing.push(path.into());
                PASSING.saturating_add(passing.len() as u32 - 1)
            }
            number => number,
        }
    }

    pub fn get(&self, number: u32) -> Option<&Resource> {
        self.all.get(number as usize).filter(|_| is_known(number))
    }

    /// The path of a number.
    pub fn path(&self, number: u32, passing: &[Rc<str>]) -> Option<Rc<str>> {
        match number.checked_sub(PASSING) {
            None => self.get(number).map(|resource| resource.path.clone()),
            Some(place) => passing.get(place as usize).cloned(),
        }
    }

    /// What its last answer says.
    pub fn learn(&mut self, number: u32, validator: Option<Box<[u8]>>) {
        let length =
            |validator: &Option<Box<[u8]>>| validator.as_ref().map_or(0, |validator| validator.len());
        if let Some(resource) = self.all.get_mut(number as usize).filter(|_| is_known(number)) {
            let bytes = self.bytes.saturating_sub(length(&resource.validator));
            let validator = validator.filter(|new| bytes.saturating_add(new.len()) <= MOST_BYTES);
            self.bytes = bytes.saturating_add(length(&validator));
            resource.validator = validator;
        }
    }

    /// What the last answer of a page loads, of what is known to all.
    pub fn loads(&mut self, number: u32, resources: impl Iterator<Item = u32>) {
        let length = |loads: &[u32]| size_of_val(loads);
        if let Some(page) = self.all.get_mut(number as usize).filter(|_| is_known(number)) {
            let bytes = self.bytes.saturating_sub(length(&page.loads));
            let loads: Box<[u32]> = resources.filter(|resource| is_known(*resource)).collect();
            page.loads =
                if bytes.saturating_add(length(&loads)) <= MOST_BYTES { loads } else { Box::default() };
            self.bytes = bytes.saturating_add(length(&page.loads));
        }
    }

    /// The same, for who has that page in its cache.
    pub fn loaded_by(&self, number: u32) -> &[u32] {
        self.get(number).map(|page| &*page.loads).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_loads_is_known_with_it() {
        let mut resources = Resources::default();
        let [page, style, picture] = ["/", "/s.css", "/p.png"].map(|path| resources.number(path));
        assert_eq!(resources.loaded_by(page), [0u32; 0]);
        resources.loads(page, [style, picture, PASSING + 1].into_iter());
        assert_eq!(resources.loaded_by(page), [style, picture]);
        let bytes = resources.bytes;
        resources.loads(page, [picture].into_iter());
        assert_eq!((resources.loaded_by(page), resources.bytes), (&[picture][..], bytes - 4));
        // There is no room for more.
        resources.bytes = MOST_BYTES;
        resources.loads(page, [style, picture].into_iter());
        assert_eq!(resources.loaded_by(page), [0u32; 0]);
        assert_eq!(resources.loaded_by(UNKNOWN), [0u32; 0]);
    }

    #[test]
    fn what_finds_no_place_passes() {
        let (mut resources, mut passing) = (Resources::default(), Vec::new());
        for number in 0..MOST {
            assert_eq!(resources.number_or_pass(&format!("/{number}"), &mut passing), number as u32);
        }
        let passes = ["/x", "/y"].map(|path| resources.number_or_pass(path, &mut passing));
        assert_eq!(
            passes.map(|number| resources.path(number, &passing)),
            ["/x", "/y"].map(|path| Some(path.into()))
        );
        assert!(passes.iter().all(|number| !is_known(*number) && resources.get(*number).is_none()));
        assert_eq!(resources.path(7, &passing).as_deref(), Some("/7"));
        assert_eq!((resources.number("/x"), resources.path(UNKNOWN, &passing)), (UNKNOWN, None));
    }

    #[test]
    fn long_names_are_bounded_as_a_whole() {
        let mut resources = Resources::default();
        let long = "x".repeat(MOST_BYTES / 2);
        let number = resources.number(&long);
        resources.learn(number, Some(long.as_bytes().into()));
        assert!(resources.get(number).is_some_and(|known| known.validator.is_some()));
        assert_eq!(resources.number("/y"), UNKNOWN);
        resources.learn(number, Some([long.as_bytes(), b"x"].concat().into()));
        assert!(resources.get(number).is_some_and(|known| known.validator.is_none()));
        assert_eq!(resources.number("/y"), 1);
    }
}
