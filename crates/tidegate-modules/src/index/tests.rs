//! Listings of real folders: what shows, in which order, on which page, and how it is written.
//!
//! `UPDATE_GOLDEN=1 cargo test -p tidegate-modules` writes the expected pages anew; look at the difference.

use super::query::{Format, Order, Sort, View};
use super::render::{Document, Rows};
use super::scan::{Kind, Listing, ListingEntry, Wanted, scan};
use super::{Place, Request, Text, html, json};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use tidegate_core::{BodyStream, Chunk};
use tidegate_io::file::{Patience, Root};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-index-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("root/at")).unwrap();
        Folder(path)
    }

    fn at(&self, name: &[u8]) -> PathBuf {
        self.0.join("root/at").join(OsStr::from_bytes(name))
    }

    fn file(&self, name: &[u8], len: u64, modified: u64) {
        let file = fs::File::create(self.at(name)).unwrap();
        file.set_len(len).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(modified)).unwrap();
    }

    fn folder(&self, name: &[u8], modified: u64) {
        fs::create_dir(self.at(name)).unwrap();
        let folder = fs::File::open(self.at(name)).unwrap();
        folder.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(modified)).unwrap();
    }

    fn scan(&self, query: &str, change: impl FnOnce(&mut Wanted)) -> Listing {
        let view = View::of(Some(query));
        let mut wanted = Wanted { view, page_size: 1000, shows_hidden: false, most_entries: 1000 };
        change(&mut wanted);
        let root = Root::open(&self.0.join("root")).unwrap();
        let folder = root.open_file(b"at", Patience::Wait).unwrap();
        scan(&root, b"at", folder.fd.as_fd(), &wanted).unwrap()
    }

    fn names(&self, query: &str) -> Vec<String> {
        names(&self.scan(query, |_| {}))
    }
}

fn names(listing: &Listing) -> Vec<String> {
    let name = |entry| String::from_utf8_lossy(listing.name(entry)).into_owned();
    listing.entries().iter().map(name).collect()
}

fn document(listing: Listing, path: &[u8], view: View, format: Format) -> Document {
    Document { listing, path: path.to_vec(), view, format, header: None, readme: None }
}

/// Names that try to break out of where they are put.
const HOSTILE: &[&[u8]] = &[
    b"<script>alert(1)<",
    b"\"onmouseover='alert(1)",
    b"' & &amp; friends",
    b"a:b",
    b"javascript:alert(1)",
    b"line\nfeed\ttab",
    b"not-utf-8-\xff\xc3",
    b"-rf",
    b" both ends ",
    b"100%25 %41 %",
    b"what?#fragment",
    b"back\\slash",
    b"\xe2\x80\xaegnp.exe",
    b"caf\xc3\xa9.txt",
];

fn hostile(name: &str) -> Folder {
    let folder = Folder::new(name);
    for (name, number) in HOSTILE.iter().zip(0u64..) {
        folder.file(name, number * number * 1000, 1_000_000_000 + number * 86_399);
    }
    folder.folder(b"<b>\"folder\"", 981_173_106);
    folder
}

fn compare_with_golden(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/index/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, made).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    for (made, expected) in made.lines().zip(expected.lines()) {
        assert_eq!(made, expected);
    }
    assert_eq!(made.len(), expected.len());
}

/// The styles are not what the test is about.
fn without_style(page: &str) -> String {
    let (before, rest) = page.split_once("<style>").unwrap();
    let (_, after) = rest.split_once("</style>").unwrap();
    format!("{before}<style></style>{after}")
}

#[test]
fn html_of_hostile_names() {
    let folder = hostile("html");
    let listing = folder.scan("", |_| {});
    let mut document = document(listing, b"/pub/<i>&\"x\"/at/", View::default(), Format::Html);
    document.readme = Some(b"<p>Read me.</p>".to_vec());
    let page = String::from_utf8(document.whole()).unwrap();
    compare_with_golden("hostile.html", &without_style(&page));
}

#[test]
fn json_of_hostile_names() {
    let folder = hostile("json");
    let listing = folder.scan("sort=size&order=desc", |_| {});
    let page = document(listing, b"/caf\xe9/at/", View::default(), Format::Json).whole();
    let parsed: serde_json::Value = serde_json::from_slice(&page).unwrap();
    assert_eq!(parsed["total"], 15);
    assert_eq!(parsed["entries"][0]["type"], "folder");
    assert_eq!(parsed["entries"][1]["size"], 169_000);
    compare_with_golden("hostile.json", std::str::from_utf8(&page).unwrap());
}

#[test]
fn a_page_among_many() {
    let folder = Folder::new("golden-page");
    for number in 0..40 {
        folder.file(format!("file{number}").as_bytes(), number, 1_700_000_000);
    }
    let view = View::of(Some("sort=size&order=desc&page=5"));
    let listing = folder.scan("sort=size&order=desc&page=5", |wanted| {
        wanted.page_size = 4;
        wanted.most_entries = 39;
    });
    let page = String::from_utf8(document(listing, b"/", view, Format::Html).whole()).unwrap();
    // Which of the forty is missing is for the file system to say.
    let without_rows: Vec<&str> =
        page.lines().filter(|line| !line.starts_with("<tr class=\"file\"")).collect();
    let page = without_style(&(without_rows.join("\n") + "\n"));
    let (above, sum) = page.split_once("<p class=\"sum\">").unwrap();
    compare_with_golden("page.html", above);
    assert!(sum.starts_with("Entries 17–20 of 39: 0 folders, 39 files, <span title="), "{sum}");
    assert!(sum.contains("<br>There are more entries"), "{sum}");
}

#[test]
fn orders() {
    let folder = Folder::new("orders");
    folder.file(b"file10", 5, 300);
    folder.file(b"File2", 70, 100);
    folder.file(b"file1", 600, 200);
    folder.folder(b"zoo", 50);
    folder.folder(b"Attic", 400);
    let cases = [
        ("", "Attic zoo file1 File2 file10"),
        ("order=desc", "zoo Attic file10 File2 file1"),
        ("sort=size", "Attic zoo file10 File2 file1"),
        ("sort=size&order=desc", "Attic zoo file1 File2 file10"),
        ("sort=date", "zoo Attic File2 file1 file10"),
        ("sort=date&order=desc", "Attic zoo file10 file1 File2"),
        ("C=M;O=D", "Attic zoo file1 File2 file10"),
    ];
    for (query, expected) in cases {
        assert_eq!(folder.names(query).join(" "), expected, "{query}");
        let listing = folder.scan(query, |_| {});
        assert_eq!((listing.total, listing.folders, listing.size), (5, 2, Some(675)), "{query}");
    }
}

#[test]
fn pages_are_pieces_of_the_whole() {
    let folder = Folder::new("pages");
    for number in 0..23u64 {
        folder.file(format!("n{number}").as_bytes(), number % 5, number % 7);
    }
    for number in 0..4 {
        folder.folder(format!("d{number}").as_bytes(), 0);
    }
    for query in ["", "order=desc", "sort=size", "sort=date&order=desc"] {
        let whole = folder.names(query);
        for page_size in [1, 2, 5, 9, 26, 27, 28] {
            let mut all = Vec::new();
            for page in 1..=27u64.div_ceil(page_size.into()) {
                let listing =
                    folder.scan(&format!("{query}&page={page}"), |wanted| wanted.page_size = page_size);
                assert_eq!((listing.page, listing.total, listing.folders), (page, 27, 4));
                assert_eq!(listing.first, (page - 1) * u64::from(page_size));
                all.extend(names(&listing));
            }
            assert_eq!(all, whole, "{query} by {page_size}");
        }
    }
    let behind = folder.scan("page=18446744073709551615", |wanted| wanted.page_size = 10);
    assert_eq!((behind.page, behind.pages, behind.entries().len()), (3, 3, 7));
    let none = folder.scan("", |wanted| wanted.page_size = 0);
    assert_eq!((none.pages, none.entries().len()), (27, 1));
}

#[test]
fn an_empty_folder_has_a_page() {
    let folder = Folder::new("empty");
    let listing = folder.scan("page=3", |_| {});
    assert_eq!((listing.page, listing.pages, listing.total, listing.size), (1, 1, 0, Some(0)));
    let page = document(listing, b"/at/", View::default(), Format::Html).whole();
    assert!(String::from_utf8(page).unwrap().contains("This folder is empty."));
    let listing = folder.scan("", |_| {});
    let page = document(listing, b"/at/", View::default(), Format::Json).whole();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&page).unwrap()["entries"], serde_json::json!([]));
}

#[test]
fn what_a_request_would_not_be_given_does_not_show() {
    let folder = Folder::new("hidden");
    fs::write(folder.0.join("secret"), "secret").unwrap();
    fs::write(folder.0.join("root/beside"), "12345").unwrap();
    folder.file(b"plain", 1, 0);
    folder.file(b".dot", 1, 0);
    folder.file(b"..;v=1", 1, 0);
    folder.folder(b"sub", 0);
    for (target, name) in [
        ("plain", "link-here"),
        ("../beside", "link-inside"),
        ("sub", "link-folder"),
        ("../../secret", "link-outside"),
        ("/etc/passwd", "link-absolute"),
        ("missing", "link-dangling"),
        ("link-loop", "link-loop"),
    ] {
        symlink(target, folder.at(name.as_bytes())).unwrap();
    }
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, folder.at(b"pipe"), pipe, 0o644.into(), 0).unwrap();
    symlink("pipe", folder.at(b"link-pipe")).unwrap();

    let expected = ["link-folder", "sub", "link-here", "link-inside", "plain"];
    for query in ["", "sort=size"] {
        let listing = folder.scan(query, |_| {});
        let mut found = names(&listing);
        found.sort_unstable_by_key(|name| expected.iter().position(|known| known == name));
        assert_eq!(found, expected, "{query}");
        let inside = listing.entries().iter().find(|entry| listing.name(entry) == b"link-inside").unwrap();
        assert_eq!((inside.kind, inside.size), (Kind::File, 5));
    }
    let all = names(&folder.scan("", |wanted| wanted.shows_hidden = true));
    assert_eq!(all.len(), expected.len() + 1);
    assert!(all.contains(&".dot".to_owned()));
}

#[test]
fn a_folder_with_too_many_entries_says_so() {
    let folder = Folder::new("bound");
    for number in 0..6 {
        folder.file(&[b'0' + number], 0, 0);
    }
    for (most, total, is_complete) in [(5, 5, false), (6, 6, true), (7, 6, true)] {
        let listing = folder.scan("", |wanted| wanted.most_entries = most);
        assert_eq!((listing.total, listing.is_complete), (total, is_complete), "{most}");
    }
    let listing = folder.scan("", |wanted| wanted.most_entries = 5);
    let page = document(listing, b"/", View::default(), Format::Json).whole();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&page).unwrap()["truncated"], true);
}

#[test]
fn a_stream_in_any_pieces_is_the_whole() {
    let folder = hostile("stream");
    let made = || document(folder.scan("", |_| {}), b"/at/", View::default(), Format::Html);
    let whole = made().whole();
    let mut cx = Context::from_waker(Waker::noop());
    for size in [1, 7, 100, 5000, 65_536] {
        let mut rows = Rows::new(made().pieces());
        let (mut all, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            match rows.poll_chunk(&mut cx, &mut buffer) {
                Poll::Ready(Ok(Chunk::Data(count))) => all.extend_from_slice(&buffer[..count.get()]),
                Poll::Ready(Ok(Chunk::End)) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(all == whole, "{size}");
    }
}

#[test]
fn the_form_is_negotiated() {
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let cases = [
        ("", None, Format::Html),
        ("", Some(browser), Format::Html),
        ("", Some("*/*"), Format::Html),
        ("", Some("application/json"), Format::Json),
        ("", Some("application/json, text/html;q=0.5"), Format::Json),
        ("", Some("image/png"), Format::Html),
        ("format=json", Some(browser), Format::Json),
        ("format=html", Some("application/json"), Format::Html),
        ("format=pdf", None, Format::Html),
    ];
    for (query, accept, expected) in cases {
        let request = Request { accept: accept.map(|value| value.as_bytes().to_vec()), ..Request::default() };
        assert_eq!(request.format(&View::of(Some(query))), expected, "{query} {accept:?}");
    }
}

#[test]
fn headings_follow_the_path() {
    let folder = Folder::new("crumbs");
    let head = |path: &[u8]| {
        let mut out = Vec::new();
        html::head(&mut out, &document(folder.scan("", |_| {}), path, View::default(), Format::Html));
        String::from_utf8(out).unwrap()
    };
    let root = head(b"/");
    assert!(root.contains("<h1>Index of /</h1>") && !root.contains("Parent folder"));
    let deep = head(b"/a/b/c/");
    assert!(deep.contains("<title>Index of /a/b/c/</title>"));
    assert!(deep.contains("<li><a href=\"../../../\" title=\"Top folder\">/</a></li>"));
    assert!(deep.contains("<li><a href=\"../../\">a/</a></li><li><a href=\"../\">b/</a></li></ol>"));
    assert!(deep.contains("<h1>c/</h1>"));
    let sorted = View { sort: Sort::Size, order: Order::Descending, ..View::default() };
    let mut out = Vec::new();
    html::head(&mut out, &document(folder.scan("", |_| {}), b"/", sorted, Format::Html));
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("content=\"noindex, nofollow\""));
    assert!(text.contains("<th scope=\"col\" aria-sort=\"descending\"><a rel=\"nofollow\" href=\"?sort=size&amp;order=asc\">Size</a></th>"));
}

/// As a browser reads an attribute, and then a server the path.
fn decode(attribute: &str) -> Vec<u8> {
    let text = attribute.replace("&#39;", "'").replace("&amp;", "&");
    let mut scratch = Vec::new();
    let path = format!("/{text}");
    tidegate_http::path::normalise(&path, &mut scratch).unwrap()[1..].to_vec()
}

static ONE_BYTE: LazyLock<ListingEntry> = LazyLock::new(|| {
    let folder = Folder::new("one-byte");
    folder.file(b"x", 1, 1);
    folder.scan("", |_| {}).entries()[0]
});

proptest! {
    /// The link leads to exactly this name, and nothing of the name is markup.
    #[test]
    fn a_row_holds_its_name_safely(name in proptest::collection::vec(1u8..=255, 1..40)) {
        prop_assume!(tidegate_http::path::is_reachable(&name));
        let mut out = Vec::new();
        html::row(&mut out, &name, &ONE_BYTE);
        let row = String::from_utf8(out).unwrap();
        let (_, rest) = row.split_once("<a href=\"").unwrap();
        let (href, rest) = rest.split_once("\">").unwrap();
        prop_assert_eq!(decode(href), &name[..]);
        prop_assert!(href.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"':".contains(&byte)));
        let (shown, rest) = rest.split_once("</a>").unwrap();
        prop_assert!(!shown.contains(['<', '>', '"', '\'']) && !shown.contains(char::is_control));
        prop_assert_eq!(rest, "</td><td title=\"1 byte\">1 B</td><td><time datetime=\"1970-01-01T00:00:01Z\">\
            1970-01-01<span> 00:00</span></time></td></tr>\n");

        let mut out = Vec::new();
        json::entry(&mut out, &name, &ONE_BYTE, true);
        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(decode(parsed["href"].as_str().unwrap()), &name[..]);
        prop_assert_eq!(parsed["name"].as_str().unwrap(), &*String::from_utf8_lossy(&name));
    }
}

/// The whole way, from an open folder to the response, without a worker.
#[test]
fn whole_pages_have_a_tag_and_large_ones_stream() {
    use super::{Made, make, respond};
    use tidegate_core::response::{Body, Head};
    let folder = Folder::new("made");
    for number in 0..201 {
        folder.file(format!("f{number}").as_bytes(), 0, 0);
    }
    fs::write(folder.at(b"HEADER.html"), "<b>above</b>").unwrap();
    fs::write(folder.at(b"README.md"), "*below*").unwrap();
    let root = Root::open(&folder.0.join("root")).unwrap();
    let run = |page_size, request: &Request| {
        let open = |path: &[u8]| root.open_file(path, Patience::Wait).unwrap();
        let text = |place, path: &[u8]| Text { place, relative: path.to_vec(), file: open(path) };
        let texts = match request.shows_texts() {
            true => vec![text(Place::Header, b"at/HEADER.html"), text(Place::Readme, b"at/README.md")],
            false => Vec::new(),
        };
        make(&root, b"at", &open(b"at").fd, &texts, page_size, request)
    };
    let mut request = Request { path: b"/at/".to_vec(), ..Request::default() };
    assert!(matches!(run(201, &request), Ok(Made::Large(_))));
    let streamed = respond(run(201, &request), Path::new("/at"));
    assert!(matches!(streamed.body, Body::Stream { len: None, .. }));

    let first = respond(run(50, &request), Path::new("/at"));
    let (Head::Fields(lines), Body::Bytes(bytes)) = (&first.head, &first.body) else { panic!() };
    let page = std::str::from_utf8(bytes).unwrap();
    assert!(page.contains("<b>above</b>") && page.contains("<p><em>below</em></p>"));
    assert_eq!(lines.first("Cache-Control"), Some(&b"no-cache"[..]));
    assert_eq!(lines.first("Vary"), Some(&b"Accept"[..]));
    assert_eq!(lines.first("Content-Type"), Some(&b"text/html; charset=utf-8"[..]));
    let tag = lines.first("ETag").unwrap().to_vec();

    request.if_none_match = Some([b"\"other\", W/", &tag[..]].concat());
    let held = respond(run(50, &request), Path::new("/at"));
    assert_eq!((held.status.0, held.body.is_empty()), (304, true));
    folder.file(b"f0", 1, 0);
    assert_eq!(respond(run(50, &request), Path::new("/at")).status.0, 200);

    request.query = Some("format=json".into());
    let made = respond(run(50, &request), Path::new("/at"));
    let (Head::Fields(lines), Body::Bytes(bytes)) = (&made.head, &made.body) else { panic!() };
    assert_eq!(lines.first("Content-Type"), Some(&b"application/json"[..]));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(bytes).unwrap()["pages"], 5);
}

#[test]
fn faults_have_their_status() {
    use super::respond;
    use super::scan::ScanError;
    use tidegate_core::Author;
    let status =
        |kind: std::io::ErrorKind| respond(Err(ScanError::Io(kind.into())), Path::new("/at")).status.0;
    assert_eq!(status(std::io::ErrorKind::PermissionDenied), 403);
    assert_eq!(status(std::io::ErrorKind::NotFound), 404);
    assert_eq!(status(std::io::ErrorKind::Other), 500);
    let busy = respond(Err(ScanError::Overloaded), Path::new("/at"));
    assert_eq!((busy.status.0, busy.author), (503, Author::Busy));
}

#[test]
fn a_listing_comes_from_the_pool() {
    use std::sync::Arc;
    use tidegate_core::Reply;
    use tidegate_core::response::Body;
    let folder = Folder::new("pool");
    folder.file(b"one.txt", 1, 1);
    let root = Arc::new(Root::open(&folder.0.join("root")).unwrap());
    let opened = root.open_file(b"at", Patience::Wait).unwrap();
    let request = Request { path: b"/at/".to_vec(), ..Request::default() };
    let reply = super::list(root, b"at".to_vec(), opened.fd, Vec::new(), 10, request);
    let Reply::Later(future) = reply else { panic!("an empty queue takes a job") };
    let response = tidegate_testkit::block_on(future);
    let Body::Bytes(bytes) = response.body else { panic!("a small page is made whole") };
    assert!(std::str::from_utf8(&bytes).unwrap().contains("<a href=\"one.txt\">one.txt</a>"));
}
