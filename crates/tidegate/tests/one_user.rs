//! A server that an ordinary user starts has one user for everything: what its applications try against it, from within a
//! CGI script (FAULTS 61). These tests are root, who starts the server as that user, or are skipped loudly.

mod running;

use running::accounts::{as_user, binary, certificate, script, user};
use running::{Folder, Server, get, wait_for};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Output;

/// The number of the user, where all this can be tried.
fn ordinary_user() -> Option<u32> {
    let (_, number) = user()?;
    if !tidegate_modules::gateway::supervise::seal::is_possible() {
        eprintln!("SKIPPED: this kernel has no landlock");
        return None;
    }
    Some(number)
}

/// A folder with a key in `keys`, a site in `www/site` and scripts in `cgi-bin`; all of it is the user's.
struct Ground {
    folder: Folder,
    number: u32,
}

impl Ground {
    fn new(name: &str, number: u32) -> Ground {
        let folder = Folder::apart(name);
        for path in ["keys", "cgi-bin", "www", "www/site", "run", "data"] {
            fs::create_dir(folder.path(path)).unwrap();
        }
        certificate(&folder);
        fs::rename(folder.path("site.key"), folder.path("keys/site.key")).unwrap();
        fs::write(folder.path("www/site/index.html"), "the site").unwrap();
        let ground = Ground { folder, number };
        for path in ["", "keys", "cgi-bin", "www", "www/site", "run", "data", "keys/site.key", "site.pem"] {
            ground.give(path);
        }
        ground.set_mode("keys", 0o700);
        ground
    }

    fn give(&self, path: &str) {
        chown(self.folder.path(path), Some(self.number), Some(self.number)).unwrap();
    }

    fn mode(&self, path: &str) -> u32 {
        fs::symlink_metadata(self.folder.path(path)).unwrap().mode() & 0o777
    }

    fn set_mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.folder.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn settings(&self, key: &str, more: &str) -> String {
        format!(
            "workers 1\nlisten \"127.0.0.1:0\"\nlisten \"127.0.0.1:0\" {{ tls certificate=\"site.pem\" key=\"{key}\" }}\n\
             pid-file \"run/tidegate.pid\"\n{more}\n\
             site \"localhost\" {{ root \"www/site\"; route \"/cgi-bin/*\" {{ cgi; alias \"cgi-bin\" }} }}\n"
        )
    }

    /// The server, with its control socket in `run`.
    fn serve(&self, settings: &str) -> Server<'_> {
        let config = self.folder.write("tidegate.kdl", settings);
        let control = self.folder.path("run/control").display().to_string();
        let command = running::command(&self.folder, &["serve", "--config", &config, "--control", &control]);
        let mut server = Server::spawn(&self.folder, as_user(&command, self.number, false));
        server.control = Some(control);
        server
    }

    /// A command of the operator, who is the same user.
    fn tell(&self, arguments: &[&str]) -> Output {
        self.tell_at("run/control", arguments)
    }

    fn tell_at(&self, control: &str, arguments: &[&str]) -> Output {
        let control = self.folder.path(control).display().to_string();
        let command = running::command(&self.folder, &[arguments, &["--control", &control]].concat());
        as_user(&command, self.number, false).output().unwrap()
    }

    /// Makes a script of a shell's lines; `DIR` is the folder.
    fn script(&self, name: &str, lines: &str) {
        let dir = self.folder.0.display().to_string();
        let text =
            format!("#!/bin/sh\necho 'Content-Type: text/plain'\necho\n{lines}\n").replace("DIR", &dir);
        script(&self.folder, &format!("cgi-bin/{name}"), &text);
    }

    /// The same of Python's, with `attempt` for what may be refused.
    fn python(&self, name: &str, lines: &str) {
        let head = "#!/usr/bin/python3\nimport ctypes, os, resource, socket, sys\n\
            print('Content-Type: text/plain\\r\\n\\r\\n', end='', flush=True)\n\
            def attempt(what, do):\n\
            \x20 try: print(what, 'DONE', do(), flush=True)\n\
            \x20 except OSError as error: print(what, error.strerror, flush=True)\n";
        let dir = self.folder.0.display().to_string();
        script(&self.folder, &format!("cgi-bin/{name}"), &format!("{head}{lines}\n").replace("DIR", &dir));
    }
}

/// What a script has said, once its stub answers.
fn ask(server: &Server<'_>, name: &str) -> String {
    wait_for(|| get(&server.address, &format!("/cgi-bin/{name}")).ok(), "the script")
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// chmod(2) is not in landlock: modes of what is the user's own decide nothing.
#[test]
fn modes_that_an_application_changes_open_nothing() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-modes", number);
    ground.script(
        "chmod",
        "cat DIR/keys/site.key 2>/dev/null && echo READ\n\
         chmod 777 DIR/keys DIR/run && chmod 644 DIR/run/control.proof && echo changed",
    );
    ground.script("read", "cat DIR/keys/site.key DIR/run/control.proof 2>/dev/null && echo READ; echo done");
    let settings = ground.settings("keys/site.key", "");
    let server = ground.serve(&settings);
    assert!(server.seen.join("\n").contains("landlock keeps it"), "{:?}", server.seen);
    let said = ask(&server, "chmod");
    assert!(said.contains("changed") && !said.contains("READ"), "{said}");
    // The operator commands it all the same, and believes nobody else.
    let status = ground.tell(&["status"]);
    assert!(status.status.success(), "{}", shown(&status));
    assert_eq!(ground.mode("run/control.proof"), 0o600);
    ground.script("again", "chmod 777 DIR/keys DIR/run; chmod 644 DIR/run/control.proof; chmod 666 DIR/keys/site.key; chmod 600 DIR/keys/site.key");
    ask(&server, "again");
    // With other settings the pools are new ones.
    fs::write(ground.folder.path("tidegate.kdl"), settings.replace("workers 1", "workers 2")).unwrap();
    let reloaded = ground.tell(&["reload"]);
    assert!(reloaded.status.success(), "{}", shown(&reloaded));
    let said = ask(&server, "read");
    assert!(said.contains("done") && !said.contains("READ") && !said.contains("PRIVATE"), "{said}");
    assert!(ground.tell(&["stop"]).status.success());
    drop(server);
    let server = ground.serve(&settings);
    let started = server.seen.join("\n");
    assert!(!started.contains("can reach"), "{started}");
    let warned = ground.folder.path("keys").display().to_string();
    assert!(started.contains(&format!("everybody may write to {warned}")), "{started}");
    let said = ask(&server, "read");
    assert!(said.contains("done") && !said.contains("READ") && !said.contains("PRIVATE"), "{said}");
}

/// What a path led to when the settings came in force is what is sealed, with the links that led there.
#[test]
fn a_link_on_the_way_to_a_key_cannot_be_led_elsewhere() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-ways", number);
    fs::create_dir(ground.folder.path("dep")).unwrap();
    symlink("../keys", ground.folder.path("dep/tls")).unwrap();
    ground.give("dep");
    rustix::fs::chownat(
        rustix::fs::CWD,
        ground.folder.path("dep/tls"),
        Some(rustix::fs::Uid::from_raw(number)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    // The stub of the scripts is of the same domain, so that its signal arrives: the next one is started anew.
    ground.script(
        "attack",
        "cat DIR/keys/site.key 2>/dev/null && echo READ\n\
         (rm DIR/dep/tls && mkdir DIR/dep/tls || mv DIR/dep/tls DIR/data/tls) 2>/dev/null && echo REPLACED; echo done; kill -9 $PPID",
    );
    let server = ground.serve(&ground.settings("dep/tls/site.key", ""));
    let _ = get(&server.address, "/cgi-bin/attack");
    ground.script("after", "cat DIR/keys/site.key 2>/dev/null && echo READ; ls -ld DIR/dep/tls; echo done");
    let said = ask(&server, "after");
    assert!(said.contains("done") && said.contains("../keys") && !said.contains("READ"), "{said}");
}

/// A script puts a link to another server of the user in the place of its own server's control socket.
#[test]
fn a_command_is_not_led_to_another_server() {
    let Some(number) = ordinary_user() else { return };
    let (ground, other) = (Ground::new("one-user-a", number), Ground::new("one-user-b", number));
    let mut other_server = other.serve(&other.settings("keys/site.key", ""));
    // In a folder for everybody the socket can be replaced, though not be used.
    let open = Folder::new("one-user-open");
    ground.set_mode("run", 0o700);
    let control = open.path("a").display().to_string();
    let config = ground.folder.write("tidegate.kdl", &ground.settings("keys/site.key", ""));
    let runtime = ground.folder.path("run");
    let environment = |mut command: std::process::Command| {
        command.env("XDG_RUNTIME_DIR", &runtime).env("HOME", ground.folder.path("data"));
        command
    };
    fs::set_permissions(&open.0, fs::Permissions::from_mode(0o1777)).unwrap();
    let serve = running::command(&ground.folder, &["serve", "--config", &config, "--control", &control]);
    let mut server = Server::spawn(&ground.folder, environment(as_user(&serve, number, false)));
    server.control = Some(control.clone());
    let target = other.folder.path("run/control");
    ground.script("lead", &format!("rm {control} && ln -s {} {control} && echo led", target.display()));
    assert!(ask(&server, "lead").contains("led"));
    let stop = running::command(&ground.folder, &["stop", "--control", &control]);
    let said = environment(as_user(&stop, number, false)).output().unwrap();
    assert!(!said.status.success(), "{}", shown(&said));
    assert!(shown(&said).contains("a symbolic link lies there"), "{}", shown(&said));
    assert!(other_server.child.try_wait().unwrap().is_none());
    assert_eq!(other_server.body("/"), "the site");
}

/// Limits, priorities, memory, descriptors and signals of the server are out of an application's reach, and its own are not.
#[test]
fn an_application_can_neither_limit_nor_look_into_the_server() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-limits", number);
    let server = ground.serve(&ground.settings("keys/site.key", ""));
    let pids: Vec<String> = server.processes().iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
    let all = format!("{}, {}", server.child.id(), pids.join(", "));
    let lines = "libc = ctypes.CDLL(None, use_errno=True)\n\
        def call(number, *arguments):\n\
        \x20 outcome = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(value) for value in arguments])\n\
        \x20 if outcome < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n\
        \x20 return outcome\n\
        parameters = ctypes.create_string_buffer(8)\n\
        for pid in [ALL]:\n\
        \x20 attempt('descriptors', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)))\n\
        \x20 attempt('processor', lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))\n\
        \x20 attempt('idle', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))\n\
        \x20 attempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n\
        \x20 attempt('disks', lambda: call(251 if os.uname().machine == 'x86_64' else 30, 1, pid, 3 << 13))\n\
        \x20 attempt('stop', lambda: os.kill(pid, 19))\n\
        \x20 attempt('trace', lambda: call(101 if os.uname().machine == 'x86_64' else 117, 16, pid, 0, 0))\n\
        \x20 attempt('memory', lambda: open('/proc/%d/mem' % pid, 'rb'))\n\
        \x20 attempt('oom', lambda: open('/proc/%d/oom_score_adj' % pid, 'w').write('1000'))\n\
        \x20 handle = os.pidfd_open(pid)\n\
        \x20 attempt('descriptor', lambda: call(438, handle, 0, 0))\n\
        \x20 attempt('signal', lambda: call(424, handle, 19, 0, 0))\n\
        attempt('all', lambda: os.setpriority(os.PRIO_USER, 0, 19))\n\
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))\n\
        os.setpriority(os.PRIO_PROCESS, 0, min(19, 1 + os.getpriority(os.PRIO_PROCESS, 0)))\n\
        child = os.fork()\n\
        if child == 0: os._exit(resource.getrlimit(resource.RLIMIT_NOFILE)[0] != soft - 1)\n\
        print('own', os.waitpid(child, 0)[1])";
    ground.python("limit", &lines.replace("ALL", &all));
    let said = ask(&server, "limit");
    // `stop` and `signal` are kept from it by landlock of Linux 6.12 and later.
    let is_scoped = landlock_scopes();
    for line in said.lines().filter(|line| line.contains("DONE")) {
        let is_signal = ["stop ", "signal "].iter().any(|name| line.starts_with(name));
        assert!(is_signal && !is_scoped, "{said}");
    }
    let tried =
        said.lines().filter(|line| ["permitted", "denied", "DONE"].iter().any(|end| line.contains(end)));
    assert_eq!(tried.count(), 11 * (1 + pids.len()) + 1, "{said}");
    assert!(said.contains("own 0\n"), "{said}");
    assert_eq!(server.body("/"), "the site");
}

/// Whether this kernel keeps signals apart.
fn landlock_scopes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(12))
}

/// A socket of the same user could listen beside the server's and take its clients.
#[test]
fn an_application_does_not_listen_on_the_ports_of_the_server() {
    let Some(number) = ordinary_user() else { return };
    if !tidegate_modules::gateway::supervise::seal::can_keep_ports() {
        eprintln!("SKIPPED: this kernel is older than 6.7 and cannot keep ports apart");
        return;
    }
    let ground = Ground::new("one-user-ports", number);
    let server = ground.serve(&ground.settings("keys/site.key", ""));
    let port = |line: &str| line.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let own = port(&server.address);
    ground.python(
        "listen",
        "def listen(port):\n\
         \x20 s = socket.socket(); s.setsockopt(1, 15, 1); s.bind(('127.0.0.1', port)); s.listen(); return s.getsockname()[1]\n\
         attempt('server', lambda: listen(int(os.environ['QUERY_STRING'])))\n\
         attempt('own', lambda: listen(0))\n\
         attempt('named', lambda: listen(listen(0)))",
    );
    let said = ask(&server, &format!("listen?{own}"));
    assert!(said.contains("server Permission denied"), "{said}");
    assert!(said.contains("own DONE") && said.contains("named DONE"), "{said}");
    // A port that comes with a reload is the server's as well.
    let text = fs::read_to_string(ground.folder.path("tidegate.kdl")).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    ground.folder.write("tidegate.kdl", &format!("listen \"127.0.0.1:{free}\"\n{text}"));
    let reloaded = ground.tell(&["reload"]);
    assert!(reloaded.status.success(), "{}", shown(&reloaded));
    let said = wait_for(
        || {
            let said = get(&server.address, &format!("/cgi-bin/listen?{free}")).ok()?;
            said.contains("server Permission denied").then_some(said)
        },
        "scripts that are started after the reload",
    );
    assert!(said.contains("own DONE"), "{said}");
}

/// Switched on by a reload, the sandbox keeps the control socket from what is started from then on.
#[test]
fn a_sandbox_that_a_reload_switches_on_closes_the_control_socket() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-sandbox", number);
    let settings = ground.settings("keys/site.key", "");
    let mut server = ground.serve(&ground.settings("keys/site.key", "sandbox off"));
    ground.folder.write("tidegate.kdl", &settings);
    let reloaded = ground.tell(&["reload"]);
    assert!(reloaded.status.success(), "{}", shown(&reloaded));
    assert!(!shown(&reloaded).contains("can use the control socket"), "{}", shown(&reloaded));
    // What was started before is replaced.
    ground.script("read", "cat DIR/keys/site.key DIR/run/control.proof 2>/dev/null && echo READ; echo done");
    let is_sealed = || get(&server.address, "/cgi-bin/read").ok().filter(|said| !said.contains("READ"));
    wait_for(is_sealed, "scripts that are started after the reload");
    let stop = "stop --now --control DIR/run/control >/dev/null 2>&1 && echo STOPPED; echo done";
    ground.script("stop", &format!("{} {stop}", binary()));
    let said = ask(&server, "stop");
    assert!(said.contains("done") && !said.contains("STOPPED"), "{said}");
    assert!(server.child.try_wait().unwrap().is_none());
    assert!(Path::new(&ground.folder.path("run/control.proof")).exists());
}

/// A script puts a link to the keys in the place of a root, which is followed once a second and by a reload.
#[test]
fn a_root_that_is_led_to_the_keys_serves_no_key() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-root", number);
    ground.script("lead", "rm -rf DIR/www/site && ln -s DIR/$QUERY_STRING DIR/www/site && echo led");
    // The other root makes that of the folder above readable for server processes.
    let settings = ground
        .settings("keys/site.key", "")
        .replace("pid-file", &format!("acme {{ storage \"{}/acme\" }}\npid-file", ground.folder.0.display()))
        + "site \"other\" { root \"www\"; index off }\nsite \"all\" { root \".\"; hidden }\n"
        + "listen \"127.0.0.1:0\" { tls }\n";
    let mut server = ground.serve(&settings);
    let key = ground.folder.path("acme/local/root.key");
    wait_for(|| key.exists().then_some(()), "the local authority to be made");
    let fetched = |host: &str, path: &str| {
        let stream = std::net::TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(running::WAIT)).unwrap();
        running::exchange_with(host, stream, path)
    };
    // Below a root that its owner has named.
    assert_eq!(fetched("all", "/www/site/index.html").unwrap(), "the site");
    for path in ["/keys/site.key", "/acme/local/root.key", "/run/control.proof"] {
        assert!(fetched("all", path).is_err(), "{path}");
    }
    let attempts = [
        ("keys", vec!["/site.key"]),
        ("acme", vec!["/local/root.key"]),
        ("acme/local", vec!["/root.key"]),
        ("run", vec!["/control.proof"]),
        ("", vec!["/keys/site.key", "/acme/local/root.key"]),
    ];
    for (target, paths) in attempts {
        let led = ask(&server, &format!("lead?{target}"));
        assert!(led.contains("led"), "{led}");
        let tried = |when: &str| {
            for path in &paths {
                let said = fetched("localhost", path);
                assert!(said.is_err(), "{when} {target} {path}: {said:?}");
            }
        };
        // Followed by the look a second later at the latest, which a change below would show as well.
        let is_followed = |name: &str| fetched("localhost", name).is_ok();
        if target == "keys" {
            ground.script("mark", "echo marked > DIR/data/mark; echo marked > DIR/keys/mark; echo done");
            ask(&server, "mark");
            fs::write(ground.folder.path("keys/mark"), "marked").unwrap();
            wait_for(|| is_followed("/mark").then_some(()), "the root to be followed");
        }
        tried("followed");
        ground.tell(&["reload"]);
        tried("reloaded");
    }
    // What was served stays, and the log says why; a reload finds no root.
    ask(&server, "lead?data");
    fs::write(ground.folder.path("data/page"), "a page").unwrap();
    let said = ground.tell(&["reload"]);
    assert!(said.status.success(), "{}", shown(&said));
    wait_for(|| fetched("localhost", "/page").ok(), "the page");
    ask(&server, "lead?acme");
    let says = |what: &str| server.lines.try_iter().any(|line| line.contains(what));
    wait_for(
        || {
            assert_eq!(fetched("localhost", "/page").unwrap(), "a page");
            says("is not followed there").then_some(())
        },
        "the log to tell of the link",
    );
    ground.tell(&["reload"]);
    wait_for(
        || says("what lies there is kept from applications").then_some(()),
        "the log to tell of the root",
    );
    assert!(fetched("localhost", "/page").is_err());
    assert!(server.child.try_wait().unwrap().is_none());
}

/// A script puts links to the key in the places of logs, which are the user's own, and writes to the pid file.
#[test]
fn no_log_is_written_to_a_key_and_the_pid_file_is_the_servers() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-logs", number);
    let more = "access-log \"data/access.log\"\nerror-log \"data/error.log\"";
    let server = ground.serve(&ground.settings("keys/site.key", more));
    let key = fs::read(ground.folder.path("keys/site.key")).unwrap();
    ground.script(
        "lead",
        "cd DIR/data && rm access.log && ln -s ../keys/site.key access.log && mkdir own && ln -s ../../keys own/keys && echo led; \
         (echo 4242 > DIR/run/tidegate.pid) 2>/dev/null && echo WRITTEN",
    );
    // One that is started after the pid file was made.
    ground.script("end", "kill -9 $PPID");
    let _ = get(&server.address, "/cgi-bin/end");
    let said = ask(&server, "lead");
    assert!(said.contains("led") && !said.contains("WRITTEN"), "{said}");
    server.signal(rustix::process::Signal::USR1);
    let log = || fs::read_to_string(ground.folder.path("data/error.log")).unwrap();
    wait_for(
        || log().contains("kept from applications and clients").then_some(()),
        "the log to tell of the other",
    );
    assert_eq!(server.body("/"), "the site");
    // Nor does a reload, or the start, open one there.
    let settings = ground
        .settings("keys/site.key", "access-log \"data/own/keys/site.key\"\nerror-log \"data/error.log\"");
    ground.folder.write("tidegate.kdl", &settings);
    let said = ground.tell(&["reload"]);
    assert!(!said.status.success() && shown(&said).contains("kept from applications"), "{}", shown(&said));
    assert!(ground.tell(&["stop"]).status.success());
    drop(server);
    let config = ground.folder.path("tidegate.kdl").display().to_string();
    let start = running::command(&ground.folder, &["serve", "--config", &config]);
    let said = as_user(&start, number, false).output().unwrap();
    assert!(!said.status.success() && shown(&said).contains("kept from applications"), "{}", shown(&said));
    assert_eq!(fs::read(ground.folder.path("keys/site.key")).unwrap(), key);
}

/// What logins, tokens, signed URLs and the server's own logins go by: who reads or writes it is anybody.
#[test]
fn an_application_reaches_no_file_that_logins_go_by() {
    let Some(number) = ordinary_user() else { return };
    let ground = Ground::new("one-user-logins", number);
    let key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";
    let jwks = format!(r#"{{"keys": [{{"kty": "oct", "kid": "h", "alg": "HS256", "k": "{key}"}}]}}"#);
    let files = [
        ("url-keys", format!("{key}=")),
        ("jwks.json", jwks),
        ("ldap-password", "secret\n".to_owned()),
        ("store-password", "secret\n".to_owned()),
        ("staff", "anna:$6$ab$cd\n".to_owned()),
        ("groups", "admins: anna\n".to_owned()),
    ];
    fs::create_dir(ground.folder.path("logins")).unwrap();
    ground.give("logins");
    for (name, text) in &files {
        fs::write(ground.folder.path(&format!("logins/{name}")), text).unwrap();
        ground.give(&format!("logins/{name}"));
    }
    ground.script(
        "attack",
        "cd DIR/logins && for file in *; do\n\
           cat $file >/dev/null 2>&1 && echo READ $file\n\
           ( echo x >> $file ) 2>/dev/null && echo WRITTEN $file\n\
         done; echo done",
    );
    let settings = ground.settings(
        "keys/site.key",
        "url-keys \"downloads\" \"logins/url-keys\"\n\
         users \"api\" { tokens \"logins/jwks.json\" { issuer \"https://id.test\"; audience \"api\" } }\n\
         users \"corp\" {\n htpasswd \"logins/staff\"\n groups \"logins/groups\"\n\
         ldap \"ldap://127.0.0.1:1\" { base \"dc=a\"; filter \"(uid={user})\"; \
         bind \"cn=t\" password-file=\"logins/ldap-password\" }\n}\n\
         limit-store \"redis://127.0.0.1:1\" password-file=\"logins/store-password\"\n",
    );
    let server = ground.serve(&settings);
    let said = ask(&server, "attack");
    assert!(said.contains("done") && !said.contains("READ") && !said.contains("WRITTEN"), "{said}");
    for (name, text) in &files {
        assert_eq!(&fs::read_to_string(ground.folder.path(&format!("logins/{name}"))).unwrap(), text);
    }
}
