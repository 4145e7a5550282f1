//! Media types of files, and what may be done with a type (RFC 9110 section 8.3.1).
//!
//! Called when a file is first looked up, never for each request. The table is that of `mime_guess`;
//! what it lacks or has outdated is laid over it here.

/// The type of what is not known: bytes.
pub const OCTET_STREAM: &str = "application/octet-stream";

/// The media type for a path or a file name, by its extension; [`OCTET_STREAM`] where that is unknown or
/// missing. Only the last extension counts: `a.tar.gz` is gzip.
pub fn for_path(path: impl AsRef<[u8]>) -> &'static str {
    extension(path.as_ref()).and_then(for_extension).unwrap_or(OCTET_STREAM)
}

/// The extension of a path or a file name, without its dot. A name that begins with its only dot has none.
pub fn extension(path: &[u8]) -> Option<&str> {
    let name_start = memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1);
    let name = &path[name_start..];
    let dot = memchr::memrchr(b'.', name).filter(|&dot| dot > 0)?;
    std::str::from_utf8(&name[dot + 1..]).ok().filter(|extension| !extension.is_empty())
}

/// The media type for an extension, without regard to case.
///
/// `.ts` and its like are MPEG transport streams: that is what a server is asked for by players, while a
/// browser never asks for TypeScript.
pub fn for_extension(extension: &str) -> Option<&'static str> {
    let mut lower = [0u8; 16];
    if let Some(lower) = lower.get_mut(..extension.len()) {
        lower.copy_from_slice(extension.as_bytes());
        lower.make_ascii_lowercase();
        if let Some(media_type) = laid_over(lower) {
            return Some(media_type);
        }
    }
    mime_guess::from_ext(extension).first_raw()
}

/// Where `mime_guess` is missing an entry, behind the registry, or of no use to a browser.
fn laid_over(extension: &[u8]) -> Option<&'static str> {
    Some(match extension {
        // RFC 9239.
        b"js" | b"mjs" | b"cjs" => "text/javascript",
        b"map" => "application/json",
        b"jsonl" | b"ndjson" => "application/x-ndjson",
        // RFC 9512.
        b"yaml" | b"yml" => "application/yaml",
        b"toml" => "application/toml",
        // RFC 8081.
        b"woff" => "font/woff",
        b"otf" => "font/otf",
        b"ttc" => "font/collection",
        b"ico" | b"cur" => "image/vnd.microsoft.icon",
        b"jxl" => "image/jxl",
        b"ts" | b"mts" | b"m2ts" => "video/mp2t",
        b"m4s" | b"m4v" => "video/mp4",
        b"m4a" => "audio/mp4",
        // RFC 8216.
        b"m3u8" => "application/vnd.apple.mpegurl",
        b"xz" => "application/x-xz",
        b"zst" => "application/zstd",
        b"br" => "application/x-brotli",
        b"tgz" => "application/gzip",
        b"lz4" => "application/x-lz4",
        b"rar" => "application/vnd.rar",
        b"deb" | b"udeb" => "application/vnd.debian.binary-package",
        b"rpm" => "application/x-rpm",
        b"iso" => "application/x-iso9660-image",
        b"vcf" => "text/vcard",
        b"diff" | b"patch" => "text/x-diff",
        // To be read, not run: shown as text.
        b"go" | b"rb" | b"java" | b"sh" | b"pl" | b"lua" | b"sql" | b"rs" | b"py" | b"tsx" | b"jsx"
        | b"cc" | b"hpp" | b"wat" | b"sha256" | b"sha512" | b"md5" | b"sums" | b"kdl" => "text/plain",
        _ => return None,
    })
}

/// Whether `charset` may be added to a type: text, and JavaScript under its old names. JSON is UTF-8 by
/// definition, and XML outside `text/` states its own encoding.
pub fn is_text(media_type: &str) -> bool {
    let essence = essence(media_type);
    has_prefix(essence, "text/")
        || is_one_of(
            essence,
            &["application/javascript", "application/x-javascript", "application/ecmascript"],
        )
}

/// Whether content of this type is worth compressing: text and what is written as text, and the few
/// binary formats that do not compress themselves. Event streams are not: each event would have to wait.
pub fn is_compressible(media_type: &str) -> bool {
    let essence = essence(media_type);
    if has_prefix(essence, "text/") {
        return !essence.eq_ignore_ascii_case("text/event-stream");
    }
    is_text(essence)
        || has_suffix(essence, "+json")
        || has_suffix(essence, "+xml")
        || has_suffix(essence, "+yaml")
        || is_one_of(essence, COMPRESSIBLE)
}

const COMPRESSIBLE: &[&str] = &[
    "application/json",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "application/toml",
    "application/rtf",
    "application/wasm",
    "application/postscript",
    "application/x-sh",
    "application/x-sql",
    "application/x-tar",
    "application/x-tex",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "font/collection",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
    "model/gltf-binary",
];

/// The type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split_once(';').map_or(media_type, |(essence, _)| essence).trim()
}

fn is_one_of(essence: &str, list: &[&str]) -> bool {
    list.iter().any(|media_type| essence.eq_ignore_ascii_case(media_type))
}

fn has_prefix(essence: &str, prefix: &str) -> bool {
    essence.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn has_suffix(essence: &str, suffix: &str) -> bool {
    essence
        .len()
        .checked_sub(suffix.len())
        .and_then(|at| essence.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}
