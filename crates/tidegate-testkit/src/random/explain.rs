//! What `tidegate explain` says of a request, read as a promise.

use std::path::Path;
use std::process::{Command, Stdio};

use super::answer::{Body, Served};
use super::settings::{Site, Target};

/// Asks for each path of the site, for clients from 127.0.0.1 and from the unix socket; an error is a sentence of
/// `explain` that cannot be read, or its failure.
pub(super) fn targets(binary: &Path, folder: &Path, site: &Site) -> Result<Vec<Target>, String> {
    let target = |path: &String| {
        let served = explain(binary, folder, site, path, "127.0.0.1")?;
        // Only access may depend on where a client is.
        let served_unix = match site.has_access_rules(path) {
            true => explain(binary, folder, site, path, "unix")?,
            false => served.clone(),
        };
        Ok(Target { path: path.clone(), served, served_unix })
    };
    site.paths.iter().map(target).collect()
}

fn explain(binary: &Path, folder: &Path, site: &Site, path: &str, from: &str) -> Result<Served, String> {
    let url = format!("http://{}{path}", site.host);
    let output = Command::new(binary)
        .args(["explain", "--config", "tidegate.kdl", "--from", from, &url])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!(
            "explain {url}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    read(&text, path, folder, site).map_err(|problem| format!("explain {url}: {problem}\n{text}"))
}

/// Reads what was said: the last line that says what is served, and what took its place before that.
fn read(text: &str, path: &str, folder: &Path, site: &Site) -> Result<Served, String> {
    let because =
        text.lines().filter(|line| !line.contains("does not match")).collect::<Vec<_>>().join(" | ");
    let served = |status, location: Option<&str>, body| Served {
        status,
        location: location.map(str::to_owned),
        body,
        because: because.clone(),
    };
    // What an error page says is of the page, not of the request.
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("file ") {
            let (file, _) = rest.rsplit_once(", ").ok_or("a file without its size")?;
            let file =
                Path::new(file).strip_prefix(folder).map_err(|_| format!("{file} is not of this run"))?;
            let known = site.tree.find(&file.to_string_lossy());
            let (nonce, length) = known.ok_or_else(|| format!("{} was not written", file.display()))?;
            return Ok(served(200, None, Body::File { nonce, length }));
        }
        if let Some(rest) = line.strip_prefix("answered with ") {
            return Ok(served(status(rest)?, None, Body::Any));
        }
        if let Some(rest) = line.strip_prefix("access: refused with ") {
            return Ok(served(status(rest)?, None, Body::Any));
        }
        if let Some(rest) = line.strip_prefix("a folder: redirected with ") {
            return Ok(served(status(rest)?, Some(&format!("{path}/")), Body::Any));
        }
        if line.starts_with("redirect ") {
            let (_, rest) = line.rsplit_once(": ").ok_or("a redirect without its status")?;
            let (_, location) = rest.split_once(" to ").ok_or("a redirect without its address")?;
            return Ok(served(status(rest)?, Some(location), Body::Any));
        }
        if let Some(rest) = line.strip_prefix("respond: ") {
            let length = rest.split(' ').nth(2).and_then(|word| word.parse().ok()).ok_or("no length")?;
            return Ok(served(status(rest)?, None, Body::Text { length }));
        }
        if line.starts_with("listing") || line.contains("a listing") {
            return Ok(served(200, None, Body::Any));
        }
    }
    Err("nothing is said of what is served".to_owned())
}

fn status(text: &str) -> Result<u16, String> {
    text.get(..3).and_then(|digits| digits.parse().ok()).ok_or_else(|| format!("no status in {text:?}"))
}
