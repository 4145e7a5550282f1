//! What the master and the process of the admin API say to each other, over a [`Link`](crate::link::Link).
//!
//! The process asks, the master does; it takes nothing else from there than a [`Command`], and no frame longer than
//! [`FRAME_MAX`].

use crate::link::{Identity, Message};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The most bytes that the content of a request may have.
pub const CONTENT_MAX: usize = 4 << 20;
/// The longest frame that the master takes from the process: the texts of a request, as JSON once more.
const FRAME_MAX: usize = 4 * CONTENT_MAX;

/// The first message to the process, before it has any thread. Descriptors: of `sockets`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Whom to become; `None`: stay.
    pub identity: Option<Identity>,
    /// Who may connect to the unix socket, beside root.
    pub owner: u32,
    /// Whether to give up files and addresses, where the kernel can take them.
    pub sandbox: bool,
    /// What it listens on.
    pub sockets: Vec<Socket>,
}

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Socket {
    /// A unix socket: whoever may connect may do everything.
    Unix,
    /// An address: whoever shows the token may.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The token.
        token: String,
    },
}

/// From the master to the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAdmin {
    /// A server process wants to ask something on behalf of a user whom it knows. One descriptor: the connection.
    Connection,
    /// The answer to a [`FromAdmin::Command`].
    Reply(u64, Reply),
    /// A revision is in force.
    Revision(RevisionInfo),
}

/// From the process to the master.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromAdmin {
    /// It serves.
    Ready,
    /// Something for the error log, at level `warn`.
    Warn(String),
    /// Do this; the answer has the number.
    Command(u64, Command),
}

impl Message for ToAdmin {
    fn unreadable(_: &[u8], _: String) -> Option<ToAdmin> {
        None
    }
}

impl Message for FromAdmin {
    const FRAME_MAX: usize = FRAME_MAX;
    const DESCRIPTORS_MAX: usize = 0;

    fn unreadable(_: &[u8], _: String) -> Option<FromAdmin> {
        None
    }
}

/// Who wants something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// The user.
    pub who: String,
    /// The address of the client, or what stands for one.
    pub from: String,
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Names are of other systems, and a line of the log is one line.
        let plain = |text: &str| -> String {
            text.chars().take(128).map(|c| if c.is_control() { '?' } else { c }).collect()
        };
        write!(f, "{} from {}", plain(&self.who), plain(&self.from))
    }
}

/// A file with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileText {
    /// Absolute, as the settings name it.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// What the process asks of the master.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A line of the control socket that changes nothing.
    Read(String),
    /// A line of the control socket that changes something.
    Operate(String, By),
    /// The files of the settings in force, as they lie on the disk.
    Settings,
    /// What would be wrong with these texts, and what they would change.
    Check(Vec<FileText>),
    /// Write these texts and take them up.
    Write {
        /// Those that it takes the place of.
        tag: String,
        /// The new texts; files that are not among them stay.
        files: Vec<FileText>,
        /// The texts before come back unless somebody confirms these within so many seconds.
        confirm_within: Option<u64>,
        /// Who wants it.
        by: By,
    },
    /// Write the texts of an earlier revision and take them up.
    Restore {
        /// Its number.
        revision: u64,
        /// Those that it takes the place of.
        tag: String,
        /// As in `Write`.
        confirm_within: Option<u64>,
        /// Who wants it.
        by: By,
    },
    /// A revision that waits for it stays.
    Confirm {
        /// Its number.
        revision: u64,
        /// Who wants it.
        by: By,
    },
    /// Who is banned.
    Bans,
    /// The last revisions.
    Revisions,
    /// The files of one.
    Revision(u64),
    /// What would be done with a request.
    Explain {
        /// The URL asked for.
        url: String,
        /// The method.
        method: String,
        /// The address of the client.
        from: Option<String>,
        /// Who has logged in.
        user: Option<String>,
    },
}

/// What the master answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// What was asked for, or that it was done, as text or JSON.
    Text(String),
    /// It was not done.
    Refused(Refusal, String),
    /// Texts.
    Files {
        /// What tells these texts from others.
        tag: String,
        /// The revision in force, or the one asked for.
        revision: u64,
        /// The main one first.
        files: Vec<FileText>,
    },
    /// They are in force.
    Written {
        /// The revision that came of it.
        revision: u64,
        /// What tells the new texts from others.
        tag: String,
        /// What the server has to say of it.
        notes: Vec<String>,
        /// When the texts before come back unless they are confirmed, seconds since 1970.
        confirm_by: Option<i64>,
    },
    /// What is wrong with texts.
    Checked(Box<Checked>),
    /// The last ones first.
    Revisions(Vec<RevisionInfo>),
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// What is asked for is wrong.
    Wrong,
    /// There is no such thing.
    Missing,
    /// It may not be changed in this way.
    Forbidden,
    /// Something else is under way, or waits.
    Conflict,
    /// Others have changed the files.
    Changed,
    /// The server does not take it up.
    NotTakenUp,
    /// Too much at once.
    Busy,
    /// The system does not do it.
    Failed,
}

/// What the program that checks texts is given.
#[derive(Debug, Serialize, Deserialize)]
pub struct CheckInput {
    /// The settings file.
    pub main: PathBuf,
    /// The texts as they lie on the disk.
    pub present: Vec<FileText>,
    /// Those in place of some of them.
    pub files: Vec<FileText>,
}

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// All findings, in the order of the text.
    pub diagnostics: Vec<Finding>,
    /// From the files on the disk to these texts, in the unified form.
    pub diff: String,
    /// What would change.
    pub changes: Changes,
}

impl Checked {
    /// Whether anything is wrong.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|found| found.severity == "error")
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `error` or `warning`.
    pub severity: String,
    /// The file, as the settings name it; nothing where no text is to blame.
    pub file: Option<PathBuf>,
    /// From 1.
    pub line: Option<u32>,
    /// From 1, in characters.
    pub column: Option<u32>,
    /// The line of the end.
    pub end_line: Option<u32>,
    /// The column behind the end.
    pub end_column: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

/// What new texts would change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Sites that come, go or become others.
    pub sites: Vec<SiteChange>,
    /// Something outside of sites becomes another.
    pub server: bool,
    /// The server processes are replaced.
    pub needs_new_processes: bool,
}

/// What becomes of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteChange {
    /// Its names.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub what: String,
}

/// A revision, without its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionInfo {
    /// Its number.
    pub revision: u64,
    /// When it was taken up, seconds since 1970.
    pub at: i64,
    /// Who has changed the settings.
    pub who: String,
    /// What was changed.
    pub what: String,
    /// Whether it is in force.
    pub is_in_force: bool,
}
