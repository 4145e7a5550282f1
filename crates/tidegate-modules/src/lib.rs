//! What answers requests: static files, listings, redirects, fixed answers, the status page, the console; what keeps answers; and what
//! changes responses on their way out. Each module is a file or folder with the skeleton of the others:
//! settings in, a [`tidegate_core::Handler`] or [`tidegate_core::Filter`] out.

pub mod cache;
pub mod cache_desk;
pub mod compress;
pub mod console;
pub mod cors;
pub mod files;
pub mod gateway;
pub mod index;
pub mod json_object;
pub mod login;
mod partial;
pub mod redirect;
pub mod rewrite;
#[doc(hidden)]
pub mod solo;
pub mod status;
