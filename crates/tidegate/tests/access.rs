//! Every entrance to content against every kind of access rule (FAULTS 63): what a client may not have by its path, it
//! may not have by `index`, `try`, an error page or the redirect of a script either, from the disk or from the cache.

mod running;

use running::{Folder, Server, WAIT, countries, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A way to `/hall/page.html` or `/hall/page.cgi`, and the status of a refusal there.
const ENTRANCES: [(&str, &str, u16); 6] = [
    ("by its path", "/hall/page.KIND", 403),
    ("index", "/hall/", 403),
    ("try", "/ways/nothing", 403),
    ("try with a named route", "/named/nothing", 403),
    ("error page", "/errors/nothing", 404),
    ("redirect of a script", "/jump.cgi", 403),
];

/// What stands in the route of the page, what around it, and whether a client from 127.0.0.1 gets in, and one from
/// 127.0.0.2. Both say that they speak for 192.0.2.9.
const RULES: [(&str, &str, bool, bool); 21] = [
    ("", "", true, true),
    ("deny \"all\"", "", false, false),
    ("deny \"127.0.0.2\"", "", true, false),
    ("allow \"127.0.0.1\"", "", true, false),
    ("allow \"192.0.2.0/24\"", "", false, false),
    ("allow \"all\"", "deny \"127.0.0.2\"", true, false),
    ("access off", "deny \"127.0.0.2\"", true, true),
    ("access off; deny \"127.0.0.1\"", "deny \"127.0.0.2\"", false, true),
    ("require-client-certificate", "", false, false),
    ("require certificate \"cn:anna\"", "", false, false),
    ("deny list=\"listed\"", "", true, false),
    ("allow \"all\"", "deny list=\"listed\"", true, false),
    ("allow country=\"DE\"", "", true, false),
    ("access off; deny country=\"DE\"", "deny list=\"listed\"", false, true),
    ("deny \"127.0.0.2\" time=\"Mon-Sun\"", "", true, false),
    ("deny \"127.0.0.1\" time=\"Mon-Sun 00:00-24:00 Asia/Tokyo\"", "deny \"127.0.0.2\"", false, false),
    ("allow \"local\"", "", false, false),
    ("allow \"unix\" \"127.0.0.1\"", "", true, false),
    ("trusted-proxies \"127.0.0.2\"; deny \"192.0.2.9\"", "", true, false),
    ("trusted-proxies \"127.0.0.2\"; allow \"192.0.2.9\"", "", false, true),
    ("trusted-proxies \"127.0.0.2\"; allow \"local\" \"192.0.2.0/24\"", "deny \"127.0.0.1\"", false, true),
];

#[test]
fn every_entrance_asks_for_every_kind_of_rule() {
    let folder = Folder::new("access");
    for place in ["hall", "errors", "ways"] {
        fs::create_dir_all(folder.path(&format!("site/{place}"))).unwrap();
    }
    folder.write("site/hall/page.html", "SECRET");
    script(&folder, "site/hall/page.cgi", "printf 'Content-Type: text/plain\\n\\nSECRET'");
    let mut settings =
        String::from("listen \"127.0.0.1:0\"\npool \"cgi\" { cgi-stubs; processes min=2 max=2 }\n");
    for kind in ["html", "cgi"] {
        script(
            &folder,
            &format!("site/jump-{kind}.cgi"),
            &format!("printf 'Location: /hall/page.{kind}\\n\\n'"),
        );
        for (number, (inner, outer, ..)) in RULES.iter().enumerate() {
            let program = if kind == "cgi" { "cgi" } else { "" };
            let entrance = if outer.is_empty() { "" } else { "access off" };
            // A `;` ends something: none may stand alone.
            let block = |words: &[&str]| {
                words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join("; ")
            };
            let page = format!("/hall/page.{kind}");
            settings += &format!(
                "site \"{kind}-{number}.test\" {{\n\
                   root \"site\"; index \"page.{kind}\"\n{outer}\n\
                   route \"{page}\" {{ {} }}\n\
                   route \"/hall/*\" {{ {entrance} }}\n\
                   route \"/ways/*\" {{ {} }}\n\
                   route \"/named/*\" {{ {} }}\n\
                   route \"@page\" {{ {} }}\n\
                   route \"/errors/*\" {{ {} }}\n\
                   route \"*.cgi\" {{ {} }}\n\
                 }}\n",
                block(&[inner, program]),
                block(&[entrance, &format!("try \"{{path}}\" \"{page}\"")]),
                block(&[entrance, "try \"{path}\" \"@page\""]),
                block(&[inner, "respond 200 \"SECRET\""]),
                block(&[entrance, &format!("error-page 404 \"{page}\"")]),
                block(&[entrance, "cgi"]),
            );
        }
    }
    folder.write("listed", "127.0.0.2\n");
    fs::write(folder.path("countries"), countries::database(&[("127.0.0.1/32", "DE")])).unwrap();
    settings += "country-database \"countries\"\n";
    let server = Server::with_config(&folder, &settings);
    let mut wrong = Vec::new();
    for kind in ["html", "cgi"] {
        for (number, (inner, outer, first, second)) in RULES.iter().enumerate() {
            for (entrance, path, refusal) in ENTRANCES {
                let path = path.replace("KIND", kind).replace("jump", &format!("jump-{kind}"));
                // The one who is let in comes first, and everyone twice: a cache must not let the other in.
                let clients = [("127.0.0.1", *first), ("127.0.0.2", *second)];
                for (client, is_let_in) in clients.iter().chain(&clients) {
                    let (status, body) =
                        get(&server.address, client, &format!("{kind}-{number}.test"), &path);
                    let expected = match (is_let_in, entrance) {
                        (true, "error page") => (404, true),
                        (true, _) => (200, true),
                        (false, _) => (refusal, false),
                    };
                    if (status, body.contains("SECRET")) != expected {
                        wrong.push(format!(
                            "{entrance} to {kind} in `{inner}` within `{outer}`, {client}: {status}, {body:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// However many lists there are, few descriptors carry them: in the master, and on the way to the server process.
#[test]
fn thousands_of_lists_need_few_descriptors() {
    const LISTS: usize = 2000;
    let folder = Folder::new("many-lists");
    fs::create_dir_all(folder.path("lists")).unwrap();
    let list = |number: usize, client: &str| folder.write(&format!("lists/{number}"), &format!("{client}\n"));
    let mut settings =
        "listen \"127.0.0.1:0\"\nworkers 1\nlimits { connections 50 }\nsite {\n respond 200 \"in\"\n"
            .to_owned();
    for number in 0..LISTS {
        list(number, &format!("127.1.{}.{}", number / 200, number % 200));
        settings += &format!("deny list=\"lists/{number}\"\n");
    }
    settings += "}\n";
    let mut server = Server::through(&folder, &settings, |command| {
        let mut bounded = Command::new("sh");
        bounded.args(["-c", "ulimit -n 400; exec \"$0\" \"$@\""]).arg(command.get_program());
        bounded.args(command.get_args()).current_dir(folder.path(""));
        bounded
    });
    let address = server.address.clone();
    let status = |client: &str| get(&address, client, "a.test", "/").0;
    assert_eq!((status("127.1.0.0"), status("127.1.9.199"), status("127.1.10.0")), (403, 403, 200));
    let master = server.child.id();
    let descriptors = || fs::read_dir(format!("/proc/{master}/fd")).unwrap().count();
    assert!(descriptors() < 50, "{}", descriptors());
    // A list that changes is read alone, and in use.
    list(1700, "127.1.10.0");
    server.line("has changed and is in use: 1 network");
    wait_for(|| (status("127.1.10.0") == 403).then_some(()), "the new list");
    assert_eq!((status("127.1.8.100"), status("127.1.9.199")), (200, 403));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    assert_eq!((status("127.1.0.0"), status("127.1.10.0"), status("127.1.8.100")), (403, 403, 200));
    assert!(descriptors() < 50, "{}", descriptors());
}

fn script(folder: &Folder, name: &str, text: &str) {
    let path = folder.write(name, &format!("#!/bin/sh\n# SECRET source\n{text}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Asks from an address of this machine.
fn get(server: &str, from: &str, host: &str, path: &str) -> (u16, String) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&format!("{from}:0").parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&server.parse::<SocketAddr>().unwrap().into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 192.0.2.9\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
