//! WordPress on PHP and MariaDB: installed, a post with an image published, read and administered, all
//! through HTTP.

use crate::site::{Page, Site, example, folder, has};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_testkit::InTime;

/// The database, ended with the test.
struct Database(PathBuf);

impl Database {
    fn prepare(folder: &Path) -> Database {
        let output = Command::new(example("wordpress/setup")).arg(folder).output_in_time();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Database(folder.to_owned())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = Command::new(example("wordpress/setup")).arg(&self.0).arg("stop").output();
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn wordpress() {
    if !has(&["curl", "php-cgi", "mariadbd", "mariadb-install-db", "/usr/share/wordpress/wp-login.php"]) {
        return;
    }
    let database = Database::prepare(&folder("wordpress-files"));
    let root = database.0.join("site");
    let site = Site::start("wordpress.kdl", folder("wordpress"), &[("SITE", root.to_str().unwrap())]);
    let admin = site.visitor("admin");

    // The famous five minutes.
    let page = admin.get("/").shows("Welcome to the famous five-minute WordPress installation process");
    assert!(page.url.ends_with("/wp-admin/install.php"), "{}", page.url);
    let form = [
        ("weblog_title", "Behind Tidegate"),
        ("user_name", "keeper"),
        ("admin_password", "a long way from the shore"),
        ("admin_password2", "a long way from the shore"),
        ("pw_weak", "on"),
        ("admin_email", "keeper@example.com"),
        ("Submit", "Install WordPress"),
    ];
    admin.post("/wp-admin/install.php?step=2", &form).shows("WordPress has been installed");

    let login = |visitor: &crate::site::Visitor<'_>, password: &str| -> Page {
        visitor.get("/wp-login.php").shows("Username or Email Address");
        let form = [("log", "keeper"), ("pwd", password), ("wp-submit", "Log In"), ("testcookie", "1")];
        visitor.post("/wp-login.php", &form)
    };
    let refused = login(&site.visitor("stranger"), "a guess");
    assert!(refused.text.contains("is incorrect"), "{refused:#?}");
    let page = login(&admin, "a long way from the shore").shows("Dashboard");
    assert!(page.url.ends_with("/wp-admin/"), "{}", page.url);

    // An image goes up, and comes back byte for byte.
    let nonce = admin.get("/wp-admin/media-new.php?browser-uploader").field("_wpnonce");
    let image = site.folder.join("tide.png");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site/logo.png"), &image)
        .or_else(|_| fs::write(&image, SMALLEST_PNG).map(|()| 0))
        .unwrap();
    let parts = [
        format!("async-upload=@{};type=image/png", image.display()),
        format!("_wpnonce={nonce}"),
        "html-upload=Upload".to_owned(),
    ];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    admin.upload("/wp-admin/media-new.php", &parts).shows("Media Library");
    let media = admin.get("/index.php?rest_route=/wp/v2/media").shows("tide").text;
    let media: serde_json::Value = serde_json::from_str(&media).unwrap();
    let source = media[0]["source_url"].as_str().unwrap().to_owned();
    let copy = site.folder.join("copy.png");
    admin.curl(&["--output", copy.to_str().unwrap(), &source]);
    assert!(fs::read(&copy).unwrap() == fs::read(&image).unwrap());

    // A post goes up through the interface that the editor uses.
    let nonce = admin.get("/wp-admin/admin-ajax.php?action=rest-nonce").text;
    let url = format!("{}/index.php?rest_route=/wp/v2/posts", site.url);
    let body = serde_json::json!({
        "title": "High water",
        "status": "publish",
        "content": format!("<p>The tide is in.</p><img src=\"{source}\">"),
    });
    let created = admin.curl(&[
        "-H",
        &format!("X-WP-Nonce: {nonce}"),
        "-H",
        "Content-Type: application/json",
        "--data",
        &body.to_string(),
        &url,
    ]);
    assert_eq!(created.status, 201, "{created:#?}");

    // Everyone reads it.
    let reader = site.visitor("reader");
    reader.get("/").shows("Behind Tidegate").shows("High water");
    let created: serde_json::Value = serde_json::from_str(&created.text).unwrap();
    let page = reader.get(created["link"].as_str().unwrap()).shows("The tide is in.");
    assert!(page.text.contains(&source), "{page:#?}");
    // And by a pretty address, once they are on.
    let nonce = admin.get("/wp-admin/options-permalink.php").field("_wpnonce");
    let form = [
        ("_wpnonce", nonce.as_str()),
        ("_wp_http_referer", "/wp-admin/options-permalink.php"),
        ("selection", "/%postname%/"),
        ("permalink_structure", "/%postname%/"),
        ("submit", "Save Changes"),
    ];
    admin.post("/wp-admin/options-permalink.php", &form).shows("Permalink Settings");
    reader.get("/high-water/").shows("The tide is in.");
    reader.get("/feed/").shows("<title>High water</title>");
    assert_eq!(reader.get("/no-such-post/").status, 404);
    // The stranger is sent to the login page, and the files of the configuration are code, not text.
    assert!(reader.get("/wp-admin/").url.contains("wp-login.php"));
    assert!(!reader.get("/wp-config.php").text.contains("DB_NAME"));
}

/// One white pixel.
const SMALLEST_PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0,
    1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 10, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0xf8,
    0x0f, 0, 1, 1, 1, 0, 0x1b, 0xb6, 0xee, 0x56, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];
