//! stub
#![allow(missing_docs)]
use tidegate_core::*;
pub struct Request;
impl Request { pub fn of(_: &Exchange<'_>, _: bool) -> Request { Request } }
pub fn list(_: std::sync::Arc<tidegate_io::file::Root>, _: Vec<u8>, _: std::os::fd::OwnedFd, _: &std::sync::Arc<tidegate_config::settings::Listing>, _: Request) -> Reply { Reply::status(tidegate_http::Status::NOT_FOUND) }
