//! An application of every kind behind the server of a bench: pools of HTTP/1, FastCGI and SCGI, whose processes are
//! those of the random client (`tidegate-random application`), and a CGI script.
//!
//! Used by `reload` and `soak`: what a reload, a kill or a silence does to a request depends on what is behind it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;

use super::server::Setup;
use crate::workspace;

/// The words of `tidegate-random application`, and the directive of each.
const PROTOCOLS: [(&str, &str); 3] =
    [("http1", "proxy \"http://"), ("fastcgi", "fastcgi \""), ("scgi", "scgi \"")];
/// What each application is asked: a nonce, and 2,000 bytes of it.
const QUERY: &str = "n=1&l=2000&u=0";

const SCRIPT: &str = "#!/bin/sh\nprintf 'Content-Length: 6\\r\\n\\r\\nhello\\n'\n";

/// Builds what the pools run and adds them, with their routes, to the settings; the paths that they answer.
pub fn add(setup: &mut Setup) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let program = build()?;
    for (protocol, directive) in PROTOCOLS {
        setup.directives.push_str(&format!(
            "pool \"{protocol}\" {{\n    command {:?} \"application\" \"{protocol}\"\n    \
             processes min=1 max=4 idle=\"1s\"\n    places 16\n    queue length=10000 age=\"30s\"\n}}\n",
            program.display().to_string()
        ));
        // A mount says that the application is no file below the root.
        let mount = if protocol == "http1" { String::new() } else { format!(" {{ mount \"/{protocol}\" }}") };
        setup
            .site_directives
            .push_str(&format!("; route \"/{protocol}/*\" {{ {directive}{protocol}\"{mount} }}"));
        paths.push(format!("/{protocol}/x?{QUERY}"));
    }
    let scripts = setup.folder.join("scripts");
    fs::create_dir_all(&scripts)?;
    fs::write(scripts.join("hello.sh"), SCRIPT)?;
    fs::set_permissions(scripts.join("hello.sh"), fs::Permissions::from_mode(0o755))?;
    setup
        .directives
        .push_str("pool \"cgi\" { cgi-stubs; processes max=8; queue length=10000 age=\"30s\" }\n");
    setup
        .site_directives
        .push_str(&format!("; route \"/cgi/*\" {{ cgi; alias {:?} }}", scripts.display().to_string()));
    paths.push("/cgi/hello.sh".to_owned());
    Ok(paths)
}

fn build() -> Result<PathBuf> {
    let mut build = workspace::cargo();
    build.args(["build", "--quiet", "--locked", "-p", "tidegate-testkit", "--bin", "tidegate-random"]);
    workspace::run(&mut build)?;
    Ok(workspace::target_directory().join("debug/tidegate-random"))
}
