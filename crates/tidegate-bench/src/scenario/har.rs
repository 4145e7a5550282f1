//! A scenario out of what a browser has recorded (HAR 1.2, <http://www.softwareishard.com/blog/har-12-spec/>): a beginning, in which
//! values that pages give (tokens, ids) are still those of the recording.
//!
//! `tidegate bench har` calls it. A page that is opened begins an operation, and so does what comes after a second in which nothing was
//! under way. What a page loads is left to `assets`; a request that a redirect has led to is left to the one before. All other hosts are
//! left out.

use super::template::{form_encode, is_of_target, percent_encode};
use crate::target::Url;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};
use thiserror::Error;

/// Seconds without a request, after which the next one is another operation.
const PAUSE: f64 = 1.0;

/// Bytes of a path and of a content that a scenario takes.
const MOST_PATH: usize = 8_000;
const MOST_CONTENT: usize = 65_536;

/// What browsers write in place of a file.
const BINARY: &str = "(binary)";

/// What was made of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The scenario, as `bench fmt` writes it.
    pub scenario: String,
    /// Where it goes.
    pub target: String,
    /// Operations and their steps.
    pub operations: usize,
    /// See there.
    pub steps: usize,
    /// Resources of pages, which `assets` loads.
    pub assets: usize,
    /// Of those, the ones that were not there: `assets` will fail their pages.
    pub missing: usize,
    /// Requests of other hosts.
    pub others: BTreeMap<String, usize>,
    /// Requests of the target that are left out: fonts, films, sockets, beacons, and what had no answer.
    pub left_out: usize,
    /// Requests and files whose content is not in the recording.
    pub without_content: usize,
}

/// Why a recording is none.
#[derive(Debug, Error)]
pub enum HarError {
    /// It is not JSON of this form.
    #[error("it is no HAR")]
    Syntax(#[from] serde_json::Error),
    /// Nothing in it is asked of a server by HTTP.
    #[error("it holds no page, and no request of a page, that a server has answered")]
    Empty,
}

#[derive(Deserialize)]
struct File {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: String,
    /// Milliseconds.
    time: Option<f64>,
    request: Request,
    response: Response,
    /// Of Chromium.
    #[serde(rename = "_resourceType")]
    resource_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    http_version: String,
    #[serde(default)]
    headers: Vec<Pair>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PostData {
    mime_type: String,
    text: String,
    params: Vec<Parameter>,
    /// Of Chromium: the text is not the content itself.
    #[serde(rename = "_encoding", alias = "encoding")]
    encoding: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Parameter {
    name: String,
    value: Option<String>,
    file_name: Option<String>,
    content_type: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    status: i64,
    #[serde(default)]
    content: Content,
    #[serde(default, rename = "redirectURL")]
    redirect: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Content {
    mime_type: String,
}

/// What a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A page that is opened.
    Page,
    /// A page in a page, or what a script asks for.
    Step,
    /// What `assets` loads.
    Asset,
    /// What users of a scenario do not ask for.
    Nothing,
}

/// An operation.
struct Operation {
    name: String,
    steps: Vec<String>,
    /// Seconds.
    begin: f64,
    end: f64,
}

impl Recording {
    /// Makes a scenario of a recording.
    ///
    /// # Errors
    /// [`HarError`].
    pub fn read(text: &[u8]) -> Result<Recording, HarError> {
        // Some programs begin their files with a mark of the byte order.
        let file: File = serde_json::from_slice(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text))?;
        let mut entries: Vec<(f64, Entry)> = file
            .log
            .entries
            .into_iter()
            .filter_map(|entry| Some((seconds(&entry.started_date_time)?, entry)))
            .collect();
        entries.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let pages = entries.iter().filter(|(_, entry)| entry.of() == Of::Page);
        let answered = pages.clone().find(|(_, entry)| (200..300).contains(&entry.response.status));
        let (_, first) = answered.or(pages.into_iter().next()).or(entries.first()).ok_or(HarError::Empty)?;
        let (target, is_h2) = (origin(&first.request.url).ok_or(HarError::Empty)?, first.is_h2());
        let mut recording = Recording {
            scenario: String::new(),
            target: target.clone(),
            operations: 0,
            steps: 0,
            assets: 0,
            missing: 0,
            others: BTreeMap::new(),
            left_out: 0,
            without_content: 0,
        };
        let operations = recording.operations(&entries);
        if operations.is_empty() {
            return Err(HarError::Empty);
        }
        recording.operations = operations.len();
        recording.steps = operations.iter().map(|operation| operation.steps.len()).sum();
        recording.scenario = written(&target, is_h2, &operations);
        Ok(recording)
    }

    fn operations(&mut self, entries: &[(f64, Entry)]) -> Vec<Operation> {
        let mut operations: Vec<Operation> = Vec::new();
        let mut names = HashSet::new();
        // Where the redirect of the step before leads to.
        let mut followed: Option<String> = None;
        for (begin, entry) in entries {
            let end = begin + entry.time.unwrap_or(0.0).max(0.0) / 1e3;
            let url = without_fragment(&entry.request.url);
            match origin(url) {
                None => continue,
                Some(origin) if origin != self.target => {
                    *self.others.entry(origin).or_default() += 1;
                    continue;
                }
                Some(_) => {}
            }
            let path = url.get(self.target.len()..).filter(|path| path.starts_with('/'));
            let path = sendable(path.unwrap_or("/"));
            if followed.as_deref() == Some(url) {
                followed = entry.redirect();
                if let Some(operation) = operations.last_mut() {
                    operation.end = operation.end.max(end);
                }
                continue;
            }
            let of = entry.of();
            let is_left_out = of == Of::Nothing || entry.response.status <= 0 || path.len() > MOST_PATH;
            if of == Of::Asset {
                self.assets += 1;
                self.missing += usize::from(entry.response.status >= 400);
            } else if is_left_out {
                self.left_out += 1;
                continue;
            } else {
                let is_new = operations.last().is_none_or(|last| begin - last.end >= PAUSE);
                if of == Of::Page || is_new {
                    let name = name_of(&entry.request.method, &path, &mut names);
                    operations.push(Operation { name, steps: Vec::new(), begin: *begin, end });
                }
                let step = self.step(entry, &path);
                if let Some(operation) = operations.last_mut() {
                    operation.steps.push(step);
                }
                followed = entry.redirect();
            }
            if let Some(operation) = operations.last_mut() {
                operation.end = operation.end.max(end);
            }
        }
        operations
    }

    /// A request as a step of the language.
    fn step(&mut self, entry: &Entry, path: &str) -> String {
        let request = &entry.request;
        let mut step = format!("{} {}", request.method.to_ascii_lowercase(), Text(path));
        let mut block = Vec::new();
        if matches!(request.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE") {
            self.content(request, &mut step, &mut block);
        }
        for field in request.headers.iter().filter(|field| is_of_use(field)) {
            block.push(format!("header {} {}", Text(&field.name), Text(&braced(&field.value))));
        }
        if entry.response.content.mime_type.starts_with("text/html") && entry.of() != Of::Nothing {
            block.push("assets".to_owned());
        }
        let leads_away = entry.redirect().is_some_and(|to| origin(&to).as_ref() != Some(&self.target));
        if entry.response.status >= 400 || leads_away {
            block.push(format!("expect status={}", entry.response.status));
        }
        if !block.is_empty() {
            let _ = write!(step, " {{\n{}\n}}", block.join("\n"));
        }
        step
    }

    /// What follows the head: as properties of the step, or in its block.
    fn content(&mut self, request: &Request, step: &mut String, block: &mut Vec<String>) {
        let nothing = PostData::default();
        let content = request.post_data.as_ref().unwrap_or(&nothing);
        let said = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-type"));
        let media_type = said.map_or(content.mime_type.as_str(), |field| field.value.as_str());
        let is_of = |essence: &str| media_type.to_ascii_lowercase().starts_with(essence);
        let is_whole = content.encoding.is_none() && content.text.len() <= MOST_CONTENT;
        let are_names = content.params.iter().all(|part| is_token(&part.name));
        if is_of("multipart/form-data") && !content.params.is_empty() && are_names {
            for part in &content.params {
                let value = part.value.as_deref().unwrap_or_default();
                if part.file_name.is_some() || value == BINARY {
                    self.without_content += 1;
                    block.push("// The file is not in the recording; this one is made up.".to_owned());
                }
                block.push(match (&part.file_name, &part.content_type) {
                    (None, _) if value == BINARY => format!("upload {}", Text(&part.name)),
                    (None, _) => format!("part {} {}", Text(&part.name), Text(&braced(value))),
                    (Some(file), kind) => {
                        let kind = kind.as_ref().map(|kind| format!(" type={}", Text(kind)));
                        let kind = kind.unwrap_or_default();
                        let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
                        format!("upload {} file={}{kind}", Text(&part.name), Text(file))
                    }
                });
            }
        } else if is_of("application/x-www-form-urlencoded")
            && !(content.text.is_empty() && content.params.is_empty())
            && is_whole
        {
            let mut form = content.text.clone().into_bytes();
            if form.is_empty() {
                for (number, part) in content.params.iter().enumerate() {
                    form.extend_from_slice(if number == 0 { b"" } else { b"&" });
                    form_encode(&mut form, part.name.as_bytes());
                    form.push(b'=');
                    form_encode(&mut form, part.value.as_deref().unwrap_or_default().as_bytes());
                }
            }
            let _ = write!(step, " form={}", Text(&braced(&String::from_utf8_lossy(&form))));
        } else if !content.text.is_empty() && is_whole && !is_of("multipart/form-data") {
            let media_type = if media_type.is_empty() { "text/plain" } else { media_type };
            let _ = write!(step, " body={} type={}", Text(&braced(&content.text)), Text(media_type));
        } else if !media_type.is_empty() {
            self.without_content += 1;
            let essence = media_type.split(';').next().unwrap_or_default().replace(char::is_control, " ");
            block.push(format!("// Its content, {essence}, is not in the recording."));
        }
    }
}

impl Entry {
    /// By what browsers say of it: the field `Sec-Fetch-Dest`, Chromium's type, else the type of the answer.
    fn of(&self) -> Of {
        if !matches!(self.request.method.as_str(), "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE") {
            return Of::Nothing;
        }
        let mut fields = self.request.headers.iter();
        let dest = fields.find(|field| field.name.eq_ignore_ascii_case("sec-fetch-dest"));
        let kind = self.resource_type.as_deref();
        if matches!(kind, Some("ping" | "preflight" | "websocket" | "csp-violation-report")) {
            return Of::Nothing;
        }
        match (dest.map(|field| field.value.as_str()), kind) {
            (Some("document"), _) | (None, Some("document")) => Of::Page,
            (Some("iframe" | "frame" | "empty"), _) | (None, Some("xhr" | "fetch")) => Of::Step,
            (Some("image" | "script" | "style"), _) | (None, Some("image" | "script" | "stylesheet")) => {
                Of::Asset
            }
            (Some(_), _) | (None, Some("font" | "media" | "manifest" | "texttrack" | "eventsource")) => {
                Of::Nothing
            }
            (None, _) => {
                match self.response.content.mime_type.split(['/', ';']).collect::<Vec<_>>().as_slice() {
                    ["text", "html", ..] => Of::Page,
                    ["image", ..] | ["text", "css" | "javascript", ..] => Of::Asset,
                    ["application", "javascript" | "x-javascript", ..] => Of::Asset,
                    ["font" | "audio" | "video", ..] => Of::Nothing,
                    _ if is_font(&self.request.url) => Of::Nothing,
                    _ => Of::Step,
                }
            }
        }
    }

    fn is_h2(&self) -> bool {
        matches!(self.request.http_version.to_ascii_lowercase().as_str(), "h2" | "http/2" | "http/2.0" | "h3")
    }

    /// Where the answer leads to, if it is a redirect.
    fn redirect(&self) -> Option<String> {
        let to = &self.response.redirect;
        let is_redirect = matches!(self.response.status, 301..=303 | 307 | 308) && !to.is_empty();
        let url = without_fragment(&self.request.url);
        let absolute = if to.contains("://") {
            to.clone()
        } else {
            let path = url.get(origin(url)?.len()..).unwrap_or("/");
            let target = Url::parse(&origin(url)?).ok()?;
            format!("{}{}", origin(url)?, super::page::resolve(&target, path, to.as_bytes())?)
        };
        is_redirect.then(|| without_fragment(&absolute).to_owned())
    }
}

/// By the path: of a font that was not there nothing else tells.
fn is_font(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("woff2" | "woff" | "ttf" | "otf" | "eot"))
}

/// Whether a field of a request is more than what any browser says.
fn is_of_use(field: &Pair) -> bool {
    let name = field.name.to_ascii_lowercase();
    let is_own = name == "authorization" || name.starts_with("x-") && name != "x-client-data";
    // What scripts ask for: those of pages begin with HTML.
    let is_choice = name == "accept" && field.value != "*/*" && !field.value.starts_with("text/html");
    is_token(&name) && (is_own || is_choice) && !field.value.chars().any(char::is_control)
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Scheme, host and port of a URL; `None` where it is none of HTTP.
fn origin(url: &str) -> Option<String> {
    let at = url.find("://")? + 3;
    let rest = url.get(at..)?;
    let end = at + rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let origin = url.get(..end)?;
    let is_http = origin.starts_with("http://") || origin.starts_with("https://");
    (is_http && Url::parse(origin).is_ok()).then(|| origin.to_owned())
}

fn without_fragment(url: &str) -> &str {
    url.split('#').next().unwrap_or_default()
}

/// A path as a template has it.
fn sendable(path: &str) -> String {
    let mut out = Vec::new();
    percent_encode(&mut out, path.as_bytes(), is_of_target);
    braced(&String::from_utf8_lossy(&out))
}

/// A text as a template has it: no bracket of it is one of a variable.
fn braced(text: &str) -> String {
    text.replace('{', "{{")
}

/// A name that no other operation has: of the path, in front of it the method if it is not GET.
fn name_of(method: &str, path: &str, names: &mut HashSet<String>) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let words = path.split(|character: char| !character.is_ascii_alphanumeric());
    let mut words: Vec<String> =
        words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).take(5).collect();
    if words.is_empty() {
        words.push("home".to_owned());
    }
    if method != "GET" {
        words.insert(0, method.to_ascii_lowercase());
    }
    // What KDL would not take for a word.
    let is_word = !matches!(words.concat().as_str(), "true" | "false" | "null" | "inf" | "nan");
    if !is_word || words.first().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit())) {
        words.insert(0, "page".to_owned());
    }
    let name = words.join("-").chars().take(60).collect::<String>();
    let mut numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut unique = name.clone();
    while !names.insert(unique.clone()) {
        unique = numbered.next().unwrap_or_default();
    }
    unique
}

fn written(target: &str, is_h2: bool, operations: &[Operation]) -> String {
    let pairs = operations.iter().zip(operations.iter().skip(1));
    let pauses: Vec<f64> = pairs.map(|(one, next)| (next.begin - one.end).max(0.0)).collect();
    let mean = pauses.iter().sum::<f64>() / pauses.len().max(1) as f64;
    let mut out = String::from(
        "// Made of a recording. Values that pages give (tokens, ids) are those of the recording: `take` them in their place.\n",
    );
    let _ = writeln!(out, "target {}", Text(target));
    let _ = writeln!(out, "users 10 {{ ramp-up \"10s\"; steady \"1m\" }}");
    let _ = writeln!(out, "think fixed {}", Text(&time(if pauses.is_empty() { 1.0 } else { mean })));
    if is_h2 {
        out.push_str("client h2\n");
    }
    let names: Vec<&str> = operations.iter().map(|operation| operation.name.as_str()).collect();
    let _ = writeln!(out, "sequence {}\n", names.join(" "));
    for (number, operation) in operations.iter().enumerate() {
        let pause = pauses.get(number).map(|pause| format!("think fixed {}\n", Text(&time(*pause))));
        let steps = operation.steps.join("\n");
        let _ = writeln!(out, "op {} {{\n{}{steps}\n}}", operation.name, pause.unwrap_or_default());
    }
    tidegate_config::format(&out).unwrap_or(out)
}

/// Seconds as the language has them, to hundredths.
fn time(seconds: f64) -> String {
    format!("{}ms", ((seconds * 100.0).round() * 10.0).clamp(10.0, 86_400_000.0))
}

/// A date of ISO 8601 with its time, in seconds of some origin.
fn seconds(date: &str) -> Option<f64> {
    let (day, clock) = date.split_once('T')?;
    let mut parts = day.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let end = clock.find(['Z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at_checked(end)?;
    let mut parts = clock.split(':').map(|part| part.parse::<f64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let offset = match zone.split_at_checked(1) {
        Some((sign @ ("+" | "-"), zone)) => {
            let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
            let (hours, minutes) = digits.split_at_checked(2)?;
            let minutes = hours.parse::<f64>().ok()? * 60.0 + minutes.parse::<f64>().unwrap_or(0.0);
            if sign == "-" { -minutes } else { minutes }
        }
        _ => 0.0,
    };
    let is_date = (1970..3000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    // Days of the civil calendar, with years that begin in March.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    is_date.then_some(days as f64 * 86_400.0 + (hour * 60.0 + minute - offset) * 60.0 + second)
}

/// A text between quotation marks, of which nothing is a variable of the environment.
struct Text<'t>(&'t str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.replace("${", "$${").chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                // What KDL does not let stand: besides controls ends of lines, marks of direction and of the order of bytes.
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                    write!(f, "\\u{{{:x}}}", u32::from(character))?;
                }
                character if character.is_control() => write!(f, "\\u{{{:x}}}", u32::from(character))?,
                character => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests;
