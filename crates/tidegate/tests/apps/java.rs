//! A servlet with a session and a JDBC pool, on Tomcat.

use crate::site::{Site, folder, has};

#[test]
fn java_on_tomcat() {
    if !has(&["curl", "/usr/share/tomcat10/bin/catalina.sh", "ecj", "/usr/share/java/hsqldb.jar"]) {
        return;
    }
    let site = Site::start("java.kdl", folder("java"), &[]);
    let visitor = site.visitor("one");
    visitor.get("/guestbook").shows("visit 1 from 127.0.0.1 over http<");
    visitor.get("/guestbook").shows("visit 2 from");
    site.visitor("other").get("/guestbook").shows("visit 1 from");
    visitor.post("/guestbook", &[("text", "from <Tomcat>")]).shows("<li>from &lt;Tomcat&gt;</li>");
    assert_eq!(visitor.post("/guestbook", &[("none", "")]).status, 400);
    // More at once than the pool has connections.
    std::thread::scope(|scope| {
        for number in 0..16 {
            let visitor = site.visitor(&format!("many-{number}"));
            scope.spawn(move || visitor.get("/guestbook").shows("from &lt;Tomcat&gt;"));
        }
    });
}
