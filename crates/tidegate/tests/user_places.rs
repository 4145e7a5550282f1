//! Where `check` says what is wrong with users, and what that costs: hooks of users that there are not, logs that others can
//! replace.

mod running;

use running::Folder;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A hook of a site with an unknown user costs that site alone, and each hook has its place.
#[test]
fn an_unknown_user_of_a_hook_has_its_place_and_costs_no_other_site() {
    let folder = Folder::new("users-of-hooks");
    let config = folder.write(
        "tidegate.kdl",
        "listen \"127.0.0.1:0\"\n\
         site \"bad.test\" {\n    respond 200\n    on rate above=9 run \"/bin/true\" user=\"nope\"\n}\n\
         site \"good.test\" { respond 200 }\n",
    );
    let checked = running::run(&folder, &["check", "--config", &config]);
    assert_eq!(checked.code, Some(1));
    assert!(
        checked.stderr.contains("tidegate.kdl:4:5: error: `on`: there is no user `nope`"),
        "{}",
        checked.stderr
    );
    assert!(
        checked.stderr.contains("site bad.test is left out; the other sites are served"),
        "{}",
        checked.stderr
    );
    // What is around sites is everybody's.
    let config = folder.write(
        "tidegate.kdl",
        "listen \"127.0.0.1:0\"\n\
         on rate above=9 run \"/bin/true\" user=\"nope\"\n\
         upstream \"u\" {\n    member \"127.0.0.1:9\"\n    on rate above=9 run \"/bin/true\" user=\"nope\"\n}\n\
         acme {\n    challenge \"dns-01\"\n    dns-hook \"/bin/true\" user=\"nope\"\n}\n\
         site \"a.test\" { proxy \"u\" }\n",
    );
    let checked = running::run(&folder, &["check", "--config", &config]);
    for (place, what) in [("2:1", "`on`"), ("5:5", "`on`"), ("9:5", "`dns-hook`")] {
        let said = format!("tidegate.kdl:{place}: error: {what}: there is no user `nope`");
        assert!(checked.stderr.contains(&said), "{said}: {}", checked.stderr);
    }
    assert_eq!(checked.stderr.matches("nothing is served").count(), 3, "{}", checked.stderr);
}

/// A log that everybody can replace is said with the place that names it.
#[test]
fn a_log_that_can_be_replaced_has_its_place() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root's logs are worth replacing");
        return;
    }
    let folder = Folder::new("users-of-logs");
    let open = folder.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let config = folder.write(
        "tidegate.kdl",
        "listen \"127.0.0.1:0\"\nerror-log \"open/e.log\"\n\
         site \"a.test\" { respond 200; access-log \"open/a.log\" }\n",
    );
    let checked = running::run(&folder, &["check", "--config", &config]);
    for place in ["2:1", "3:1"] {
        assert!(
            checked.stderr.contains(&format!("tidegate.kdl:{place}: warning: the log ")),
            "{place}: {}",
            checked.stderr
        );
    }
}
