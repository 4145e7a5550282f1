//! Logins against a real directory: OpenLDAP's slapd, with its own folder, ports and certificates, over plain connections,
//! TLS and StartTLS, with groups in groups.

mod running;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use running::{Folder, Server, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SLAPD: &str = "/usr/sbin/slapd";

const SCHEMAS: &str = "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
                       include /etc/ldap/schema/inetorgperson.schema\n\
                       modulepath /usr/lib/ldap\nmoduleload back_mdb\nmoduleload memberof\n";

const ENTRIES: &str = r#"dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=com
objectClass: organizationalUnit
ou: groups

dn: ou=clubs,dc=example,dc=com
objectClass: organizationalUnit
ou: clubs

dn: cn=tidegate,dc=example,dc=com
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: tidegate
userPassword: sesame

dn: uid=anna,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: anna
cn: Anna
sn: A
mail: anna@example.com
userPassword: secret of anna
memberOf: cn=admins,ou=groups,dc=example,dc=com

dn: uid=ben,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: ben
cn: Ben
sn: B
mail: twins@example.com
userPassword: secret of ben
memberOf: cn=staff,ou=groups,dc=example,dc=com
memberOf: cn=admins,ou=clubs,dc=example,dc=com

dn: uid=carl,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: carl
cn: Carl
sn: C
mail: twins@example.com
userPassword: secret of carl

dn: uid=dora,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: dora
cn: Dora
sn: D

dn: uid=e*(m)\\il,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: e*(m)\il
cn: Emil
sn: E
userPassword: secret of emil

dn: cn=admins,ou=groups,dc=example,dc=com
objectClass: groupOfNames
cn: admins
member: uid=anna,ou=people,dc=example,dc=com
memberOf: cn=staff,ou=groups,dc=example,dc=com

dn: cn=staff,ou=groups,dc=example,dc=com
objectClass: groupOfNames
cn: staff
member: cn=admins,ou=groups,dc=example,dc=com
member: cn=world,ou=groups,dc=example,dc=com
member: uid=ben,ou=people,dc=example,dc=com
memberOf: cn=world,ou=groups,dc=example,dc=com

dn: cn=world,ou=groups,dc=example,dc=com
objectClass: groupOfNames
cn: world
member: cn=staff,ou=groups,dc=example,dc=com
memberOf: cn=staff,ou=groups,dc=example,dc=com

dn: cn=admins,ou=clubs,dc=example,dc=com
objectClass: groupOfNames
cn: admins
member: uid=ben,ou=people,dc=example,dc=com
"#;

/// A directory that runs.
struct Slapd {
    child: Child,
    plain: u16,
    tls: u16,
}

impl Drop for Slapd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a directory below a folder; `None`, said aloud, where there is none to start.
fn slapd(folder: &Folder) -> Option<Slapd> {
    if !Path::new(SLAPD).is_file() {
        assert!(std::env::var_os("CI").is_none(), "slapd is missing; `cargo xtask tools` installs it");
        eprintln!("SKIPPED: slapd is not installed (`cargo xtask tools` installs it)");
        return None;
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let pem = folder.write("ca.pem", &certificate.pem());
    let key = folder.write("ldap.key", &key.serialize_pem());
    fs::create_dir_all(folder.path("data")).unwrap();
    let folder_text = folder.0.display();
    let settings = format!(
        "{SCHEMAS}pidfile {folder_text}/slapd.pid\nargsfile {folder_text}/slapd.args\n\
         TLSCertificateFile {pem}\nTLSCertificateKeyFile {key}\nTLSCACertificateFile {pem}\n\
         access to attrs=userPassword by anonymous auth by * none\n\
         access to * by dn.exact=\"cn=tidegate,dc=example,dc=com\" read by * none\n\
         database mdb\nsuffix \"dc=example,dc=com\"\ndirectory {folder_text}/data\nmaxsize 10485760\n\
         overlay memberof\n"
    );
    let settings = folder.write("slapd.conf", &settings);
    let entries = folder.write("entries.ldif", ENTRIES);
    let added = Command::new(SLAPD).args(["-T", "add", "-f", &settings, "-l", &entries]).output().unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    // Slapd does not tell which port the system has chosen: one that was free just now may be taken.
    for _ in 0..20 {
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [plain, tls] = free.map(|listener| listener.local_addr().unwrap().port());
        let urls = format!("ldap://127.0.0.1:{plain} ldaps://127.0.0.1:{tls}");
        let log = fs::File::create(folder.path("slapd.log")).unwrap();
        let mut child = Command::new(SLAPD)
            .args(["-d", "256", "-f", &settings, "-h", &urls])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut has_ended = false;
        let is_settled = || {
            has_ended = child.try_wait().unwrap().is_some();
            (has_ended || TcpStream::connect(("127.0.0.1", tls)).is_ok()).then_some(())
        };
        wait_for(is_settled, "slapd to listen or to end");
        if !has_ended {
            return Some(Slapd { child, plain, tls });
        }
    }
    panic!("slapd does not start: {}", fs::read_to_string(folder.path("slapd.log")).unwrap());
}

struct Answer {
    status: u16,
    text: String,
}

fn ask(address: &str, host: &str, path: &str, login: Option<(&str, &str)>) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let login = login.map(|(name, password)| STANDARD.encode(format!("{name}:{password}")));
    let login = login.map(|login| format!("Authorization: Basic {login}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n{login}Connection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    Answer { status: text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), text }
}

#[test]
fn users_and_groups_of_a_real_directory() {
    let folder = Folder::new("ldap");
    let Some(slapd) = slapd(&folder) else { return };
    let (plain, tls) = (slapd.plain, slapd.tls);
    let dead = tidegate_testkit::NOBODY;
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    folder.write("stranger.pem", &stranger.cert.pem());
    folder.write("password", "sesame\n");
    folder.write("wrong", "open sesame\n");
    folder.write("staff", "anna:$apr1$Qx5wZ9ab$1XKzto56N1RCFfXDqmcc/0\n"); // hello
    let common = "base \"ou=people,dc=example,dc=com\"; filter \"(uid={user})\"";
    let bind = "bind \"cn=tidegate,dc=example,dc=com\" password-file=\"password\"";
    let by_search = "groups \"ou=groups,dc=example,dc=com\"";
    let sources = [
        (
            "tls",
            "",
            format!(
                "ldap \"ldaps://localhost:{tls}\" {{ {common}; {bind}; {by_search} nested; ca \"ca.pem\" }}"
            ),
        ),
        (
            "starttls",
            "",
            format!(
                "ldap \"ldap://127.0.0.1:{plain}\" {{ {common}; {bind}; starttls; ca \"ca.pem\"\n\
                 {by_search} nested attribute=\"memberOf\" }}"
            ),
        ),
        ("plain", "", format!("ldap \"ldap://127.0.0.1:{plain}\" {{ {common}; {bind}; {by_search} }}")),
        (
            "flat",
            "",
            format!(
                "ldap \"ldap://127.0.0.1:{plain}\" {{ {common}; {bind}; {by_search} attribute=\"memberOf\" }}"
            ),
        ),
        (
            "few",
            "cache groups=1",
            format!("ldap \"ldap://127.0.0.1:{plain}\" {{ {common}; {bind}; {by_search} nested }}"),
        ),
        (
            "few-named",
            "cache groups=1",
            format!(
                "ldap \"ldap://127.0.0.1:{plain}\" {{ {common}; {bind}; {by_search} nested attribute=\"memberOf\" }}"
            ),
        ),
        (
            "mail",
            "",
            format!(
                "ldap \"ldap://127.0.0.1:{plain}\" {{ base \"dc=example,dc=com\"; {bind}; user-name \"uid\"\n\
                 filter \"(&(objectClass=inetOrgPerson)(mail={{user}}@example.com))\" }}"
            ),
        ),
        ("file", "htpasswd \"staff\"", format!("ldap \"ldap://127.0.0.1:{plain}\" {{ {common}; {bind} }}")),
        (
            "failover",
            "",
            format!(
                "ldap \"ldap://{dead}\" \"ldaps://127.0.0.1:{tls}\" {{ {common}; {bind}; ca \"ca.pem\" }}"
            ),
        ),
        ("dead", "", format!("ldap \"ldap://{dead}\" {{ {common}; {bind} }}")),
        (
            "stranger",
            "",
            format!("ldap \"ldaps://localhost:{tls}\" {{ {common}; {bind}; ca \"stranger.pem\" }}"),
        ),
        (
            "plain-tls",
            "",
            format!(
                "ldap \"ldaps://localhost:{plain}\" {{ {common}; {bind}; ca \"ca.pem\"; timeout \"1s\" }}"
            ),
        ),
        ("unsearched", "", format!("ldap \"ldap://127.0.0.1:{plain}\" {{ {common} }}")),
        (
            "wrong",
            "",
            format!(
                "ldap \"ldap://127.0.0.1:{plain}\" {{ {common}\n\
                 bind \"cn=tidegate,dc=example,dc=com\" password-file=\"wrong\" }}"
            ),
        ),
    ];
    let mut settings =
        "listen \"127.0.0.1:0\"\nprocesses 1\nsite \"open.test\" { respond 200 \"open\" }\n".to_owned();
    for (name, more, ldap) in &sources {
        settings += &format!(
            "users \"{name}\" {{ {ldap}\n{more} }}\nsite \"{name}.test\" {{ login basic \"{name}\"\n\
             route \"/admins\" {{ require group \"admins\"; respond 200 \"admins\" }}\n\
             route \"/world\" {{ require group \"world\"; respond 200 \"world\" }}\n\
             route \"/both\" {{ require group \"world\"; require group \"admins\"; respond 200 \"both\" }}\n\
             route \"/anna\" {{ require user \"anna\"; respond 200 \"anna\" }}\nrespond 200 \"somebody\" }}\n"
        );
    }
    let mut server = Server::with_config(&folder, &settings);
    let anna = Some(("anna", "secret of anna"));
    let ben = Some(("ben", "secret of ben"));
    let mut wrong = Vec::new();
    for (host, path, login, expected) in [
        ("open", "/", None, 200),
        ("tls", "/", None, 401),
        ("tls", "/", anna, 200),
        ("tls", "/", Some(("anna", "secret of ben")), 401),
        ("tls", "/", Some(("nobody", "secret of anna")), 401),
        // However the name is spelt, the user is the one that the directory has.
        ("tls", "/anna", Some(("ANNA", "secret of anna")), 200),
        // Without a password a directory lets in anybody.
        ("tls", "/", Some(("anna", "")), 401),
        ("tls", "/", Some(("dora", "")), 401),
        ("tls", "/", Some(("dora", "x")), 401),
        ("tls", "/", Some(("", "")), 401),
        // A name is a value of the filter, whatever it holds.
        ("tls", "/", Some(("*", "secret of anna")), 401),
        ("tls", "/", Some(("ann*", "secret of anna")), 401),
        ("tls", "/", Some(("anna)(uid=*", "secret of anna")), 401),
        ("tls", "/", Some(("anna)(|(uid=*", "secret of anna")), 401),
        ("tls", "/", Some(("\\61nna", "secret of anna")), 401),
        ("tls", "/", Some(("e*(m)\\il", "secret of emil")), 200),
        // Groups in groups, one of them in itself; a group elsewhere is none.
        ("tls", "/admins", anna, 200),
        ("tls", "/world", anna, 200),
        ("tls", "/admins", ben, 403),
        ("tls", "/world", ben, 200),
        ("tls", "/both", anna, 200),
        ("tls", "/both", ben, 403),
        ("tls", "/anna", ben, 403),
        ("starttls", "/admins", anna, 200),
        ("starttls", "/world", anna, 200),
        ("starttls", "/admins", ben, 403),
        ("starttls", "/world", ben, 200),
        ("starttls", "/", Some(("anna", "wrong")), 401),
        ("plain", "/admins", anna, 200),
        ("plain", "/world", anna, 403),
        ("flat", "/admins", anna, 200),
        ("flat", "/world", anna, 403),
        ("flat", "/admins", ben, 403),
        // More groups than are remembered of a user: the directory is asked.
        ("few", "/admins", anna, 200),
        ("few", "/world", anna, 200),
        ("few", "/world", anna, 200),
        ("few", "/both", anna, 200),
        ("few", "/both", ben, 403),
        ("few-named", "/both", anna, 200),
        ("few-named", "/both", ben, 403),
        ("mail", "/anna", anna, 200),
        // Two have this address, and both a password of their own: nobody knows whom it means.
        ("mail", "/", Some(("twins", "secret of ben")), 401),
        ("mail", "/", Some(("twins", "secret of carl")), 401),
        // Who stands in the file is compared with the file.
        ("file", "/", Some(("anna", "hello")), 200),
        ("file", "/", anna, 401),
        ("file", "/", ben, 200),
        ("failover", "/", anna, 200),
        ("failover", "/", ben, 200),
        ("failover", "/", Some(("ben", "secret of anna")), 401),
        // Who cannot be looked up is not let in, and not sent away for good either.
        ("dead", "/", anna, 503),
        ("dead", "/", None, 401),
        ("stranger", "/", anna, 503),
        ("plain-tls", "/", anna, 503),
        ("wrong", "/", anna, 503),
        // Who may search nothing finds nothing, and that is not the user's fault.
        ("unsearched", "/", anna, 503),
    ] {
        let answer = ask(&server.address, &format!("{host}.test"), path, login);
        if answer.status != expected || (expected == 503 && !answer.text.contains("\r\nRetry-After: ")) {
            wrong.push(format!("{host}{path} for {login:?}: {expected} was expected, not {}", answer.text));
        }
    }
    let log = server.line("the directory ldaps://localhost");
    assert!(log.contains("not trusted"), "{log}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // The directory goes away: who is known stays known.
    drop(slapd);
    let answer = ask(&server.address, "tls.test", "/both", anna);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = ask(&server.address, "tls.test", "/", Some(("carl", "secret of carl")));
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert!(answer.text.contains("\r\nRetry-After: "), "{}", answer.text);
    assert_eq!(ask(&server.address, "open.test", "/", None).status, 200);
    let status = server.status();
    let count = |name: &str| status["stats"][name].as_u64().unwrap_or_else(|| panic!("{name} in {status}"));
    assert!(count("user_cache_hits") > 5 && count("user_cache_misses") > 20, "{status}");
    assert!(count("directory_binds") > 10 && count("directory_searches") > 20, "{status}");
    assert!(count("directory_failures") >= 4, "{status}");
}

/// The one worker there is goes on while logins wait for a directory that says nothing, and so does everything about it: start,
/// reload and status.
#[test]
fn a_directory_that_hangs_holds_up_nobody_else() {
    let folder = Folder::new("ldap-hang");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let settings = format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nprocesses 1\n\
         users \"corp\" {{ ldap \"ldap://127.0.0.1:{port}\" {{ base \"dc=a\"; filter \"(uid={{user}})\"; timeout \"60s\" }} }}\n\
         site \"open.test\" {{ respond 200 \"open\" }}\n\
         site \"corp.test\" {{ login basic \"corp\"; respond 200 \"corp\" }}\n"
    );
    let server = Server::with_config(&folder, &settings);
    let mut waiting: Vec<TcpStream> = Vec::new();
    for number in 0..8 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let login = STANDARD.encode(format!("user{number}:x"));
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: corp.test\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        waiting.push(stream);
    }
    // All that may ask at once do.
    let held: Vec<TcpStream> = (0..4).map(|_| silent.accept().unwrap().0).collect();
    for _ in 0..20 {
        assert_eq!(ask(&server.address, "open.test", "/", None).status, 200);
        assert_eq!(ask(&server.address, "corp.test", "/", None).status, 401);
    }
    // One client has eight looked up at once, and no more.
    assert_eq!(ask(&server.address, "corp.test", "/", Some(("user9", "x"))).status, 503);
    let reloaded = server.tell(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    assert_eq!(server.tell(&["status"]).code, Some(0));
    drop((held, silent));
    for mut stream in waiting {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("\r\nRetry-After: "), "{text}");
    }
}
