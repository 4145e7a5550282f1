//! What `tidegate explain` says of a request, read as a promise.

use std::path::Path;
use std::process::{Command, Stdio};

use super::answer::{Body, Limited, RequestLimit, Served};
use super::generator::Generator;
use super::origin::Origin;
use super::routes::Login;
use super::settings::{Site, Target};
use super::variant::{Piece, Said};

/// Asks `explain` about a site.
struct Asker<'a> {
    binary: &'a Path,
    folder: &'a Path,
    site: &'a Site,
}

/// Asks for each path of the site, for clients of all origins; an error is a sentence of `explain` that cannot be
/// read, its failure, or that it contradicts the standard.
pub(super) fn targets(
    binary: &Path,
    folder: &Path,
    site: &Site,
    random: &mut Generator,
) -> Result<Vec<Target>, String> {
    let asker = Asker { binary, folder, site };
    let mut targets = Vec::new();
    for path in &site.paths {
        if site.routes.asks_for_login(path) {
            for login in Login::ALL {
                targets.push(asker.behind_login(path, login)?);
            }
        } else {
            targets.push(asker.target(path, &Said::default())?);
        }
    }
    let mut with_more = Vec::new();
    for (index, variant) in &site.variants {
        let path = &site.paths[*index];
        if site.routes.asks_for_login(path) {
            continue;
        }
        let plain = targets.iter().find(|target| target.path == *path).map(|target| &target.served[0]);
        if let Some(said) = plain.and_then(|plain| variant.say(random, plain)) {
            with_more.push(asker.target(path, &said)?);
        }
    }
    targets.extend(with_more);
    Ok(targets)
}

impl Asker<'_> {
    fn target(&self, path: &str, said: &Said) -> Result<Target, String> {
        let here = self.served("tidegate.kdl", path, said, Origin::Loopback)?;
        // Only rules about it may depend on where a client is.
        let served = |origin| match origin {
            Origin::Loopback => Ok(here.clone()),
            _ if self.site.routes.has_access_rules(path) => self.served("tidegate.kdl", path, said, origin),
            _ => Ok(here.clone()),
        };
        let served = Origin::ALL.into_iter().map(served).collect::<Result<_, String>>()?;
        Ok(Target { path: path.to_owned(), fields: said.fields.clone(), served })
    }

    /// `explain` asks nobody for a password: it is held to what it says of the same settings without the login, or
    /// to 401 and 403.
    fn behind_login(&self, path: &str, login: Login) -> Result<Target, String> {
        let refused = |status, limit| Served {
            status,
            fields: Vec::new(),
            body: Body::Any,
            pieces: Vec::new(),
            limit,
            because: format!("a login ({login:?})"),
        };
        let served = match login {
            Login::None => refused(401, Limited::No),
            Login::Unknown => refused(401, Limited::Guessing),
            Login::Other => refused(403, Limited::No),
            Login::Right => self.served("open.kdl", path, &Said::default(), Origin::Loopback)?,
        };
        let served = Origin::ALL.map(|_| served.clone()).to_vec();
        Ok(Target { path: path.to_owned(), fields: login.field().into_iter().collect(), served })
    }

    fn served(&self, settings: &str, path: &str, said: &Said, origin: Origin) -> Result<Served, String> {
        let url = format!("http://{}{path}", self.site.host);
        let mut command = Command::new(self.binary);
        command.args(["explain", "--config", settings, "--from", origin.address(), &url]);
        for (name, value) in &said.fields {
            command.arg("-H").arg(format!("{name}: {value}"));
        }
        let output = command
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.binary.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(format!(
                "explain {url}: {}\n{text}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        // Also of a route that the request is handed on to.
        let is_counted =
            |limit: &RequestLimit| text.contains(&format!("counted by the limit `often-{}`", limit.site));
        let limit = self.site.routes.limit.filter(is_counted).map_or(Limited::No, Limited::By);
        let served = read(&text, self.folder, self.site, &said.pieces, limit);
        let served = served.map_err(|problem| format!("explain {url}: {problem}\n{text}"))?;
        match said.status {
            // Elsewhere it may be refused altogether.
            Some(status) if status != served.status && origin == Origin::Loopback => Err(format!(
                "explain {url} with {:?} says {}, which is {status}\n{text}",
                said.fields, served.status
            )),
            _ => Ok(served),
        }
    }
}

/// Reads what was said: the answer and its fields, and the file that is in it.
fn read(text: &str, folder: &Path, site: &Site, pieces: &[Piece], limit: Limited) -> Result<Served, String> {
    let said: Vec<&str> = text.lines().filter(|line| !line.contains("does not match")).collect();
    let because = said.join(" | ");
    let mut lines = text.lines().skip_while(|line| !line.starts_with("answer: "));
    let status = lines.next().and_then(|line| line.get(8..11)).and_then(|digits| digits.parse().ok());
    let status = status.ok_or("no line says `answer: STATUS`")?;
    let fields = lines.map_while(|line| line.strip_prefix("  ")?.split_once(": "));
    // The boundary between several pieces is another one each time; they are compared by themselves.
    let fields = fields.filter(|(_, value)| !value.starts_with("multipart/byteranges; boundary="));
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut body = Body::Any;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("file ") {
            let (file, _) = rest.rsplit_once(", ").ok_or("a file without its size")?;
            let file =
                Path::new(file).strip_prefix(folder).map_err(|_| format!("{file} is not of this run"))?;
            let known = site.tree.find(&file.to_string_lossy());
            let (nonce, length) = known.ok_or_else(|| format!("{} was not written", file.display()))?;
            body = Body::File { nonce, length };
        }
        if let Some(rest) = line.strip_prefix("respond: ") {
            let length = rest.split(' ').nth(2).and_then(|word| word.parse().ok());
            // A status without a text has a page of the server's.
            body = length.map_or(Body::Any, |length| Body::Text { length });
        }
    }
    Ok(Served { status, fields, body, pieces: pieces.to_vec(), limit, because })
}
