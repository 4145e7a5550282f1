//! What many sites and routes have in common, such as a long list of networks of the top level: once in memory, and
//! once on the way to a server process.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A part of the settings that others have as well.
#[derive(Default, PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are the same one, not only alike.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Shared(Arc::new(value))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// How it travels within [`once`]: whole the first time, then by its number among those that came whole.
#[derive(Serialize, Deserialize)]
enum Form<T> {
    Whole(T),
    Again(usize),
}

thread_local! {
    /// Numbers by address, while settings are written. They stay where they are meanwhile.
    static WRITTEN: RefCell<Option<HashMap<*const (), usize>>> = const { RefCell::new(None) };
    /// Those that have come whole, while settings are read.
    static READ: RefCell<Option<Vec<Arc<dyn Any + Send + Sync>>>> = const { RefCell::new(None) };
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let address: *const () = Arc::as_ptr(&self.0).cast();
        match WRITTEN.with_borrow(|written| written.as_ref().map(|written| written.get(&address).copied())) {
            None => self.0.serialize(to),
            Some(Some(number)) => Form::<&T>::Again(number).serialize(to),
            Some(None) => {
                let whole = Form::Whole(&*self.0).serialize(to)?;
                // What it is made of has its numbers first, as whoever reads meets the ends.
                WRITTEN.with_borrow_mut(|written| {
                    let written = written.get_or_insert_default();
                    let next = written.len();
                    written.insert(address, next);
                });
                Ok(whole)
            }
        }
    }
}

impl<'de, T: Deserialize<'de> + Any + Send + Sync> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if READ.with_borrow(Option::is_none) {
            return T::deserialize(from).map(Self::from);
        }
        match Form::<T>::deserialize(from)? {
            Form::Whole(value) => {
                let value = Arc::new(value);
                READ.with_borrow_mut(|read| read.get_or_insert_default().push(value.clone()));
                Ok(Shared(value))
            }
            Form::Again(number) => {
                let found = READ.with_borrow(|read| read.as_ref()?.get(number)?.clone().downcast().ok());
                let unknown = || serde::de::Error::custom(format_args!("there is no shared part {number}"));
                found.map(Shared).ok_or_else(unknown)
            }
        }
    }
}

/// For `#[serde(with = "...")]` on settings that travel: whatever they share is sent once.
pub mod once {
    use super::{Deserialize, Deserializer, READ, Serialize, Serializer, WRITTEN};
    use std::cell::RefCell;
    use std::thread::LocalKey;

    /// Ends at the end of the settings, also where they are broken.
    struct Scope<T: Default + 'static>(&'static LocalKey<RefCell<T>>);

    impl<T: Default> Drop for Scope<T> {
        fn drop(&mut self) {
            self.0.take();
        }
    }

    /// Writes.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Serialize, S: Serializer>(settings: &T, to: S) -> Result<S::Ok, S::Error> {
        WRITTEN.set(Some(Default::default()));
        let _scope = Scope(&WRITTEN);
        settings.serialize(to)
    }

    /// Reads.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        READ.set(Some(Vec::new()));
        let _scope = Scope(&READ);
        T::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Parts(#[serde(with = "once")] (Vec<Shared<String>>, Shared<u8>));

    #[test]
    fn what_is_shared_travels_once_and_arrives_shared() {
        let (long, short) = (Shared::from("long".repeat(100)), Shared::from("short".to_owned()));
        let parts = Parts((vec![long.clone(), short.clone(), long.clone(), short, long], 7.into()));
        for _ in 0..2 {
            let json = serde_json::to_string(&parts).unwrap();
            assert!(json.len() < 600, "{json}");
            let there: Parts = serde_json::from_str(&json).unwrap();
            assert_eq!(there, parts);
            assert!(there.0.0[0].is_same(&there.0.0[4]) && !there.0.0[0].is_same(&there.0.0[1]));
        }
        // By itself it is what it is.
        assert_eq!(serde_json::to_string(&parts.0.1).unwrap(), "7");
        assert_eq!(*serde_json::from_str::<Shared<u8>>("7").unwrap(), 7);
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Nested(String, Vec<Shared<Nested>>);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Whole(#[serde(with = "once")] Vec<Shared<Nested>>);

    #[test]
    fn what_is_shared_within_what_is_shared_stays_itself() {
        let nested = |name: &str, inner: &[&Shared<Nested>]| {
            Shared::from(Nested(name.to_owned(), inner.iter().map(|inner| (*inner).clone()).collect()))
        };
        let a = nested("a", &[]);
        let b = nested("b", &[&a, &a]);
        let c = nested("c", &[&b, &a]);
        let whole = Whole(vec![c.clone(), b.clone(), a, nested("d", &[&c]), b, c]);
        let there: Whole = serde_json::from_str(&serde_json::to_string(&whole).unwrap()).unwrap();
        assert_eq!(there, whole);
        assert!(there.0[0].is_same(&there.0[5]) && there.0[0].1[0].is_same(&there.0[4]));
    }

    #[test]
    fn what_was_not_sent_cannot_be_meant() {
        for broken in [
            r#"[[{"Again":0}],{"Whole":7}]"#,
            r#"[[{"Whole":"a"},{"Again":1}],{"Whole":7}]"#,
            r#"[[{"Whole":"a"}],{"Again":0}]"#, // another type
            r#"[["a"],7]"#,
        ] {
            assert!(serde_json::from_str::<Parts>(broken).is_err(), "{broken}");
        }
    }
}
