//! WordPress on PHP and MariaDB: installed, a post with an image published, read and administered, all
//! through HTTP.

use crate::site::{Page, Site, Visitor, example, folder, has};
use serde_json::{Value, json};
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

    let login = |visitor: &Visitor<'_>, password: &str| -> Page {
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
    let media: Value = serde_json::from_str(&media).unwrap();
    let source = media[0]["source_url"].as_str().unwrap().to_owned();
    let copy = site.folder.join("copy.png");
    admin.curl(&["--output", copy.to_str().unwrap(), &source]);
    assert!(fs::read(&copy).unwrap() == fs::read(&image).unwrap());

    // A post goes up through the interface that the editor uses.
    let editor = Editor::new(&site, &admin);
    let created = editor.post(&json!({
        "title": "High water",
        "status": "publish",
        "content": format!("<p>The tide is in.</p><img src=\"{source}\">"),
    }));

    // Everyone reads it.
    let reader = site.visitor("reader");
    reader.get("/").shows("Behind Tidegate").shows("High water");
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
    pages_are_kept_for_visitors(&site, &editor, &created["id"]);
}

/// The interface that the editor of WordPress uses.
struct Editor<'a> {
    admin: &'a Visitor<'a>,
    url: String,
    nonce: String,
}

impl<'a> Editor<'a> {
    fn new(site: &Site, admin: &'a Visitor<'a>) -> Editor<'a> {
        let nonce = admin.get("/wp-admin/admin-ajax.php?action=rest-nonce").text;
        let url = format!("{}/index.php?rest_route=/wp/v2/", site.url);
        Editor { admin, url, nonce: format!("X-WP-Nonce: {nonce}") }
    }

    /// Makes or changes something.
    #[track_caller]
    fn send(&self, what: &str, body: &Value) -> Value {
        let (url, body) = (format!("{}{what}", self.url), body.to_string());
        let headers = ["-H", &self.nonce, "-H", "Content-Type: application/json"];
        let answer = self.admin.curl(&[&headers[..], &["--data", &body, &url]].concat());
        assert!(matches!(answer.status, 200 | 201), "{answer:#?}");
        serde_json::from_str(&answer.text).unwrap()
    }

    fn post(&self, body: &Value) -> Value {
        self.send("posts", body)
    }
}

/// The plug-in of the example has pages kept, and those that show what has changed dropped, by the answer to the request that changes it.
fn pages_are_kept_for_visitors(site: &Site, editor: &Editor<'_>, high: &Value) {
    editor.post(&json!({ "title": "Low water", "status": "publish", "content": "The tide is out." }));
    let reader = site.visitor("another");
    let look = |more: &[&str], path: &str| {
        let url = format!("{}{path}", site.url);
        reader.curl(&[more, &["--include", &url]].concat())
    };
    let visit = |path: &str| look(&[], path);
    // Not `/`: that was the way to the installation, of which is remembered for two minutes that it is not to be stored.
    let pages = ["/high-water/", "/low-water/", "/feed/", "/category/uncategorized/"];
    for path in pages {
        visit(path);
        let page = visit(path);
        assert!(page.text.contains("Cache-Status: pages; hit; ttl="), "{page:#?}");
        assert!(!page.text.contains("Surrogate-Key"), "{page:#?}");
    }
    // Not for who is logged in, and not for who has left a comment.
    let own = editor.admin.curl(&["--include", &format!("{}/high-water/", site.url)]);
    assert!(own.text.contains("Cache-Status: pages; fwd=bypass"), "{own:#?}");
    assert!(own.text.contains("wp-admin-bar"), "{own:#?}");
    let commenter = look(&["-H", "Cookie: comment_author_1=Ann"], "/high-water/");
    assert!(commenter.text.contains("Cache-Status: pages; fwd=bypass"), "{commenter:#?}");
    assert!(!visit("/high-water/").text.contains("wp-admin-bar"));
    assert!(visit("/feed/?utm_source=tide").text.contains("pages; hit"));

    // A change is seen at once by all, wherever the post is shown; other pages stay.
    let is_fetched = |path: &str| {
        let page = visit(path);
        assert!(page.text.contains("; stored"), "{page:#?}");
        page
    };
    editor.send(&format!("posts/{high}"), &json!({ "title": "Highest water" }));
    is_fetched("/high-water/").shows("Highest water");
    is_fetched("/feed/").shows("Highest water");
    is_fetched("/category/uncategorized/").shows("Highest water");
    assert!(visit("/low-water/").text.contains("pages; hit"));
    // A comment of somebody else.
    let comment = json!({
        "post": high,
        "content": "Ankle-deep.",
        "author_name": "Bob",
        "author_email": "bob@example.com",
        "status": "approved",
    });
    editor.send("comments", &comment);
    is_fetched("/high-water/").shows("Ankle-deep.");
    assert!(visit("/low-water/").text.contains("pages; hit"));
    // A link that changes something is no unsafe request: the plug-in tells of it by one of its own.
    let list = editor.admin.get("/wp-admin/edit.php");
    let trash = list.between(&format!("post.php?post={high}&amp;action=trash&amp;_wpnonce="), "\"");
    let nonce = trash.unwrap_or_else(|| panic!("no link to the trash in {list:#?}"));
    editor.admin.get(&format!("/wp-admin/post.php?post={high}&action=trash&_wpnonce={nonce}"));
    assert_eq!(visit("/high-water/").status, 404);
    assert!(!is_fetched("/feed/").text.contains("Highest water"));
    assert!(visit("/low-water/").text.contains("pages; hit"));
    // Nobody else can have pages dropped.
    let forged = ["--data", "tidegate_groups=site&tidegate_key=a"];
    look(&forged, "/wp-login.php");
    assert!(visit("/low-water/").text.contains("pages; hit"));
}

/// One white pixel.
const SMALLEST_PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0,
    1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 10, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0xf8,
    0x0f, 0, 1, 1, 1, 0, 0x1b, 0xb6, 0xee, 0x56, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];
