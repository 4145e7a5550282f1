//! A Rack application on Puma: forms, redirects, chunked answers, uploads.

use crate::site::{Site, folder, has};
use std::fs;

#[test]
fn ruby_on_puma() {
    if !has(&["curl", "puma", "rackup"]) {
        return;
    }
    let site = Site::start("ruby.kdl", folder("ruby"), &[]);
    let visitor = site.visitor("one");
    visitor.get("/").shows("<h1>Guestbook</h1><ul></ul>");
    visitor
        .post("/", &[("text", "<b>first</b> & last")])
        .shows("<li>&lt;b&gt;first&lt;/b&gt; &amp; last</li>");
    assert_eq!(visitor.post("/", &[("none", "")]).status, 400);
    visitor.get("/stream").shows("line 0\nline 1\n").shows("line 9\n");
    let file = site.folder.join("large.bin");
    fs::write(&file, vec![7; 5_000_000]).unwrap();
    let body = format!("@{}", file.display());
    let url = format!("{}/digest", site.url);
    visitor.curl(&["--data-binary", &body, &url]).shows("\"length\":5000000");
    visitor
        .curl(&["-H", "Transfer-Encoding: chunked", "--data-binary", &body, &url])
        .shows("\"length\":5000000");
    assert_eq!(visitor.get("/none").status, 404);
}
