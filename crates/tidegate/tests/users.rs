//! Who applications are, and what of the server is out of their reach (FAULTS 61).
//!
//! A server that is started as root gives everything it starts another user. These tests are root themselves, or are
//! skipped loudly: a user that cannot be changed shows nothing. The master gets the capabilities of the unit that is
//! shipped, by setpriv(1), so that what is shown holds there.

mod running;

use running::accounts::{as_user, before, binary, certificate, of_unit, script, user};
use running::{BINARY, Folder, Load, Server, get, wait_for};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_testkit::InTime;

fn id_of(name: &str) -> u32 {
    let output = Command::new("id").args(["-u", name]).output_in_time();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// The command as the unit runs it: as root with its capabilities, and never more.
fn as_in_the_unit(command: &Command) -> Command {
    assert_eq!(of_unit("User"), Vec::<String>::new(), "another user than root is not what is shown here");
    let capabilities = of_unit("CapabilityBoundingSet").concat().to_lowercase();
    let kept: String =
        capabilities.split(' ').map(|name| format!(",+{}", name.trim_start_matches("cap_"))).collect();
    let mut confined = Command::new("setpriv");
    confined.arg(format!("--bounding-set=-all{kept}")).args(["--inh-caps=-all", "--no-new-privs"]);
    before(confined, command)
}

/// A folder that others may enter and write to, with the storage of keys and a key in it.
fn prepared(name: &str) -> Folder {
    let folder = Folder::new(name);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// What an attacker tries within an application; each line says what came of it.
fn attack(server: &Server<'_>) -> String {
    let (dir, master) = (server.folder.0.display(), server.child.id());
    // They are the same user, and hold the keys of certificates in memory.
    let servers =
        server.processes().iter().map(|pid| pid.as_raw_nonzero().to_string()).collect::<Vec<_>>().join(" ");
    assert!(!servers.is_empty());
    let binary = binary();
    format!(
        "echo \"user $(id -u) groups $(id -G)\"\n\
         cat {dir}/acme/local/root.key >/dev/null 2>&1 && echo 'READ the key of the local authority'\n\
         cat {dir}/acme/certificates/*/certificate.pem >/dev/null 2>&1 && echo 'READ a key'\n\
         ls {dir}/acme >/dev/null 2>&1 && echo 'LISTED the storage'\n\
         cat {dir}/site.key >/dev/null 2>&1 && echo 'READ the key of the settings'\n\
         cat /etc/shadow >/dev/null 2>&1 && echo 'READ shadow'\n\
         (head -c 1 <&9) 2>/dev/null | grep -q . && echo 'READ what the shell had open'\n\
         {binary} status --control {dir}/control >/dev/null 2>&1 && echo 'USED the control socket'\n\
         {binary} stop --now --control {dir}/control >/dev/null 2>&1 && echo 'STOPPED the server'\n\
         kill -9 {master} 2>/dev/null && echo 'KILLED the master'\n\
         for task in {master} {servers}; do\n\
             prlimit --pid $task --nofile=3:3 2>/dev/null && echo \"OPENED the limits of $task\"\n\
         done\n\
         for task in {master} {servers}; do\n\
             head -c 1 /proc/$task/mem >/dev/null 2>&1; test -r /proc/$task/mem && echo \"OPENED the memory of $task\"\n\
             cat /proc/$task/environ >/dev/null 2>&1 && echo \"READ the environment of $task\"\n\
         done\n\
         echo done\n"
    )
}

fn settings(folder: &Folder, lines: &str) -> String {
    format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\" {{ tls }}\n\
         listen \"127.0.0.1:0\" {{ tls certificate=\"site.pem\" key=\"site.key\" }}\n\
         acme {{ storage \"{dir}/acme\" }}\n{lines}\n",
        dir = folder.0.display()
    )
}

/// The same, from a shell that has left a key open.
fn with_a_key_left_open(command: &Command, key: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "key=$0; exec \"$@\" 9<\"$key\""]).arg(key);
    before(shell, command)
}

fn begin<'a>(folder: &'a Folder, lines: &str, name: &str) -> Server<'a> {
    certificate(folder);
    fs::create_dir_all(folder.path("cgi-bin")).unwrap();
    let server = Server::through(folder, &settings(folder, lines), |mut command| {
        command.args(["--user", name]);
        with_a_key_left_open(&as_in_the_unit(&command), &folder.path("site.key"))
    });
    let key = folder.path("acme/local/root.key");
    wait_for(|| key.exists().then_some(()), "the local authority to be made");
    server
}

fn seen(answer: &str, number: u32) {
    assert!(answer.contains(&format!("user {number} ")), "{answer}");
    assert!(answer.contains("done"), "{answer}");
    for word in ["READ", "LISTED", "USED", "STOPPED", "KILLED", "OPENED"] {
        assert!(!answer.contains(word), "{answer}");
    }
    let groups = answer.split("groups ").nth(1).unwrap().lines().next().unwrap();
    assert!(!groups.split(' ').any(|group| group == "0"), "{answer}");
}

#[test]
fn a_script_has_the_servers_user_and_reaches_nothing_of_the_server() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("users-cgi");
    let lines =
        "site \"localhost\" { respond 200 \"fine\"\n route \"/cgi-bin/*\" { cgi; alias \"cgi-bin\" } }";
    let server = begin(&folder, lines, &name);
    let head = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n";
    script(&folder, "cgi-bin/attack", &format!("{head}{}", attack(&server)));
    seen(&get(&server.address, "/cgi-bin/attack").unwrap(), number);
    // All of it is still there, and root's own.
    assert_eq!(server.body("/"), "fine");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(folder.path("acme")), 0o700);
    assert_eq!(mode(folder.path("acme/local/root.key")), 0o600);
    assert_eq!(mode(folder.path("control")), 0o600);
    let said = server.tell(&["status"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    // A key that everybody may read is no secret of the master's, and that is said.
    let warned = || running::run(&folder, &["check", "--config", "tidegate.kdl"]).stderr;
    assert!(!warned().contains("may be read by everybody"), "{}", warned());
    fs::set_permissions(folder.path("site.key"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(warned().contains("site.key may be read by everybody"), "{}", warned());
}

#[test]
fn php_has_the_servers_user_and_reaches_nothing_of_the_server() {
    let Some((name, number)) = user() else { return };
    for kind in ["cgi", "fpm"] {
        let program = if kind == "cgi" { "php-cgi" } else { "php-fpm8.2" };
        if !["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(program).exists()) {
            eprintln!("SKIPPED: {program} is not installed");
            continue;
        }
        let folder = prepared(&format!("users-{kind}"));
        let lines = format!(
            "pool \"php\" {{ php \"{kind}\"; processes min=1 max=2 }}\n\
             site \"localhost\" {{ root \"www\"; route \"*.php\" {{ fastcgi \"php\" {{ timeout \"60s\" }} }} }}"
        );
        fs::create_dir_all(folder.path("www")).unwrap();
        let server = begin(&folder, &lines, &name);
        script(&folder, "attack", &format!("#!/bin/sh\n{}", attack(&server)));
        let code = format!(
            "<?php echo 'php ', posix_geteuid(), \"\\n\"; passthru('{}');",
            folder.path("attack").display()
        );
        fs::write(folder.path("www/attack.php"), code).unwrap();
        let answer = wait_for(|| get(&server.address, "/attack.php").ok(), "PHP to answer");
        assert!(answer.contains(&format!("php {number}\n")), "{kind}: {answer}");
        seen(&answer, number);
        // Nor is its parent root: it loads what the application says, too.
        let status = server.status();
        let parent = status["pools"][0]["processes"][0]["pid"].as_u64().unwrap();
        assert_eq!(fs::metadata(format!("/proc/{parent}")).unwrap().uid(), number, "{kind}");
    }
}

/// A program that answers with its user, by number, and where it is given an argument ends at once unless that is root.
fn application(folder: &Folder) -> String {
    let text = "import os, socket, sys\n\
                if os.geteuid() != 0 and len(sys.argv) > 1: sys.exit(3)\n\
                s = socket.socket(fileno=3)\n\
                while True:\n\
                \x20 c, _ = s.accept()\n\
                \x20 c.recv(9999)\n\
                \x20 body = str(os.geteuid())\n\
                \x20 c.sendall(('HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body)).encode())\n\
                \x20 c.close()\n";
    fs::write(folder.path("app.py"), text).unwrap();
    folder.path("app.py").display().to_string()
}

#[test]
fn a_command_and_its_hook_have_the_servers_user_and_root_is_who_says_so() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("users-command");
    let app = application(&folder);
    let hook = folder.path("hook").display().to_string();
    let pool = |name: &str, more: &str| {
        format!("pool \"{name}\" {{ command \"python3\" \"{app}\"; socket auto pass=descriptor; {more} }}\n")
    };
    let own = pool("own", &format!("on concurrency above=0 rearm=0 run \"sh\" \"-c\" \"id -u > {hook}\""));
    let lines = format!(
        "user \"{name}\"\n{own}{}site \"localhost\" {{ proxy \"http://own\"; route \"/root\" {{ proxy \"http://root\" }} }}",
        pool("root", "user \"root\"")
    );
    let text = format!("workers 1\nlisten \"127.0.0.1:0\"\n{lines}\n");
    let server = Server::with_config(&folder, &text);
    let said = server.seen.join("\n");
    assert_eq!(wait_for(|| get(&server.address, "/").ok(), "an answer"), number.to_string());
    assert_eq!(wait_for(|| get(&server.address, "/root").ok(), "an answer"), "0");
    let hooked = || fs::read_to_string(folder.path("hook")).ok().filter(|text| text.ends_with('\n'));
    // The number under way is looked at now and then; requests come until it was seen.
    let hooked = wait_for(
        || {
            get(&server.address, "/").unwrap();
            hooked()
        },
        "the hook",
    );
    assert_eq!(hooked.trim(), number.to_string());
    // Start and `check` say who is who.
    let checked = running::run(&folder, &["check", "--config", "tidegate.kdl"]);
    for said in [said, checked.stdout] {
        assert!(said.contains(&format!("pool own runs as {name}, the server's `user`")), "{said}");
        assert!(said.contains("pool root runs as root, as it says"), "{said}");
    }
    // A user that is none of this system is found before anything changes.
    let wrong = text.replace("user \"root\"", "user \"no-such-user\"");
    folder.write("tidegate.kdl", &wrong);
    let reloaded = server.tell(&["reload"]);
    assert!(reloaded.stderr.contains("there is no user `no-such-user`"), "{}", reloaded.stderr);
    let checked = running::run(&folder, &["check", "--config", "tidegate.kdl"]);
    assert!(checked.stderr.contains("there is no user `no-such-user`"), "{}", checked.stderr);
    assert_eq!(checked.code, Some(1));
    assert_eq!(server.body("/root"), "0");
}

/// Sockets of pools are for the server processes, whichever user those have: of a pool that stays as well.
#[test]
fn a_reload_that_changes_the_user_leaves_pools_and_scripts_in_reach() {
    let Some((name, number)) = user() else { return };
    let Some(nobody) = Some("nobody").filter(|nobody| *nobody != name) else {
        eprintln!("SKIPPED: this system has but one user to change to");
        return;
    };
    let folder = prepared("users-change");
    let text = "import os, socket\n\
                s = socket.socket(fileno=3)\n\
                while True:\n\
                \x20 c, _ = s.accept()\n\
                \x20 c.recv(9999)\n\
                \x20 body = str(os.geteuid())\n\
                \x20 c.sendall(('HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body)).encode())\n\
                \x20 c.close()\n";
    fs::write(folder.path("app.py"), text).unwrap();
    script(&folder, "cgi-bin/id", "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nid -u\n");
    let app = folder.path("app.py").display().to_string();
    let pool = |name: &str, more: &str| {
        format!("pool \"{name}\" {{ command \"python3\" \"{app}\"; socket auto pass=descriptor; {more} }}\n")
    };
    let settings = |user: &str| {
        format!(
            "workers 1\nuser \"{user}\"\nlisten \"127.0.0.1:0\"\n{}{}\
             site \"localhost\" {{ proxy \"http://follows\"; route \"/stays\" {{ proxy \"http://stays\" }}\n\
             route \"/cgi-bin/*\" {{ cgi; alias \"cgi-bin\" }} }}\n",
            pool("follows", ""),
            pool("stays", &format!("user \"{name}\""))
        )
    };
    let server = Server::with_config(&folder, &settings(&name));
    let paths = ["/", "/stays", "/cgi-bin/id"];
    // It may have come in chunks.
    let is_of = |answer: &str, number: u32| answer.lines().any(|line| line == number.to_string());
    for path in paths {
        let answer = wait_for(|| get(&server.address, path).ok(), "an answer");
        assert!(is_of(&answer, number), "{answer}");
    }
    let other = id_of(nobody);
    for (user, number) in [(nobody, other), (&name, number)] {
        let before = server.processes();
        let loads = paths.map(|path| Load::on_path(&server.address, path));
        folder.write("tidegate.kdl", &settings(user));
        let reloaded = server.tell(&["reload"]);
        assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
        let is_over = || server.processes().iter().all(|pid| !before.contains(pid)).then_some(());
        wait_for(is_over, "the processes before to end");
        for path in ["/", "/cgi-bin/id"] {
            let is_its = || is_of(&get(&server.address, path).unwrap(), number);
            wait_for(|| is_its().then_some(()), "an application of the new user");
        }
        get(&server.address, "/stays").unwrap();
        for load in loads {
            load.end();
        }
    }
}

/// A right that the settings have taken away is gone with the reload, though the application does not work without it.
#[test]
fn a_reload_that_takes_root_away_from_a_pool_leaves_no_process_of_root_serving() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("users-taken-away");
    let app = application(&folder);
    let settings = |user: &str| {
        let pool = |name: &str, more: &str| {
            format!(
                "pool \"{name}\" {{ command \"python3\" \"{app}\" {more}; socket auto pass=descriptor; {user} }}\n"
            )
        };
        format!(
            "workers 1\nuser \"{name}\"\nlisten \"127.0.0.1:0\"\n{}{}\
             site \"localhost\" {{ proxy \"http://works\"; route \"/needs\" {{ proxy \"http://needs\" }} }}\n",
            pool("works", ""),
            pool("needs", "\"root\"")
        )
    };
    let server = Server::with_config(&folder, &settings("user \"root\""));
    for path in ["/", "/needs"] {
        assert_eq!(wait_for(|| get(&server.address, path).ok(), "an answer"), "0");
    }
    let roots: Vec<u64> = pids(&server);
    folder.write("tidegate.kdl", &settings(""));
    let reloaded = server.tell(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    for pool in ["works", "needs"] {
        let said = format!("pool {pool}: processes of the user before get no further requests, and end");
        assert!(reloaded.stdout.contains(&said), "{}", reloaded.stdout);
    }
    wait_for(
        || (get(&server.address, "/").ok()? == number.to_string()).then_some(()),
        "the new user's answer",
    );
    let is_gone = |pid: &u64| !tidegate_testkit::is_running(*pid as u32);
    wait_for(|| roots.iter().all(is_gone).then_some(()), "the processes of root to end");
    let is_failing = || {
        let status = server.status();
        let pools = status["pools"].as_array().unwrap();
        pools.iter().any(|pool| pool["name"] == "needs" && pool["state"] == "failing").then_some(())
    };
    wait_for(is_failing, "the pool that needs root to fail");
    let refused = get(&server.address, "/needs").unwrap_err().to_string();
    assert!(refused.contains("HTTP/1.1 50"), "{refused}");
}

fn pids(server: &Server<'_>) -> Vec<u64> {
    let status = server.status();
    let pools = status["pools"].as_array().unwrap().iter();
    pools
        .flat_map(|pool| pool["processes"].as_array().unwrap())
        .map(|one| one["pid"].as_u64().unwrap())
        .collect()
}

/// A folder of keys that was the applications' user's before, as under an older unit, is root's own again.
#[test]
fn a_storage_that_others_could_read_is_taken_back() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("users-storage");
    fs::create_dir_all(folder.path("acme/local")).unwrap();
    for path in ["acme", "acme/local"] {
        fs::set_permissions(folder.path(path), fs::Permissions::from_mode(0o755)).unwrap();
        chown(folder.path(path), Some(number), Some(number)).unwrap();
    }
    let lines = "site \"localhost\" { respond 200 \"fine\" }";
    let _server = begin(&folder, lines, &name);
    for path in ["acme", "acme/local"] {
        let there = fs::metadata(folder.path(path)).unwrap();
        assert_eq!((there.uid(), there.mode() & 0o777), (0, 0o700), "{path}");
    }
}

/// A folder that root may write to and the server's user may not: found at the start, by `check`, and at a reload.
#[test]
fn a_spill_folder_that_the_servers_user_may_not_write_to_is_found() {
    let Some((name, _)) = user() else { return };
    let folder = prepared("users-spill");
    fs::create_dir(folder.path("spill")).unwrap();
    fs::create_dir(folder.path("closed")).unwrap();
    fs::create_dir(folder.path("closed/inner")).unwrap();
    fs::set_permissions(folder.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(folder.path("closed/inner"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(folder.path("spill"), fs::Permissions::from_mode(0o755)).unwrap();
    let text = |spill: &str| {
        format!(
            "workers 1\nuser \"{name}\"\nspill \"{spill}\"\nlisten \"127.0.0.1:0\"\n\
             site {{ root \".\"; route \"*.php\" {{ fastcgi \"127.0.0.1:9\" }} }}\n"
        )
    };
    for spill in ["spill", "closed/inner"] {
        let config = folder.write("tidegate.kdl", &text(spill));
        let started = running::run(&folder, &["serve", "--config", &config, "--control", "control"]);
        assert_eq!(started.code, Some(1));
        assert!(
            started.stderr.contains("cannot keep content of requests in the folder"),
            "{}",
            started.stderr
        );
        let checked = running::run(&folder, &["check", "--config", &config]);
        assert_eq!(checked.code, Some(1), "{}", checked.stderr);
        assert!(
            checked.stderr.contains("cannot keep content of requests in the folder"),
            "{}",
            checked.stderr
        );
    }
    fs::set_permissions(folder.path("spill"), fs::Permissions::from_mode(0o777)).unwrap();
    let server = Server::with_config(&folder, &text("spill"));
    folder.write("tidegate.kdl", &text("closed/inner"));
    let reloaded = server.tell(&["reload"]);
    assert_eq!(reloaded.code, Some(1), "{}", reloaded.stdout);
    assert!(reloaded.stderr.contains("revision 1 stays in force"), "{}", reloaded.stderr);
}

/// Who is not root can give nobody another user: `check` says whom each pool will be before and after root starts it, and
/// the server serves as it says.
#[test]
fn a_server_that_is_not_root_runs_a_pool_of_another_user_as_itself_and_says_so() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("other-user");
    let app = "import os, socket\n\
               s = socket.socket(fileno=3)\n\
               while True:\n\
               \x20 c, _ = s.accept()\n\
               \x20 c.recv(9999)\n\
               \x20 body = b'uid=%d' % os.getuid()\n\
               \x20 c.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body))\n\
               \x20 c.close()\n";
    fs::write(folder.path("app.py"), app).unwrap();
    let dir = folder.0.display();
    let text = format!(
        "listen \"127.0.0.1:0\"\nsandbox off\ncontrol \"control\"\n\
         pool \"app\" {{ command \"python3\" \"{dir}/app.py\"; user \"daemon\"; socket auto pass=descriptor }}\n\
         site {{ proxy \"http://app\" }}\n"
    );
    let said =
        format!("pool app runs as {name}, who starts the server: only a server that is started as root");
    folder.write("tidegate.kdl", &text);
    let mut check = Command::new(BINARY);
    check.args(["check", "--config"]).arg(folder.path("tidegate.kdl")).current_dir(&folder.0);
    let checked = as_user(&check, number, false).output_in_time();
    let shown =
        format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{shown}");
    assert!(shown.contains(&format!("warning: {said}")), "{shown}");
    assert!(shown.contains("started by root, pool app runs as daemon, as it says"), "{shown}");
    let server = Server::through(&folder, &text, |command| as_user(&command, number, false));
    assert!(server.seen.join("\n").contains(&said), "{:?}", server.seen);
    let answer = wait_for(|| get(&server.address, "/").ok(), "an answer");
    assert!(answer.ends_with(&format!("uid={number}")), "{answer}");
}

/// What only the start would say, `check` says: a socket that cannot be given away, secrets below a folder for everybody.
#[test]
fn check_by_an_ordinary_user_says_what_its_start_would() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("checked-by-other");
    let dir = folder.0.display();
    let check = |text: &str| {
        folder.write("tidegate.kdl", text);
        let mut check = Command::new(BINARY);
        check.args(["check", "--config"]).arg(folder.path("tidegate.kdl")).current_dir(&folder.0);
        let checked = as_user(&check, number, false).output_in_time();
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    let said = check(&format!("listen \"unix:{dir}/s.sock\" {{ group \"root\" }}\nsite {{ respond 200 }}\n"));
    let expected =
        format!("the socket cannot be given to group root: user {name}, who starts the server, is not in it");
    assert!(said.contains(&expected), "{said}");
    let said = check(&format!("listen \"unix:{dir}/s.sock\" {{ owner \"root\" }}\nsite {{ respond 200 }}\n"));
    assert!(
        said.contains("the socket cannot be given to user root: only a server that is started as root can"),
        "{said}"
    );
    if !tidegate_modules::gateway::supervise::seal::is_possible() {
        eprintln!("SKIPPED: this kernel has no landlock");
        return;
    }
    certificate(&folder);
    chown(folder.path("site.key"), Some(number), None).unwrap();
    let said = check(&format!(
        "listen \"127.0.0.1:1\" {{ tls certificate=\"site.pem\" key=\"site.key\" }}\ncontrol \"{dir}/control\"\n\
         pool \"app\" {{ command \"/bin/sh\"; socket auto pass=descriptor }}\nsite \"a.test\" {{ proxy \"http://app\" }}\n"
    ));
    let expected =
        format!("what the server starts as user {name} can reach {dir}/site.key: it lies below {dir}");
    assert!(said.contains(&expected), "{said}");
}

/// One user for everything: a script, an application and a hook are the master's user, and yet neither read its keys nor
/// command it. What lies beside is theirs as before.
#[test]
fn with_one_user_for_everything_landlock_keeps_keys_and_commands_apart() {
    let Some((_, number)) = user() else { return };
    if !tidegate_modules::gateway::supervise::seal::is_possible() {
        eprintln!("SKIPPED: this kernel has no landlock");
        return;
    }
    // As the unit may be written with `User=`, and from a shell.
    for is_unit in [false, true] {
        let folder = Folder::apart(&format!("one-user-{is_unit}"));
        certificate(&folder);
        for path in ["cgi-bin", "run", "data"] {
            fs::create_dir(folder.path(path)).unwrap();
        }
        let app = "import socket, subprocess\n\
                   s = socket.socket(fileno=3)\n\
                   while True:\n\
                   \x20 c, _ = s.accept()\n\
                   \x20 c.recv(9999)\n\
                   \x20 body = subprocess.run(['sh', 'data/attack'], stdout=subprocess.PIPE).stdout\n\
                   \x20 c.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body))\n\
                   \x20 c.close()\n";
        fs::write(folder.path("data/app.py"), app).unwrap();
        let dir = folder.0.display().to_string();
        let lines = format!(
            "pool \"app\" {{ command \"python3\" \"{dir}/data/app.py\"; folder \"{dir}\"; socket auto pass=descriptor\n\
             on concurrency above=0 rearm=0 run \"sh\" \"-c\" \"sh {dir}/data/attack > {dir}/data/hook; echo said so >&2\" }}\n\
             site \"localhost\" {{ respond 200 \"fine\"; route \"/app\" {{ proxy \"http://app\" }}\n\
             route \"/cgi-bin/*\" {{ cgi; alias \"cgi-bin\" }} }}"
        );
        for path in ["", "cgi-bin", "run", "data", "site.key", "site.pem"] {
            chown(folder.path(path), Some(number), Some(number)).unwrap();
        }
        let mut server = Server::through(&folder, &settings(&folder, &lines), |command| {
            as_user(&with_a_key_left_open(&command, &folder.path("site.key")), number, is_unit)
        });
        let key = folder.path("acme/local/root.key");
        wait_for(|| key.exists().then_some(()), "the local authority to be made");
        let text = server.seen.join("\n");
        assert!(text.contains("landlock keeps it from the server's keys and control socket"), "{text}");
        let own = "\n(echo kept > {dir}/data/made && mv {dir}/data/made {dir}/data/moved && cat {dir}/data/moved) \
                   && rm {dir}/data/moved && mktemp -u >/dev/null && t=$(mktemp) && echo kept > $t && rm $t && echo own\n\
                   rm -f {dir}/site.key {dir}/acme/local/root.key {dir}/control {dir}/control.proof 2>/dev/null \
                   && echo 'LISTED as removed'\n\
                   mv {dir}/acme {dir}/data/acme 2>/dev/null && echo 'READ by moving'\n\
                   kill -0 $$ && echo alive\n";
        // Names are no secret, and what lies beside them must be found.
        let attack: String = attack(&server)
            .lines()
            .filter(|line| !line.contains("LISTED"))
            .fold(String::new(), |all, line| if line == "echo done" { all } else { all + line + "\n" });
        let attack = attack + &own.replace("{dir}", &dir) + "echo done\n";
        script(&folder, "data/attack", &attack);
        let head = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n";
        script(&folder, "cgi-bin/attack", &format!("{head}{attack}"));
        for path in ["/cgi-bin/attack", "/app"] {
            let answer = wait_for(|| get(&server.address, path).ok(), "an answer");
            seen(&answer, number);
            for said in ["kept\n", "own\n", "alive\n"] {
                assert!(answer.contains(said), "{path}: {answer}");
            }
        }
        let hooked =
            || fs::read_to_string(folder.path("data/hook")).ok().filter(|text| text.contains("done"));
        let hooked = wait_for(
            || {
                get(&server.address, "/app").unwrap();
                hooked()
            },
            "the hook",
        );
        seen(&hooked, number);
        server.line("said so"); // what a hook writes is in the log
        assert_eq!(server.body("/"), "fine");
        // The operator, who is the same user, commands it.
        let mut reload =
            running::command(&folder, &["reload", "--control", server.control.as_deref().unwrap()]);
        reload = as_user(&reload, number, is_unit);
        let said = reload.output_in_time();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        // A folder that is new beside the key is the applications' with the next revision.
        fs::create_dir(folder.path("new")).unwrap();
        chown(folder.path("new"), Some(number), Some(number)).unwrap();
        let made = format!(
            "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho hello > {dir}/new/file; cat {dir}/new/file\n"
        );
        script(&folder, "cgi-bin/new", &made);
        assert!(!get(&server.address, "/cgi-bin/new").unwrap().contains("hello"));
        assert!(reload.status_in_time().success());
        wait_for(
            || get(&server.address, "/cgi-bin/new").ok().filter(|text| text.contains("hello")),
            "the scripts to see the new folder",
        );
    }
}

/// With one user for everything, applications make files right in the home of that user although the control socket lies
/// there: the proof is in a runtime folder, where the operator's commands find it, also from another home and after an
/// upgrade.
#[test]
fn with_one_user_for_everything_its_home_is_for_applications_too() {
    let Some((_, number)) = user() else { return };
    if !tidegate_modules::gateway::supervise::seal::is_possible() {
        eprintln!("SKIPPED: this kernel has no landlock");
        return;
    }
    let folder = Folder::apart("one-user-home");
    for path in ["home", "home/cgi-bin", "session", "elsewhere"] {
        fs::create_dir(folder.path(path)).unwrap();
        fs::set_permissions(folder.path(path), fs::Permissions::from_mode(0o700)).unwrap();
        chown(folder.path(path), Some(number), Some(number)).unwrap();
    }
    let (home, control) = (folder.path("home"), folder.path("home/control"));
    let text = format!(
        "listen \"127.0.0.1:0\"\ncontrol \"{}\"\n\
         site {{ root \"home\"; route \"/cgi-bin/*\" {{ cgi; alias \"home/cgi-bin\" }} }}\n",
        control.display()
    );
    let in_home = |command: Command, home: &Path| {
        let mut command = as_user(&command, number, false);
        command.env("HOME", home).env("XDG_RUNTIME_DIR", folder.path("session")).env_remove("XDG_DATA_HOME");
        command
    };
    let config = folder.write("tidegate.kdl", &text);
    let serve = running::command(&folder, &["serve", "--config", &config]);
    let mut server = Server::spawn(&folder, in_home(serve, &home));
    server.control = Some(control.display().to_string());
    let script_text = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n\
        echo kept > ../made && mv ../made ../moved && cat ../moved && rm ../moved && echo own\n\
        cat ../../session/tidegate/*.proof ../*.proof 2>/dev/null && echo READ\n";
    script(&folder, "home/cgi-bin/own", script_text);
    let proofs = || {
        let found = Command::new("find").arg(&folder.0).args(["-name", "*.proof"]).output_in_time();
        String::from_utf8(found.stdout).unwrap()
    };
    let tell = |home: &Path, arguments: &[&str]| {
        let control = control.display().to_string();
        let command = running::command(&folder, &[arguments, &["--control", &control]].concat());
        let said = in_home(command, home).output_in_time();
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    };
    let ask = || {
        let answer = wait_for(|| get(&server.address, "/cgi-bin/own").ok(), "an answer");
        assert!(answer.contains("kept\n") && answer.contains("own\n"), "{answer}");
        assert!(!answer.contains("READ"), "{answer}");
    };
    ask();
    assert!(proofs().contains("/session/tidegate/"), "{}", proofs());
    tell(&home, &["reload"]);
    tell(&folder.path("elsewhere"), &["status"]);
    tell(&home, &["upgrade"]);
    ask();
    tell(&folder.path("elsewhere"), &["reload"]);
    tell(&home, &["stop"]);
}

/// A script makes links to what is sealed from it; whoever asks for them gets nothing.
#[test]
fn with_one_user_for_everything_no_link_leads_clients_to_what_is_sealed() {
    let Some((_, number)) = user() else { return };
    if !tidegate_modules::gateway::supervise::seal::is_possible() {
        eprintln!("SKIPPED: this kernel has no landlock");
        return;
    }
    for symlinks in ["any", "owner"] {
        let folder = Folder::apart(&format!("one-user-links-{symlinks}"));
        certificate(&folder);
        let dir = folder.0.display().to_string();
        let head = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n";
        let link = format!(
            "{head}cd {dir}/www && ln -s ../site.key key && ln -s ../acme/local/root.key root && ln -s ../acme acme && \
             ln -s ../data/open open && ln -s ../control.proof proof && echo linked\n"
        );
        script(&folder, "cgi-bin/link", &link);
        script(&folder, "data/open", "an open file");
        for path in ["www", "run"] {
            fs::create_dir(folder.path(path)).unwrap();
        }
        for path in ["", "www", "cgi-bin", "run", "data", "data/open", "site.key", "site.pem"] {
            chown(folder.path(path), Some(number), Some(number)).unwrap();
        }
        let lines = format!(
            "site \"localhost\" {{ root \"www\"; symlinks \"{symlinks}\"\n\
             route \"/cgi-bin/*\" {{ cgi; alias \"cgi-bin\" }} }}"
        );
        let server =
            Server::through(&folder, &settings(&folder, &lines), |command| as_user(&command, number, true));
        let key = folder.path("acme/local/root.key");
        wait_for(|| key.exists().then_some(()), "the local authority to be made");
        let linked = wait_for(|| get(&server.address, "/cgi-bin/link").ok(), "the script");
        assert!(linked.contains("linked"), "{linked}");
        assert_eq!(server.body("/open"), "an open file", "{symlinks}");
        for path in ["/key", "/root", "/acme/local/root.key", "/proof"] {
            let answer = get(&server.address, path);
            assert!(answer.is_err(), "{symlinks} {path}: {answer:?}");
        }
    }
}

/// Whoever owns the folder of a log puts a link in its place: root writes nothing there, and says so.
#[test]
fn a_link_of_an_application_in_the_place_of_a_log_is_not_followed() {
    let Some((name, number)) = user() else { return };
    let folder = prepared("users-log");
    fs::create_dir(folder.path("log")).unwrap();
    chown(folder.path("log"), Some(number), Some(number)).unwrap();
    let log = folder.path("log/access.log").display().to_string();
    let text = format!(
        "workers 1\nuser \"{name}\"\nlisten \"127.0.0.1:0\"\naccess-log \"{log}\"\nsite {{ respond 200 \"fine\" }}\n"
    );
    let mut server = Server::with_config(&folder, &text);
    server.said("lies in a folder of user");
    let link = || {
        let _ = fs::remove_file(&log);
        std::os::unix::fs::symlink("../precious", &log).unwrap();
        std::os::unix::fs::lchown(&log, Some(number), Some(number)).unwrap();
    };
    link();
    server.signal(rustix::process::Signal::USR1);
    server.line("is a symbolic link of user");
    assert_eq!(server.body("/"), "fine");
    drop(server);
    let started = running::run(&folder, &["serve", "--config", "tidegate.kdl", "--control", "control"]);
    assert_eq!(started.code, Some(1), "{}", started.stderr);
    assert!(started.stderr.contains("is a symbolic link of user"), "{}", started.stderr);
    assert!(!folder.path("precious").exists());
    let checked = running::run(&folder, &["check", "--config", "tidegate.kdl"]);
    assert!(checked.stderr.contains(&format!("lies in a folder of user {name}")), "{}", checked.stderr);
}

/// Keys and passwords are for the user that starts the server; who may not read them is told what there is without.
#[test]
fn explain_works_without_root() {
    let Some((_, number)) = user() else { return };
    let folder = prepared("explain-without-root");
    certificate(&folder);
    for (name, text) in [
        ("passwords", "anna:$apr1$abcdefgh$paCto.rW8wn6thJ8b0QQY.\n"),
        ("keys", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"),
    ] {
        folder.write(name, text);
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder.write("index.html", "the page");
    let settings = "listen \"127.0.0.1:8443\" { tls certificate=\"site.pem\" key=\"site.key\" }\n\
         users \"staff\" { htpasswd \"passwords\" }\nurl-keys \"links\" \"keys\"\n\
         site \"a.test\" {\n root \".\"\n route \"/staff/*\" { login basic \"staff\" }\n route \"/dl/*\" { signed \"links\" }\n";
    folder.write("t.kdl", &format!("{settings}}}\n"));
    let explain = |url: &str| {
        let arguments = ["explain", "--config", "t.kdl", url];
        let output = as_user(&running::command(&folder, &arguments), number, false).output_in_time();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_explained, said) = explain("https://a.test:8443/");
    assert!(is_explained && said.contains("answer: 200 OK"), "{said}");
    for file in ["site.key", "passwords", "keys"] {
        let line = said.lines().find(|line| line.starts_with("not known: ") && line.contains(file));
        assert!(line.is_some(), "{file}: {said}");
    }
    let (is_explained, said) = explain("https://a.test:8443/staff/");
    assert!(is_explained && said.contains("answer: 401"), "{said}");
    // Any other mistake is one.
    folder.write("t.kdl", &format!("{settings} nonsense\n}}\n"));
    assert!(!explain("https://a.test:8443/").0);
}

/// The folders for uploads are made for the user of a pool; the way to them is the operator's.
#[test]
fn a_temporary_folder_that_the_pools_user_cannot_reach_is_found() {
    let Some((name, _)) = user() else { return };
    let folder = prepared("temporary-out-of-reach");
    for (path, mode) in [("shut", 0o700), ("open", 0o755)] {
        fs::create_dir(folder.path(path)).unwrap();
        fs::set_permissions(folder.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let check = |path: &str| {
        let dir = folder.0.display();
        folder.write(
            "t.kdl",
            &format!(
                "listen \"127.0.0.1:0\"\npool \"php\" {{ php; user \"{name}\"; temporary \"{dir}/{path}/php\" }}\n\
                 site {{ root \".\"; route \"*.php\" {{ fastcgi \"php\" }} }}\n"
            ),
        );
        running::run(&folder, &["check", "--config", "t.kdl"]).stderr
    };
    let said = check("shut");
    assert!(said.contains("the processes of pool php cannot write uploads and sessions below"), "{said}");
    let said = check("open");
    assert!(!said.contains("uploads and sessions"), "{said}");
}
