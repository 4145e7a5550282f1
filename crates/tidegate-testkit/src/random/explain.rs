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
    read(&text, folder, site).map_err(|problem| format!("explain {url}: {problem}\n{text}"))
}

/// Reads what was said: the answer and its fields, and the file that is in it.
fn read(text: &str, folder: &Path, site: &Site) -> Result<Served, String> {
    let said: Vec<&str> = text.lines().filter(|line| !line.contains("does not match")).collect();
    let because = said.join(" | ");
    let mut lines = text.lines().skip_while(|line| !line.starts_with("answer: "));
    let status = lines.next().and_then(|line| line.get(8..11)).and_then(|digits| digits.parse().ok());
    let status = status.ok_or("no line says `answer: STATUS`")?;
    let fields = lines.map_while(|line| line.strip_prefix("  ")?.split_once(": "));
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
            let length = rest.split(' ').nth(2).and_then(|word| word.parse().ok()).ok_or("no length")?;
            body = Body::Text { length };
        }
    }
    Ok(Served { status, fields, body, because })
}
