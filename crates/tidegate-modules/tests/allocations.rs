//! A request for a cached file, or for what a cache has stored, allocates nothing: counted from the bytes of a request on a socket to the
//! bytes of its answer.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{
    AccessFormat, AccessLog, AccessRule, AccessRules, LogTarget, Network, NetworkSet, Origin, Settings,
};
use tidegate_core::solo::Solo;
use tidegate_io::socket::Stream;
use tidegate_modules::solo::solo;

/// Requests that are counted, of each kind.
const COUNT: u64 = 100;

const OK: &str = "HTTP/1.1 200 OK\r\n";
const NOT_MODIFIED: &str = "HTTP/1.1 304 Not Modified\r\n";

/// What is behind the request line of a plain request.
const PLAIN: &str = "Host: localhost\r\n\r\n";

/// And of a browser's.
const BROWSER: &str = "Host: localhost\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\
    Referer: http://localhost/\r\nSec-Fetch-Mode: no-cors\r\n\r\n";

/// A folder with files, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidegate-allocations-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (name, len) in
            [("small.bin", 1024), ("page.html", 3000), ("page.html.gz", 300), ("large.bin", 100_000)]
        {
            std::fs::write(path.join(name), vec![7; len]).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client and the server that serves it, on this thread.
struct Pair {
    solo: Solo,
    client: UnixStream,
    buffer: Vec<u8>,
    _folder: Folder,
}

impl Pair {
    fn new(name: &str, change: impl FnOnce(&mut Settings)) -> Pair {
        let folder = Folder::new(name);
        let mut settings = tidegate_config::from_folder(&folder.0, &[]).unwrap();
        settings.file_cache.max_age = Duration::from_secs(3600);
        change(&mut settings);
        let (client, server) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        server.set_nonblocking(true).unwrap();
        let solo = solo(&Arc::new(settings), Stream::new(server.into())).unwrap();
        Pair { solo, client, buffer: vec![0; 256 << 10], _folder: folder }
    }

    /// Sends a request and takes the answer; how long it is.
    fn exchange(&mut self, request: &[u8]) -> usize {
        self.client.write_all(request).unwrap();
        self.solo.on_readable().unwrap();
        let mut at = 0;
        loop {
            match self.client.read(&mut self.buffer[at..]) {
                Ok(0) => panic!("the server has closed"),
                Ok(count) => at += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return at,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Allocations of [`COUNT`] such requests, once the file is cached and buffers have their size.
    fn allocations(&mut self, request: &str, begins: &str) -> u64 {
        for _ in 0..4 {
            self.exchange(request.as_bytes());
        }
        let len = self.exchange(request.as_bytes());
        let answer = String::from_utf8_lossy(&self.buffer[..len]);
        assert!(answer.starts_with(begins), "{request}\n{answer}");
        let mut count = || {
            let counted = allocation_counter::measure(|| {
                for _ in 0..COUNT {
                    assert_eq!(self.exchange(request.as_bytes()), len);
                }
            });
            counted.count_total
        };
        // Once a second it is looked where the root is, which is no request's doing.
        count().min(count())
    }
}

#[test]
fn cached_files() {
    let mut pair = Pair::new("plain", |_| ());
    let old = "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n";
    let batch = format!("GET /small.bin HTTP/1.1\r\n{PLAIN}").repeat(10);
    let cases = [
        ("plain", format!("GET /small.bin HTTP/1.1\r\n{PLAIN}"), OK),
        ("query", format!("GET /small.bin?v=1 HTTP/1.1\r\n{PLAIN}"), OK),
        ("escaped", format!("GET /%73mall.bin HTTP/1.1\r\n{PLAIN}"), OK),
        ("HEAD", format!("HEAD /small.bin HTTP/1.1\r\n{PLAIN}"), OK),
        ("HTTP/1.0", format!("GET /small.bin HTTP/1.0\r\nConnection: keep-alive\r\n{PLAIN}"), OK),
        ("browser", format!("GET /small.bin HTTP/1.1\r\n{BROWSER}"), OK),
        ("browser, precompressed", format!("GET /page.html HTTP/1.1\r\n{BROWSER}"), OK),
        ("browser, HEAD", format!("HEAD /page.html HTTP/1.1\r\n{BROWSER}"), OK),
        ("unchanged", format!("GET /small.bin HTTP/1.1\r\n{old}{PLAIN}"), NOT_MODIFIED),
        ("unchanged, precompressed", format!("GET /page.html HTTP/1.1\r\n{old}{BROWSER}"), NOT_MODIFIED),
        ("unchanged, tag", format!("GET /small.bin HTTP/1.1\r\nIf-None-Match: *\r\n{PLAIN}"), NOT_MODIFIED),
        ("ten at once", batch, OK),
        ("100 KB", format!("GET /large.bin HTTP/1.1\r\n{PLAIN}"), OK),
    ];
    let counted: Vec<(&str, u64)> =
        cases.iter().map(|(name, request, begins)| (*name, pair.allocations(request, begins))).collect();
    let none: Vec<(&str, u64)> = cases.iter().map(|(name, ..)| (*name, 0)).collect();
    assert_eq!(counted, none);
    // That the counting counts: an error page is made anew each time.
    let missing = format!("GET /missing HTTP/1.1\r\n{PLAIN}");
    assert!(pair.allocations(&missing, "HTTP/1.1 404 Not Found\r\n") >= COUNT);
}

/// However many networks are refused or trusted, and whomever a proxy names.
#[test]
fn behind_a_proxy_and_many_networks() {
    let mut pair = Pair::new("networks", |settings| {
        let networks = (0..30_000u32).map(|n| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + (n << 8)).into();
            Network::Prefix { address, bits: 24 }
        });
        let rule = |network| AccessRule::of(false, network, Origin::default());
        let rules = AccessRules::from(networks.clone().map(rule).collect::<Vec<_>>());
        let site = Arc::make_mut(&mut settings.sites[0]);
        site.trusted_proxies = networks.chain([Network::Unix]).collect::<NetworkSet>().into();
        site.routes[0].access.levels.push(rules.into());
    });
    let behind = |chain: &str| format!("GET /small.bin HTTP/1.1\r\nX-Forwarded-For: {chain}\r\n{PLAIN}");
    for chain in ["198.51.100.7", "192.0.2.1, 198.51.100.7, 10.0.7.1, 10.3.2.1", "2001:db8::7"] {
        assert_eq!(pair.allocations(&behind(chain), OK), 0, "{chain}");
    }
    // That it is decided by whom the proxy names: 10.0.7.1 is refused, once it speaks for itself.
    let len = pair.exchange(behind("10.0.7.1").as_bytes());
    assert!(pair.buffer[..len].starts_with(b"HTTP/1.1 403"));
}

/// A buffer is handed over once a second or when it is full; nothing is allocated for a line.
fn with_an_access_log(format: AccessFormat) {
    let mut pair = Pair::new(&format!("{format:?}"), |settings| {
        settings.access_log = Some(AccessLog {
            target: LogTarget::File("/dev/null".into()),
            format: format.clone(),
            only_errors: false,
        });
    });
    let allocations = pair.allocations(&format!("GET /small.bin HTTP/1.1\r\n{BROWSER}"), OK);
    assert!(allocations < COUNT / 4, "{format:?}: {allocations}");
}

// A thread is one worker for good, so each has a test of its own.
#[test]
fn with_a_common_log() {
    with_an_access_log(AccessFormat::Common);
}

#[test]
fn with_a_combined_log() {
    with_an_access_log(AccessFormat::Combined);
}

#[test]
fn with_a_json_log() {
    with_an_access_log(AccessFormat::Json);
}

/// An application that answers on this thread, on a connection that is kept, and what passes requests on to it.
struct Passing {
    solo: Solo,
    client: UnixStream,
    application: UnixStream,
    answer: Vec<u8>,
    /// Bytes of its content.
    size: usize,
    _folder: Folder,
}

impl Passing {
    fn new(protocol: &str, size: usize, answer: Vec<u8>) -> Passing {
        let folder = Folder::new(protocol);
        let socket = folder.0.join("application.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let action = match protocol {
            "fastcgi" => format!("fastcgi \"unix:{}\" {{ mount \"/\" }}", socket.display()),
            _ => format!("proxy \"unix:{}\"", socket.display()),
        };
        let (store, action) = match protocol.starts_with("stored") {
            true => ("cache \"main\" { memory \"8MiB\" }\n", format!("cache \"main\"; {action}")),
            false => ("", action),
        };
        let text = format!("listen \"127.0.0.1:1\"\naccess-log off\n{store}site {{ {action} }}\n");
        let settings =
            tidegate_config::load_str("test", &text, &folder.0, &tidegate_config::ProcessEnvironment);
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut solo = solo(&Arc::new(settings.settings.unwrap()), Stream::new(server.into())).unwrap();
        (&client).write_all(format!("GET / HTTP/1.1\r\n{PLAIN}").as_bytes()).unwrap();
        solo.turn();
        solo.wait(Duration::ZERO).unwrap(); // a fetch for a cache is a task of its own
        let application = listener.accept().unwrap().0;
        application.set_read_timeout(Some(tidegate_testkit::WAIT)).unwrap();
        client.set_read_timeout(Some(tidegate_testkit::WAIT)).unwrap();
        let mut passing = Passing { solo, client, application, answer, size, _folder: folder };
        passing.answer();
        passing
    }

    /// The application has a request, and answers it.
    fn answer(&mut self) {
        let mut buffer = [0; 4096];
        assert!(self.application.read(&mut buffer).unwrap() > 64, "the request is passed on");
        self.application.write_all(&self.answer).unwrap();
        while self.solo.is_answering() {
            self.solo.wait(Duration::from_secs(10)).unwrap();
        }
        self.read_answer();
    }

    fn read_answer(&mut self) {
        let (mut buffer, mut came) = ([0; 4096], 0);
        while came <= self.size {
            came += self.client.read(&mut buffer).unwrap();
        }
    }

    /// Allocations of [`COUNT`] requests, once buffers have their size.
    fn allocations(&mut self, request: &str) -> u64 {
        let mut exchange = || {
            self.client.write_all(request.as_bytes()).unwrap();
            self.solo.turn();
            self.answer();
        };
        (0..4).for_each(|_| exchange());
        allocation_counter::measure(|| (0..COUNT).for_each(|_| exchange())).count_total
    }
}

/// What a cache has stored, large or small: a message is made of its head once in a second.
fn stored(size: usize) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=4000000000\r\n\
         Content-Length: {size}\r\n\r\n"
    );
    let mut passing =
        Passing::new(&format!("stored-{size}"), size, [head.as_bytes(), &vec![7; size]].concat());
    for request in [PLAIN, BROWSER] {
        let request = format!("GET / HTTP/1.1\r\n{request}");
        let mut exchange = || {
            passing.client.write_all(request.as_bytes()).unwrap();
            passing.solo.turn();
            passing.read_answer();
        };
        (0..4).for_each(|_| exchange());
        let counted = allocation_counter::measure(|| (0..COUNT).for_each(|_| exchange()));
        assert!(counted.count_total < COUNT / 4, "{size}, {request}: {}", counted.count_total);
    }
}

#[test]
fn stored_answers_of_1_kib() {
    stored(1 << 10);
}

#[test]
fn stored_answers_of_64_kib() {
    stored(64 << 10);
}

/// What an answer by HTTP costs: what waits for it. The request as it is sent, the head and the content of its answer, and what an
/// operator may ask about it meanwhile, are in memory of requests before it.
#[test]
fn passed_on_by_http() {
    let head = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: application\r\n\
        Content-Type: application/octet-stream\r\nContent-Length: 1024\r\n\r\n";
    let mut passing = Passing::new("proxy", 1024, [head.as_bytes(), &[7; 1024]].concat());
    for request in [PLAIN, BROWSER] {
        let allocations = passing.allocations(&format!("GET /small.bin HTTP/1.1\r\n{request}"));
        assert_eq!(allocations, COUNT, "{request}");
    }
}

/// The same by FastCGI, and who answers in place of the script where it redirects to another path.
#[test]
fn passed_on_by_fastcgi() {
    let content =
        [&b"Content-Type: application/octet-stream\r\nContent-Length: 1024\r\n\r\n"[..], &[7; 1024]].concat();
    let [high, low] = (content.len() as u16).to_be_bytes();
    let end = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let answer = [&[1, 6, 0, 1, high, low, 0, 0][..], &content, &end].concat();
    let mut passing = Passing::new("fastcgi", 1024, answer);
    for request in [PLAIN, BROWSER] {
        let allocations = passing.allocations(&format!("GET /small.bin HTTP/1.1\r\n{request}"));
        assert_eq!(allocations, COUNT * 2, "{request}");
    }
}
