//! How paths travel from the master to the server processes: as text where they are text, else as bytes, so
//! that a folder whose name is no UTF-8 is served all the same.
//!
//! Used by the derives in `settings`, by `#[serde(with = "...")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl Form {
    fn of(path: &std::path::Path) -> Form {
        match path.to_str() {
            Some(text) => Form::Text(text.to_owned()),
            None => Form::Bytes(path.as_os_str().as_bytes().to_owned()),
        }
    }

    fn path(self) -> PathBuf {
        match self {
            Form::Text(text) => text.into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// A path.
pub mod path {
    use super::{Deserialize, Deserializer, Form, PathBuf, Serialize, Serializer};

    /// As text, or as bytes.
    ///
    /// # Errors
    /// What the serializer says.
    pub fn serialize<S: Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
        Form::of(path).serialize(to)
    }

    /// From either.
    ///
    /// # Errors
    /// It is neither text nor a list of bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Form::deserialize(from).map(Form::path)
    }
}

/// A path, or none.
pub mod optional_path {
    use super::{Deserialize, Deserializer, Form, PathBuf, Serialize, Serializer};

    /// As text, or as bytes.
    ///
    /// # Errors
    /// What the serializer says.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Form::of).serialize(to)
    }

    /// From either.
    ///
    /// # Errors
    /// There is something that is neither text nor a list of bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Form>::deserialize(from)?.map(Form::path))
    }
}

/// Several.
pub mod paths {
    use super::{Deserialize, Deserializer, Form, PathBuf, Serialize, Serializer};

    /// As text, or as bytes.
    ///
    /// # Errors
    /// What the serializer says.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        paths.iter().map(|path| Form::of(path)).collect::<Vec<_>>().serialize(to)
    }

    /// From either.
    ///
    /// # Errors
    /// It is no list, or something in it is neither text nor a list of bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<Form>::deserialize(from)?.into_iter().map(Form::path).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    #[test]
    fn settings_survive_the_way() {
        let text = "listen \"127.0.0.1:80\" { backlog 9 }\nlisten \"unix:/s\" { mode \"0660\" }\n\
            user \"www-data\" group=\"adm\"\npid-file \"p\"\naccess-log \"stderr\" format=json\n\
            site \"a.b\" \"*.c\" { root \"/\"; listing; try \"{path}\" \"=404\"; compress }\n\
            site { respond 200 \"x\"; route \"/r\" { redirect \"/\"; allow \"10.0.0.0/8\" } }\n";
        let loaded = crate::load_str("a", text, Path::new("/"), &crate::ProcessEnvironment);
        let mut settings = loaded.settings.expect("sound settings");
        let odd = Path::new("/").join(OsString::from_vec(b"a\xff".into()));
        settings.control = Some(odd.clone());
        let json = serde_json::to_vec(&settings).expect("settings are data");
        let there: Settings = serde_json::from_slice(&json).expect("and back");
        assert_eq!(there, settings);
        assert_eq!(there.control, Some(odd));
    }
}
