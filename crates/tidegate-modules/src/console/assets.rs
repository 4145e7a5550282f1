//! The files of the console, which the program has with it. `build.rs` has found them where `cargo xtask console` puts them.

use aws_lc_rs::digest::{SHA256, digest};
use flate2::read::GzDecoder;
use std::fmt::Write;
use std::io::Read;
use std::sync::OnceLock;
use tidegate_core::{Exchange, Response};
use tidegate_http::conditional::{Precondition, Validators, evaluate};
use tidegate_http::etag::EntityTag;
use tidegate_http::{ContentCoding, Status, coding};

/// Names, and contents as gzip has packed them.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The page that one begins with.
const FIRST: &str = "index.html";

/// What a program says that was built without the console.
const WITHOUT: &str = "\
<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>No console</title>
<h1>No console</h1>
<p>This program was built without the console. With Node.js and npm installed, <code>cargo xtask console</code> builds it, and
<code>cargo build --release</code> then puts it into the program; <code>make run</code> and <code>make install</code> do both.</p>
<p>The same figures: <a href=\"api/status\">as JSON</a>, by <code>tidegate status</code>, or on a page of
<code>route \"/.perf\" { status }</code>.</p>
</html>
";

/// A file of the console.
pub(super) struct Asset {
    name: &'static str,
    packed: &'static [u8],
    /// What stands between the quotes of its entity tag.
    tag: String,
}

/// All of them; none in a program that was built without.
fn assets() -> &'static [Asset] {
    static ASSETS: OnceLock<Vec<Asset>> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let asset = |&(name, packed): &(&'static str, &'static [u8])| {
            let mut tag = String::new();
            for byte in digest(&SHA256, packed).as_ref().iter().take(12) {
                let _ = write!(tag, "{byte:02x}");
            }
            Asset { name, packed, tag }
        };
        FILES.iter().map(asset).collect()
    })
}

/// The file of a path below the route.
pub(super) fn find(path: &[u8]) -> Option<&'static Asset> {
    let name = if path.is_empty() { FIRST.as_bytes() } else { path };
    assets().iter().find(|asset| asset.name.as_bytes() == name)
}

/// The page in place of the first where there is none.
pub(super) fn without() -> Response {
    Response::content(Status::OK, "text/html; charset=utf-8", WITHOUT).with("Cache-Control", "no-store")
}

impl Asset {
    /// The file, or 304 where the client has it.
    pub(super) fn answer(&self, exchange: &Exchange<'_>) -> Response {
        let is_packed = coding::negotiate(exchange.fields.all("Accept-Encoding"), &[ContentCoding::Gzip])
            == Some(ContentCoding::Gzip);
        let tag = if is_packed { format!("{}-gzip", self.tag) } else { self.tag.clone() };
        let validators = Validators::new(Some(EntityTag { weak: false, opaque: tag.as_bytes() }), None);
        let response = match evaluate(exchange.method, exchange.fields, &validators, exchange.now) {
            Precondition::NotModified => Response::empty(Status::NOT_MODIFIED),
            Precondition::Failed => Response::empty(Status::PRECONDITION_FAILED),
            Precondition::Proceed if is_packed => {
                Response::content(Status::OK, self.media_type(), self.packed).with("Content-Encoding", "gzip")
            }
            Precondition::Proceed => Response::content(Status::OK, self.media_type(), self.unpacked()),
        };
        // The page keeps its name over all versions; script and styles have a part of their content in theirs.
        let is_named_anew = [".js", ".css"].iter().any(|ending| self.name.ends_with(ending));
        let kept = if is_named_anew { "max-age=31536000, immutable" } else { "no-cache" };
        response
            .with("ETag", format!("\"{tag}\""))
            .with("Vary", "Accept-Encoding")
            .with("Cache-Control", kept)
    }

    fn unpacked(&self) -> Vec<u8> {
        let mut content = Vec::new();
        GzDecoder::new(self.packed)
            .read_to_end(&mut content)
            .expect("invariant: the build has packed what is in the program");
        content
    }

    fn media_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("txt") => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }
}

#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    assets().iter().map(|asset| asset.name).collect()
}
