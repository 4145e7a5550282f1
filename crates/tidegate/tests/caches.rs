//! Stores of responses from outside: their folders, and `tidegate cache`.

mod running;

use running::{Folder, Server, run, wait_for};
use rustix::process::geteuid;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A folder that the server makes is its own, and one that comes later has the processes replaced: they are confined to what
/// there was.
#[test]
fn folders_are_made_before_the_processes_that_write_there() {
    let folder = Folder::apart("cache-folders");
    fs::create_dir_all(folder.path("www")).unwrap();
    let settings = |disks: &str| {
        format!(
            "listen \"127.0.0.1:0\"\ncache \"main\" {{ memory \"4MiB\"; {disks} }}\n\
             site {{ cache \"main\"; proxy \"http://127.0.0.1:9\"; route \"/f/*\" {{ root \"www\" }} }}\n"
        )
    };
    let one = "disk \"var/cache/one\" size=\"1MiB\"";
    let server = Server::with_config(&folder, &settings(one));
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("var/cache/one"), mode("var/cache")), (0o700, 0o755));
    let first = server.processes();
    folder.write("tidegate.kdl", &settings(one).replace("4MiB", "5MiB"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(server.processes(), first, "a size needs no other processes");
    folder.write("tidegate.kdl", &settings(&format!("{one}; disk \"var/cache/two\" size=\"1MiB\"")));
    let told = server.tell(&["reload"]);
    assert_eq!(told.code, Some(0), "{} {}", told.stdout, told.stderr);
    assert_eq!(mode("var/cache/two"), 0o700);
    let is_new = |process: &_| !first.contains(process);
    assert!(server.processes().iter().any(is_new), "those before may still be ending: {}", told.stdout);
}

/// The store goes on without it, and so does the server.
#[test]
fn a_folder_that_cannot_be_had_costs_no_more_than_itself() {
    let folder = Folder::apart("cache-without-folder");
    fs::create_dir_all(folder.path("www")).unwrap();
    folder.write("www/f", "a file");
    let text = "listen \"127.0.0.1:0\"\ncache \"main\" { disk \"/proc/no/cache\" size=\"1MiB\" }\n\
                site { root \"www\"; route \"/app/*\" { proxy \"http://127.0.0.1:9\"; cache \"main\" } }\n";
    let config = folder.write("checked.kdl", text);
    let checked = run(&folder, &["check", "--config", &config]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(
        checked.stderr.contains("nothing can be stored in the folder /proc/no/cache"),
        "{}",
        checked.stderr
    );
    let server = Server::with_config(&folder, text);
    let said = server.seen.join("\n");
    assert!(said.contains("the cache `main` goes on without the folder /proc/no/cache"), "{said}");
    assert_eq!(server.body("/f"), "a file");
    if geteuid().is_root() {
        fs::create_dir(folder.path("theirs")).unwrap();
        fs::write(folder.path("theirs/mail"), "").unwrap();
        std::os::unix::fs::chown(folder.path("theirs"), Some(12345), Some(12345)).unwrap();
        folder.write("tidegate.kdl", &text.replace("/proc/no/cache", "theirs"));
        let told = server.tell(&["reload"]);
        assert!(told.stdout.contains("it belongs to user 12345"), "{} {}", told.stdout, told.stderr);
        assert_eq!(fs::metadata(folder.path("theirs")).unwrap().uid(), 12345);
    }
}

/// The processes are confined to what they could reach when they began, so others take their place.
#[test]
fn a_folder_that_comes_into_reach_is_used_after_a_reload() {
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: only root names the user of the server processes");
    }
    let folder = Folder::apart("cache-out-of-reach");
    fs::create_dir_all(folder.path("closed")).unwrap();
    let permit = |mode| fs::set_permissions(folder.path("closed"), fs::Permissions::from_mode(mode)).unwrap();
    permit(0o700);
    let text = "user \"nobody\"\nlisten \"127.0.0.1:0\"\ncache \"main\" { disk \"closed/cache\" size=\"1MiB\" }\n\
                site { proxy \"http://127.0.0.1:9\"; cache \"main\" }\n";
    let server = Server::with_config(&folder, text);
    let stats = || server.tell(&["cache", "stats"]).stdout;
    let said = wait_for(|| Some(stats()).filter(|said| said.contains("out of use")), "the disk to be out");
    assert!(said.contains("let the user of the server reach it, then reload the server"), "{said}");
    permit(0o755);
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    wait_for(|| (!stats().contains("out of use")).then_some(()), "the disk to be used");
    let before = server.processes();
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!(server.processes(), before, "nothing has changed");
    fs::remove_dir_all(folder.path("closed/cache")).unwrap();
    wait_for(|| stats().contains("out of use").then_some(()), "the folder to be missed");
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    wait_for(|| (!stats().contains("out of use")).then_some(()), "another one to be used");
}

/// What is asked reaches the stores of every process, and comes back as one.
#[test]
fn orders_reach_the_stores() {
    let folder = Folder::new("cache-orders");
    let text = "listen \"127.0.0.1:0\"\nprocesses 2\nworkers 1\ncache \"main\" { memory \"4MiB\" }\n\
                site { proxy \"http://127.0.0.1:9\"; cache \"main\" }\n";
    let mut server = Server::with_config(&folder, text);
    let other = folder.path("other.kdl").display().to_string();
    folder.write("other.kdl", text);
    for (arguments, code, said) in [
        (&["ls"][..], 0, "Nothing of that is stored."),
        (&["verify", "--config", &other], 1, "nothing was done: this server has its settings from"),
        (&["show", "http://a.test/x"], 1, "Nothing is stored under this URL."),
        (&["purge", "--url", "http://a.test/x"], 0, "no response in memory is meant"),
        (&["purge", "--tag", "a", "--host", "a.test", "--soft"], 0, "no response in memory is meant"),
        (&["verify"], 0, "0 files with 0 pieces were read, none is broken"),
        (&["purge", "--all", "--json"], 0, "\"purged\""),
        (&["ls", "--store", "mian"], 1, "no cache is named \"mian\"; there are `main`"),
        (&["purge"], 2, "--url <URL>|--prefix <URL>"),
        (&["purge", "--url", "a.test/x"], 2, "write a URL with scheme and host"),
        (&["warm"], 2, "<URL|--from <FILE>|--sitemap <URL|FILE>>"),
    ] {
        let arguments: Vec<&str> = ["cache"].iter().chain(arguments).copied().collect();
        let outcome = server.tell(&arguments);
        let all = outcome.stdout + &outcome.stderr;
        assert!(outcome.code == Some(code) && all.contains(said), "{arguments:?}: {:?} {all}", outcome.code);
    }
    server.line("an operator has purged the tag \"a\" of \"a.test\", softly");
    folder.write("tidegate.kdl", "listen \"127.0.0.1:0\"\nsite { respond 200 }\n");
    assert_eq!(server.tell(&["reload", "--allow-loss"]).code, Some(0));
    let outcome = server.tell(&["cache", "stats"]);
    assert!(outcome.code == Some(1) && outcome.stderr.contains("define no store"), "{}", outcome.stderr);
}

/// A sitemap of the server's own, a list, URLs: each is requested once, whatever its name leads to elsewhere.
#[test]
fn warming_asks_the_server_itself() {
    let folder = Folder::new("cache-warm");
    fs::create_dir_all(folder.path("www")).unwrap();
    let text = "listen \"127.0.0.1:0\"\nsite \"a.test\" { root \"www\" }\n";
    let server = Server::with_config(&folder, text);
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let url = |path: &str| format!("http://a.test:{port}{path}");
    for name in ["one", "two", "three"] {
        folder.write(&format!("www/{name}"), name);
    }
    let index = format!("<sitemapindex><sitemap><loc>{}</loc></sitemap></sitemapindex>", url("/pages.xml"));
    folder.write("www/sitemap.xml", &index);
    let pages =
        format!("<urlset><loc>{}</loc><loc>{}</loc></urlset>", url("/two?a=1&amp;b=2"), url("/three"));
    folder.write("www/pages.xml", &pages);
    let list = folder.write("list", &format!("# a list\n{}\n\n{}\n", url("/one"), url("/two?a=1&b=2")));
    let (sitemap, one) = (url("/sitemap.xml"), url("/one#top"));
    let outcome = server.tell(&["cache", "warm", &one, "--from", &list, "--sitemap", &sitemap]);
    assert_eq!(outcome.code, Some(0), "{} {}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("3 requested, 0 in the cache now, 0 failed, 11B"), "{}", outcome.stdout);
    let absent = url("/absent");
    let outcome = server.tell(&["cache", "warm", &absent, "http://a.test:1/", "--quiet"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(outcome.stdout.contains(&format!("404 {absent}")), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("no listener for http on port 1"), "{}", outcome.stderr);
}

/// Answers with how often it was posted to, for good as far as that is for it to say.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let posts = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, posts) = (stream.unwrap(), posts.clone());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(first)) = lines.next() {
                    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                    let is_post = first.starts_with("POST");
                    let version = posts.fetch_add(u64::from(is_post), SeqCst) + u64::from(is_post);
                    let group = if first.starts_with("POST /group") {
                        "Cache-Group-Invalidation: \"g\"\r\n"
                    } else {
                        ""
                    };
                    let body = format!("v{version}");
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nCache-Groups: \"g\"\r\n{group}Content-Length: {}\r\n\r\n",
                        body.len()
                    );
                    if stream.write_all((head + &body).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// What an application says it has changed, the stores of all processes have dropped before its client has the answer.
#[test]
fn a_change_reaches_the_stores_of_all_processes() {
    let folder = Folder::new("cache-changes");
    let text = format!(
        "listen \"127.0.0.1:0\"\nprocesses 2\nworkers 1\ncache \"main\" {{ memory \"4MiB\" }}\n\
         site {{ proxy \"http://{}\"; cache \"main\" }}\n",
        origin()
    );
    let server = Server::with_config(&folder, &text);
    let ask = |method: &str, path: &str| {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n{length}Connection: close\r\n\r\n");
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for (round, path) in (1..).zip(["/a", "/group", "/a", "/group"]) {
        // Enough for both processes to have it.
        (0..30).for_each(|_| drop(ask("GET", "/a")));
        ask("POST", path);
        for _ in 0..30 {
            let answer = ask("GET", "/a");
            assert!(answer.ends_with(&format!("v{round}")), "{answer}");
        }
    }
}
