//! PHP by php-cgi and by php-fpm: pages, sessions, path information, uploads.

use crate::site::{Site, example, folder, has};
use std::fs;

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
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
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
