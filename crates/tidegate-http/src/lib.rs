//! The vocabulary of RFC 9110 and 9111: methods, status codes, fields, dates, entity tags, conditions,
//! ranges, media types, content codings, request targets and paths.
//!
//! Called by every crate that speaks HTTP. Nothing here does I/O or looks at a clock: where a time is
//! needed it comes in as an argument, in Unix seconds. What is parsed is borrowed from the message;
//! nothing on the path of an ordinary request allocates.

pub mod accept;
pub mod authority;
pub mod cache;
pub mod cache_control;
pub mod coding;
pub mod conditional;
pub mod date;
pub mod decimal;
pub mod etag;
pub mod field;
#[doc(hidden)]
pub mod fuzzing;
pub mod ip;
pub mod language;
pub mod media_type;
pub mod method;
pub mod multipart;
pub mod path;
pub mod quality;
pub mod query;
pub mod range;
pub mod status;
pub mod target;
pub mod vary;
pub mod version;
pub mod words;

pub use authority::{Authority, AuthorityError};
pub use cache_control::CacheControl;
pub use coding::ContentCoding;
pub use conditional::{Precondition, Validators};
pub use date::{HttpDate, delay_seconds};
pub use decimal::{parse_decimal, push_decimal};
pub use etag::EntityTag;
pub use field::{Field, FieldLines, Fields};
pub use ip::{Customer, IpText, ip_text};
pub use method::Method;
pub use path::PathError;
pub use range::{ByteRange, Ranges, Selection};
pub use status::Status;
pub use target::{Target, TargetError};
pub use version::Version;
