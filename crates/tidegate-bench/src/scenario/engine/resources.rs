//! What pages load, known to all users of a worker under a number: paths, and what a server says to tell versions apart.

use std::collections::HashMap;
use std::rc::Rc;

/// Resources that are known at most. What comes after them is loaded in full each time.
const MOST: usize = 65_536;

/// A resource.
pub(super) struct Resource {
    pub path: Rc<str>,
    /// The field line that asks whether it has changed, of the last answer.
    pub validator: Option<Box<[u8]>>,
}

/// The number of what is not known.
pub(super) const UNKNOWN: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Resources {
    by_path: HashMap<Rc<str>, u32>,
    all: Vec<Resource>,
}

impl Resources {
    /// The number of a path, a new one where it has none; [`UNKNOWN`] where there are too many.
    pub fn number(&mut self, path: &str) -> u32 {
        if let Some(number) = self.by_path.get(path) {
            return *number;
        }
        if self.all.len() >= MOST {
            return UNKNOWN;
        }
        let path: Rc<str> = path.into();
        let number = self.all.len() as u32;
        self.by_path.insert(path.clone(), number);
        self.all.push(Resource { path, validator: None });
        number
    }

    pub fn get(&self, number: u32) -> Option<&Resource> {
        self.all.get(number as usize)
    }

    /// What its last answer says.
    pub fn learn(&mut self, number: u32, validator: Option<Box<[u8]>>) {
        if let Some(resource) = self.all.get_mut(number as usize) {
            resource.validator = validator;
        }
    }
}
