//! Who stands in password files.

use std::collections::HashMap;
use std::sync::Arc;
use tidegate_config::settings::{Account, Shared};

/// Accounts as some files had them.
pub(super) struct Accounts {
    list: Shared<Vec<Account>>,
    /// Place in the list, by name.
    places: HashMap<String, usize>,
}

impl Accounts {
    pub fn new(list: &Shared<Vec<Account>>) -> Arc<Accounts> {
        let places = list.iter().enumerate().map(|(place, account)| (account.name.clone(), place));
        Arc::new(Accounts { places: places.collect(), list: list.clone() })
    }

    pub fn find(&self, name: &str) -> Option<&Account> {
        self.places.get(name).and_then(|place| self.list.get(*place))
    }

    /// Whether a directory's spelling of a name stands here, in whatever case: names of directories are the same in any.
    pub fn has_spelling(&self, name: &str) -> bool {
        let folded = |name: &str| name.to_lowercase();
        self.places.contains_key(name) || {
            let sought = folded(name);
            self.list.iter().any(|account| folded(&account.name) == sought)
        }
    }

    pub fn first(&self) -> Option<&Account> {
        self.list.first()
    }

    /// Whether there are those of other files, and no others.
    pub fn has_the_names_of(&self, other: &Accounts) -> bool {
        self.places.len() == other.places.len()
            && self.places.keys().all(|name| other.places.contains_key(name))
    }
}
