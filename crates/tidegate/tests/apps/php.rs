//! PHP by php-cgi and by php-fpm: pages, sessions, path information, uploads.

use crate::site::{Site, example, folder, has};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tidegate_testkit::InTime;
use tidegate_testkit::wait_for;

fn serves_php(config: &str, interface: &str) {
    // Where php-fpm may read them too, which never runs as root.
    let folder = folder(interface);
    let root = folder.join("site");
    fs::create_dir(&root).unwrap();
    fs::copy(example("php/public/index.php"), root.join("index.php")).unwrap();
    let root = fs::canonicalize(root).unwrap();
    let site = Site::start(config, folder, &[("SITE", root.to_str().unwrap())]);
    let visitor = site.visitor("one");
    visitor.get("/").shows(&format!("({interface})")).shows("visit 1 by process");
    visitor.get("/index.php").shows("visit 2");
    visitor.get("/index.php?a=b").shows("visit 3");
    site.visitor("other").get("/").shows("visit 1");

    let seen = visitor.get("/index.php/request?a=%20b&c").shows("REQUEST_URI").text;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let expected = [
        ("PATH_INFO", "/request"),
        ("SCRIPT_NAME", "/index.php"),
        ("REQUEST_URI", "/index.php/request?a=%20b&c"),
        ("QUERY_STRING", "a=%20b&c"),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
    ];
    for (name, value) in expected {
        assert_eq!(seen[name], value, "{name} in {seen:#}");
    }
    assert_eq!(seen["SCRIPT_FILENAME"], root.join("index.php").to_str().unwrap());

    // Larger than any buffer on its way.
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at * 31 % 251) as u8).collect();
    fs::write(site.folder.join("large.bin"), &large).unwrap();
    let file = format!("file=@{}", site.folder.join("large.bin").display());
    let limits = visitor.upload("/index.php", &[&file]);
    assert_eq!(limits.status, 200, "{limits:#?}");
    let body = format!("@{}", site.folder.join("large.bin").display());
    let url = format!("{}/index.php/digest", site.url);
    visitor.curl(&["--data-binary", &body, &url]).shows("\"length\":3000000");
    // Of unknown length: what the protocol does not know has to be found out on the way.
    visitor
        .curl(&["-H", "Transfer-Encoding: chunked", "--data-binary", &body, &url])
        .shows("\"length\":3000000");

    assert_eq!(visitor.get("/none.php").status, 404);
    assert_eq!(visitor.get("/index.php.txt").status, 404);
    // FAULTS 35: a script is what lies there under that name, nothing else.
    fs::write(site.folder.join("x"), "").unwrap();
    assert_eq!(visitor.get("/image.png/x.php").status, 404);
}

#[test]
fn php_cgi() {
    if has(&["curl", "php-cgi"]) {
        serves_php("php-cgi.kdl", "cgi-fcgi");
    }
}

#[test]
fn php_fpm() {
    if has(&["curl", "php-fpm8.2"]) {
        serves_php("php-fpm.kdl", "fpm-fcgi");
    }
}

/// Serves scripts by a pool with these words in its block, and `settings` for PHP.
fn serve(name: &str, pool: &str, settings: &str, scripts: &[(&str, &str)]) -> Site {
    let folder = folder(name);
    let folder = fs::canonicalize(folder).unwrap();
    for place in ["site", "ini"] {
        fs::create_dir(folder.join(place)).unwrap();
        fs::set_permissions(folder.join(place), fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::write(folder.join("ini/php.ini"), settings).unwrap();
    for (name, text) in scripts {
        fs::write(folder.join("site").join(name), text).unwrap();
    }
    let text = format!(
        "listen \"${{LISTEN}}\"\nerror-log \"{0}/error.log\"\n\
        pool \"php\" {{ {pool}\n queue length=128 age=\"20s\"\n environment {{ PHP_INI_SCAN_DIR \"{0}/ini\" }} }}\n\
        site {{ root \"{0}/site\"; route \"*.php\" {{ fastcgi \"php\" }} }}\n",
        folder.display()
    )
    .replace("ROOT", folder.join("site").to_str().unwrap());
    fs::write(folder.join("tidegate.kdl"), text).unwrap();
    let config = folder.join("tidegate.kdl");
    Site::start(config.to_str().unwrap(), folder, &[])
}

/// What `tidegate status` tells of the only pool.
fn pool(site: &Site) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["status", "--json", "--control"])
        .arg(site.folder.join("control"))
        .output_in_time();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    status["pools"][0].clone()
}

fn status_text(site: &Site) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["status", "--control"])
        .arg(site.folder.join("control"))
        .output_in_time();
    String::from_utf8(output.stdout).unwrap()
}

const OPCACHE: &str = "zend_extension=opcache\nopcache.enable=1\nopcache.file_update_protection=0\n";

fn is_warmed_up_and_tells_of_its_cache(kind: &str) {
    let warm = "<?php file_put_contents(__DIR__ . '/seen', \"{$_SERVER['HTTP_HOST']} {$_SERVER['REQUEST_URI']} \
        {$_SERVER['SCRIPT_NAME']} {$_SERVER['REQUEST_METHOD']}\\n\", FILE_APPEND);";
    let scripts = [
        ("warm.php", warm),
        ("fails.php", "<?php http_response_code(500);"),
        ("seen.php", "<?php readfile(__DIR__ . '/seen');"),
    ];
    let words = format!(
        "php {kind}; processes min=1 max=2\n \
        warm-up \"/warm.php?first\" \"/fails.php\" \"/warm.php\" root=\"ROOT\" host=\"example.com\""
    );
    let site = serve(&format!("warm-{kind}"), &words, OPCACHE, &scripts);
    let visitor = site.visitor("one");
    // The first request of a visitor finds all of them done.
    let seen = visitor.get("/seen.php").shows("example.com").text;
    assert_eq!(seen, "example.com /warm.php?first /warm.php GET\nexample.com /warm.php /warm.php GET\n");
    // The log is written by a thread of its own.
    let log = wait_for(
        || fs::read_to_string(site.folder.join("error.log")).ok().filter(|log| log.contains("/fails.php")),
        "the log",
    );
    assert_eq!(log.matches("`warm-up` /fails.php was answered with 500").count(), 1, "{log}");

    let opcache = pool(&site)["opcache"].clone();
    assert_eq!(opcache["state"], "on", "{opcache}");
    assert!(opcache["scripts"].as_u64() >= Some(3), "{opcache}");
    assert!(
        opcache["misses"].as_u64() >= Some(3) && opcache["memory"]["used"].as_u64() > Some(0),
        "{opcache}"
    );
    assert!(opcache["memory"]["free"].as_u64() > Some(0), "{opcache}");
    let text = status_text(&site);
    assert!(text.contains("OPcache Scripts") && text.contains("cached"), "{text}");
    // A script that was compiled is found again.
    let hits = |opcache: &Value| opcache["hits"].as_u64().unwrap();
    let before = hits(&opcache);
    let is_found = || {
        visitor.get("/seen.php").shows("example.com");
        // What was told within the last second is told again.
        hits(&pool(&site)["opcache"]) > before
    };
    assert!((0..1000).any(|_| is_found()), "{}", pool(&site));
    // No URL leads to the script that tells.
    for path in ["/tidegate-opcache.php", "/../tidegate-opcache.php", "/warm.php/../tidegate-opcache.php"] {
        let page = visitor.curl(&["--path-as-is", &format!("{}{path}", site.url)]);
        assert!([400, 404].contains(&page.status), "{path}: {page:#?}");
    }
}

#[test]
fn php_fpm_is_warmed_up_and_tells_of_its_cache() {
    if has(&["curl", "php-fpm8.2"]) {
        is_warmed_up_and_tells_of_its_cache("fpm");
    }
}

#[test]
fn php_cgi_is_warmed_up_and_tells_of_its_cache() {
    if has(&["curl", "php-cgi"]) {
        is_warmed_up_and_tells_of_its_cache("cgi");
    }
}

/// The ways to change settings of PHP that docs/pools.md names.
#[test]
fn settings_of_php_come_from_a_folder_and_from_the_folder_of_scripts() {
    if !has(&["curl", "php-fpm8.2", "php-cgi"]) {
        return;
    }
    let script = "<?php echo ini_get('upload_max_filesize'), ' ', ini_get('post_max_size');";
    let own = ("b.php", script);
    for kind in ["fpm", "cgi"] {
        let settings = "upload_max_filesize=43M\npost_max_size=44M\n";
        let site = serve(&format!("settings-{kind}"), &format!("php {kind}"), settings, &[own]);
        site.visitor("one").get("/b.php").shows("43M 44M");
        let user = (".user.ini", "upload_max_filesize=33M\n");
        let site = serve(&format!("user-ini-{kind}"), &format!("php {kind}"), settings, &[own, user]);
        site.visitor("one").get("/b.php").shows("33M 44M");
        assert_eq!(site.visitor("one").get("/.user.ini").status, 404);
    }
    let command = "command \"php-cgi\" \"-d\" \"upload_max_filesize=53M\"";
    let site = serve("settings-command", command, "post_max_size=54M\n", &[own]);
    site.visitor("one").get("/b.php").shows("53M 54M");
}

#[test]
fn a_cache_that_cannot_be_asked_is_one_word() {
    if !has(&["curl", "php-fpm8.2", "php-cgi"]) {
        return;
    }
    let restricted = format!("{OPCACHE}opcache.restrict_api=/nowhere\n");
    let off = "zend_extension=opcache\nopcache.enable=0\n";
    let hidden = format!("{OPCACHE}disable_functions=opcache_get_status\n");
    let walled = format!("{OPCACHE}open_basedir=/nowhere\n");
    for kind in ["fpm", "cgi"] {
        for (name, settings, state) in [
            ("absent", "", "absent"),
            ("restricted", &restricted, "restricted"),
            ("off", off, "off"),
            ("hidden", &hidden, "absent"),
            ("walled", &walled, "unknown"),
        ] {
            let words = format!("php {kind}; processes min=1 max=1");
            let site = serve(&format!("{name}-{kind}"), &words, settings, &[("a.php", "<?php echo 'fine';")]);
            if name != "walled" {
                site.visitor("one").get("/a.php").shows("fine");
            }
            for _ in 0..3 {
                let opcache = told(&site);
                assert_eq!(opcache["state"], state, "{kind} {name}: {opcache}");
            }
            let log = fs::read_to_string(site.folder.join("error.log")).unwrap_or_default();
            assert!(!log.to_lowercase().contains("opcache"), "{kind} {name}: {log}");
        }
    }
}

/// What is told of the cache, once the pool serves and one of its processes had time: a busy machine may keep it from that
/// longer than the server waits.
fn told(site: &Site) -> Value {
    for _ in 0..2000 {
        let pool = pool(site);
        let opcache = &pool["opcache"];
        if !opcache.is_null() && opcache["why"] != "no process had time to tell" {
            return opcache.clone();
        }
    }
    panic!("the pool does not serve: {}", pool(site));
}

/// FAULTS 65, with what PHP has to say: every line once, and a trace whole.
fn writes_every_line_once(kind: &str) {
    let folder = folder(&format!("lines-{kind}"));
    fs::create_dir(folder.join("site")).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let code = "<?php ini_set('log_errors', '1'); ini_set('error_log', ''); for ($i = 0; $i < 95; $i++) error_log(\"entry $i.\");\n\
                function f() { throw new Exception('no'); } f();";
    fs::write(folder.join("site/a.php"), code).unwrap();
    fs::write(
        folder.join("own.kdl"),
        format!(
            "workers 1\nlisten \"${{LISTEN}}\"\npool \"php\" {{ php \"{kind}\"; output \"lines.log\" }}\n\
             site {{ root \"site\"; route \"*.php\" {{ fastcgi \"php\" }} }}\n"
        ),
    )
    .unwrap();
    let log = folder.join("lines.log");
    let site = Site::start(folder.join("own.kdl").to_str().unwrap(), folder, &[]);
    site.visitor("one").get("/a.php");
    let text =
        wait_for(|| fs::read_to_string(&log).ok().filter(|text| text.contains("thrown in")), "the trace");
    for n in 0..95 {
        assert_eq!(text.matches(&format!("entry {n}.")).count(), 1, "entry {n} of {kind}:\n{text}");
    }
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("Uncaught Exception: no")).expect("it is there");
    for (line, what) in lines[at + 1..].iter().zip(["Stack trace:", "#0 ", "#1 {main}", "  thrown in"]) {
        assert!(line.contains(" error: ") && line.contains(what), "{what} in {line}");
    }
    assert_eq!(text.matches("Uncaught Exception").count(), 1, "{text}");
}

#[test]
fn php_fpm_writes_every_line_once() {
    if has(&["curl", "php-fpm8.2"]) {
        writes_every_line_once("fpm");
    }
}

#[test]
fn php_cgi_writes_every_line_once() {
    if has(&["curl", "php-cgi"]) {
        writes_every_line_once("cgi");
    }
}

/// Uploads and sessions lie in a folder of the pool's user, in memory where the settings say so.
fn keeps_uploads_and_sessions_apart(kind: &str, is_in_memory: bool) {
    let folder = folder(&format!("temporary-{kind}-{is_in_memory}"));
    fs::create_dir(folder.join("site")).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let code = "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; header('Content-Type: text/plain');\n\
                $file = $_FILES['file']['tmp_name'] ?? '';\n\
                echo json_encode([$_SESSION['n'], session_save_path(), dirname($file), @file_get_contents($file)],\n\
                     JSON_UNESCAPED_SLASHES);";
    fs::write(folder.join("site/a.php"), code).unwrap();
    fs::write(folder.join("up"), "the upload").unwrap();
    let place = fs::canonicalize(&folder).unwrap();
    let temporary = if is_in_memory { "memory".into() } else { format!("\"{}/kept\"", place.display()) };
    let text = format!(
        "workers 1\nlisten \"${{LISTEN}}\"\npool \"p{}\" {{ php \"{kind}\"; temporary {temporary} }}\n\
         site {{ root \"site\"; route \"*.php\" {{ fastcgi \"p{}\" }} }}\n",
        std::process::id(),
        std::process::id()
    );
    fs::write(folder.join("own.kdl"), text).unwrap();
    let site = Site::start(folder.join("own.kdl").to_str().unwrap(), folder.clone(), &[]);
    let visitor = site.visitor("one");
    let seen = visitor.upload("/a.php", &[&format!("file=@{}", folder.join("up").display())]);
    let seen: Value = serde_json::from_str(&seen.text).unwrap_or_else(|_| panic!("{seen:#?}"));
    let (sessions, uploads) = (seen[1].as_str().unwrap(), seen[2].as_str().unwrap());
    assert_eq!(seen[3], "the upload", "{seen}");
    let sessions = std::path::Path::new(sessions);
    assert!(sessions.ends_with("sessions") && uploads.ends_with("uploads"), "{seen}");
    assert_eq!(sessions.starts_with("/dev/shm") || sessions.starts_with("/run"), is_in_memory, "{seen}");
    assert_eq!(sessions.starts_with(&place), !is_in_memory, "{seen}");
    assert_eq!(fs::metadata(sessions).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 1);
    // Nothing of the upload is left, once PHP has put away the request that it has answered.
    wait_for(|| (fs::read_dir(uploads).unwrap().count() == 0).then_some(()), "the upload has gone");
    if is_in_memory {
        fs::remove_dir_all(sessions.parent().unwrap()).unwrap();
    }
}

#[test]
fn php_fpm_keeps_uploads_and_sessions_apart() {
    if has(&["curl", "php-fpm8.2"]) {
        keeps_uploads_and_sessions_apart("fpm", false);
        keeps_uploads_and_sessions_apart("fpm", true);
    }
}

#[test]
fn php_cgi_keeps_uploads_and_sessions_apart() {
    if has(&["curl", "php-cgi"]) {
        keeps_uploads_and_sessions_apart("cgi", false);
        keeps_uploads_and_sessions_apart("cgi", true);
    }
}
