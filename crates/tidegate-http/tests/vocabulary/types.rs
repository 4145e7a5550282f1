//! `media_type`.

use tidegate_http::media_type::{OCTET_STREAM, extension, for_path, is_compressible, is_text};

#[test]
fn types_of_files() {
    let cases: &[(&str, &str)] = &[
        ("index.html", "text/html"),
        ("/a.b/INDEX.HTM", "text/html"),
        ("a.css", "text/css"),
        ("a.js", "text/javascript"),
        ("a.mjs", "text/javascript"),
        ("a.json", "application/json"),
        ("a.js.map", "application/json"),
        ("a.wasm", "application/wasm"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.md", "text/markdown"),
        ("a.txt", "text/plain"),
        ("a.svg", "image/svg+xml"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.jxl", "image/jxl"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.ico", "image/vnd.microsoft.icon"),
        ("a.woff", "font/woff"),
        ("a.woff2", "font/woff2"),
        ("a.ttf", "font/ttf"),
        ("a.otf", "font/otf"),
        ("a.mp4", "video/mp4"),
        ("a.m4s", "video/mp4"),
        ("a.ts", "video/mp2t"),
        ("a.webm", "video/webm"),
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("a.mpd", "application/dash+xml"),
        ("a.flac", "audio/flac"),
        ("a.opus", "audio/ogg"),
        ("a.mp3", "audio/mpeg"),
        ("a.tar.gz", "application/gzip"),
        ("a.zst", "application/zstd"),
        ("a.br", "application/x-brotli"),
        ("a.xz", "application/x-xz"),
        ("a.7z", "application/x-7z-compressed"),
        ("a.zip", "application/zip"),
        ("a.iso", "application/x-iso9660-image"),
        ("a.deb", "application/vnd.debian.binary-package"),
        ("a.pdf", "application/pdf"),
        ("a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.sh", "text/plain"),
        (".html", OCTET_STREAM),
        ("/html.d/README", OCTET_STREAM),
        ("a.", OCTET_STREAM),
        ("a.an-extension-longer-than-any", OCTET_STREAM),
        ("", OCTET_STREAM),
    ];
    for (path, expected) in cases {
        assert_eq!(for_path(path), *expected, "{path}");
    }
    assert_eq!(for_path(b"a.\xff"), OCTET_STREAM);
    assert_eq!(extension(b"/a.d/b.Html"), Some("Html"));
}

#[test]
fn properties_of_types() {
    // Type, takes a charset, worth compressing.
    let cases: &[(&str, bool, bool)] = &[
        ("text/html", true, true),
        ("Text/HTML; charset=utf-8", true, true),
        ("text/event-stream", true, false),
        ("application/javascript", true, true),
        ("application/json", false, true),
        ("application/ld+json", false, true),
        ("image/svg+xml", false, true),
        ("application/wasm", false, true),
        ("font/ttf", false, true),
        ("font/woff2", false, false),
        ("image/png", false, false),
        ("application/zip", false, false),
        ("application/octet-stream", false, false),
        ("", false, false),
    ];
    for (media_type, takes_charset, compresses) in cases {
        assert_eq!(
            (is_text(media_type), is_compressible(media_type)),
            (*takes_charset, *compresses),
            "{media_type}"
        );
    }
}
