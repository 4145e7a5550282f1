//! CGI programs in C and Perl.

use crate::site::{Site, example, folder, has};
use std::fs;
use std::process::Command;
use tidegate_testkit::InTime;

#[test]
fn cgi_in_c_and_perl() {
    if !has(&["curl", "cc", "perl"]) {
        return;
    }
    let folder = folder("cgi");
    let scripts = folder.join("cgi-bin");
    fs::create_dir(&scripts).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-o"]).arg(scripts.join("printenv.cgi")).arg(example("cgi/printenv.c"));
    assert!(compile.status_in_time().success());
    fs::copy(example("cgi/printenv.pl"), scripts.join("printenv.pl")).unwrap();
    let scripts = scripts.to_str().unwrap().to_owned();
    let site = Site::start("cgi.kdl", folder, &[("SCRIPTS", &scripts)]);
    let visitor = site.visitor("one");
    for script in ["printenv.cgi", "printenv.pl"] {
        let page = visitor
            .curl(&[
                "-H",
                "Proxy: evil",
                "-H",
                "X-Field: value",
                "-d",
                "a=b",
                &format!("{}/cgi-bin/{script}/more/path?q=1", site.url),
            ])
            .shows("GATEWAY_INTERFACE=CGI/1.1\n")
            .shows("REQUEST_METHOD=POST\n")
            .shows(&format!("SCRIPT_NAME=/cgi-bin/{script}\n"))
            .shows("PATH_INFO=/more/path\n")
            .shows("QUERY_STRING=q=1\n")
            .shows("HTTP_X_FIELD=value\n")
            .shows("CONTENT_LENGTH=3\n")
            .shows("content of 3 bytes");
        assert!(!page.text.contains("evil"), "FAULTS 36: {page:#?}");
    }
    assert_eq!(visitor.get("/cgi-bin/none.cgi").status, 404);
}
