//! Reads a transcript into steps. The format is described in `tests/transcripts/README.md`.

use std::collections::BTreeSet;

use crate::backend::FastCgi;
use crate::condition::{Condition, Output, TextCheck};
use crate::fixture::{Contents, Fixture, size};
use crate::h2;
use crate::pattern::Pattern;
use crate::process::Signal;
use crate::step::{
    Action, BodyCheck, Check, Ending, Expected, Http2Step, Message, ServerAction, Source, Step,
};
use crate::tls::{Made, TlsCheck, TlsOptions};
use crate::token::{Token, tokens};

/// A transcript that was read without mistakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    title: String,
    pub(crate) steps: Vec<Step>,
}

/// A mistake in a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ParseError {}

impl Transcript {
    /// Reads a transcript.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let title =
            title.ok_or(ParseError { line: 1, problem: "the first line is `# rNNNN title`".to_owned() })?;
        let mut parser = Parser {
            lines: text.lines().enumerate().collect(),
            next: 0,
            steps: Vec::new(),
            speak_h2: BTreeSet::new(),
            is_h2: false,
        };
        while let Some((index, line)) = parser.take() {
            parser.line(index + 1, line).map_err(|problem| ParseError { line: index + 1, problem })?;
        }
        Ok(Transcript { title: title.to_owned(), steps: parser.steps })
    }

    /// The first line: number and title.
    pub fn title(&self) -> &str {
        &self.title
    }
}

struct Parser<'a> {
    lines: Vec<(usize, &'a str)>,
    next: usize,
    steps: Vec<Step>,
    /// Clients of HTTP/2, and whether the present one is.
    speak_h2: BTreeSet<String>,
    is_h2: bool,
}

impl<'a> Parser<'a> {
    fn take(&mut self) -> Option<(usize, &'a str)> {
        let line = self.lines.get(self.next).copied();
        self.next += 1;
        line
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let trimmed = line.trim_start();
        let source = Source { line: number, text: line.trim().to_owned() };
        if trimmed.is_empty() || trimmed.starts_with('#') {
            Ok(())
        } else if let Some(sent) = trimmed.strip_prefix('>') {
            self.sent(source, sent)
        } else if let Some(received) = trimmed.strip_prefix('<') {
            self.received(source, received)
        } else {
            self.directive(source, trimmed)
        }
    }

    fn push(&mut self, source: Source, action: Action) {
        self.steps.push(Step { source, action });
    }

    fn sent(&mut self, source: Source, sent: &str) -> Result<(), String> {
        if sent.is_empty() || sent.starts_with(' ') {
            let line = sent.strip_prefix(' ').unwrap_or(sent);
            let follows = source.line.checked_sub(2).and_then(|index| self.lines.get(index));
            let is_group = follows.is_some_and(|(_, before)| is_sent_line(before));
            if self.is_h2 {
                match self.steps.last_mut() {
                    Some(Step {
                        action: Action::Http2(Http2Step::Ask { lines, is_open: false }), ..
                    }) if is_group => {
                        lines.push(line.to_owned());
                    }
                    _ => {
                        let lines = vec![line.to_owned()];
                        self.push(source, Action::Http2(Http2Step::Ask { lines, is_open: false }));
                    }
                }
                return Ok(());
            }
            if let (true, Some(Step { action: Action::Send { bytes, times: 1 }, .. })) =
                (is_group, self.steps.last_mut())
            {
                bytes.extend_from_slice(line.as_bytes());
                bytes.extend_from_slice(b"\r\n");
            } else {
                let bytes = format!("{line}\r\n").into_bytes();
                self.push(source, Action::Send { bytes, times: 1 });
            }
            return Ok(());
        }
        if let Some(line) = sent.strip_prefix("open ").filter(|_| self.is_h2) {
            let lines = vec![line.to_owned()];
            self.push(source, Action::Http2(Http2Step::Ask { lines, is_open: true }));
            return Ok(());
        }
        let action = match tokens(sent)?.as_slice() {
            [Token::Word(word), Token::Quoted(bytes)] if self.is_h2 && (word == "data" || word == "end") => {
                Action::Http2(Http2Step::Content { bytes: bytes.clone(), is_end: word == "end" })
            }
            [Token::Word(fill)] if self.is_h2 && fill == "fill" => Action::Http2(Http2Step::Fill),
            [Token::Word(bytes), Token::Word(length)] if self.is_h2 && bytes == "bytes" => {
                Action::Http2(Http2Step::Upload(size(length)?))
            }
            [Token::Word(word), arguments @ ..] if self.is_h2 && word == "frame" => parse_frame(arguments)?,
            [Token::Word(raw), Token::Quoted(bytes)] if raw == "raw" => {
                Action::Send { bytes: bytes.clone(), times: 1 }
            }
            [Token::Word(repeat), Token::Word(times), Token::Quoted(bytes)] if repeat == "repeat" => {
                Action::Send { bytes: bytes.clone(), times: size(times)? }
            }
            [Token::Word(bytes), Token::Word(length)] if bytes == "bytes" => {
                Action::SendCounting(size(length)?)
            }
            [Token::Word(fastcgi), what @ ..] if fastcgi == "fastcgi" => Action::FastCgi(match what {
                [Token::Word(what), Token::Quoted(text)] if what == "stdout" => FastCgi::Stdout(text.clone()),
                [Token::Word(what), Token::Quoted(text)] if what == "stderr" => FastCgi::Stderr(text.clone()),
                [Token::Word(what), Token::Quoted(text)] if what == "answer" => FastCgi::Answer(text.clone()),
                [Token::Word(what)] if what == "end" => FastCgi::End(0),
                [Token::Word(what), Token::Word(status)] if what == "end" => {
                    FastCgi::End(status.parse().map_err(|_| format!("`{status}` is no status"))?)
                }
                _ => {
                    return Err(
                        "expected `>fastcgi stdout|stderr|answer \"...\"` or `>fastcgi end`".to_owned()
                    );
                }
            }),
            _ => {
                return Err(
                    "expected `> line`, `>raw \"...\"`, `>repeat N \"...\"` or `>bytes SIZE`".to_owned()
                );
            }
        };
        self.push(source, action);
        Ok(())
    }

    fn received(&mut self, source: Source, received: &str) -> Result<(), String> {
        if let Some(line) = received.strip_prefix(' ') {
            if line.starts_with("HTTP/") || line.starts_with(|first: char| first.is_ascii_digit()) {
                let expected = parse_status(line)?;
                self.push(source, Action::Response(expected));
                return Ok(());
            }
            let check = match line.strip_prefix('!') {
                Some(absent) => match absent.split_once(':') {
                    Some((name, value)) => Check::NoField {
                        name: name.to_owned(),
                        value: Some(Pattern::new(value.trim().as_bytes())),
                    },
                    None => Check::NoField { name: absent.trim().to_owned(), value: None },
                },
                None => {
                    let (name, value) =
                        line.split_once(':').ok_or("expected `< Name: value` or `< !Name`")?;
                    Check::Field { name: name.to_owned(), value: Pattern::new(value.trim().as_bytes()) }
                }
            };
            return self.check(source, check);
        }
        if let Some(message) = parse_request(received)? {
            let expected = Expected {
                message,
                version: None,
                statuses: Vec::new(),
                reason: None,
                has_body: true,
                checks: Vec::new(),
            };
            self.push(source, Action::Response(expected));
            return Ok(());
        }
        if let Some(trailer) = received.strip_prefix("trailer ") {
            let (name, value) = trailer.split_once(':').ok_or("expected `<trailer Name: value`")?;
            let value = Pattern::new(value.trim().as_bytes());
            return self.check(source, Check::Trailer { name: name.trim().to_owned(), value });
        }
        if let Some(check) = received.strip_prefix("tls ") {
            let check = parse_tls_check(&check.split_whitespace().collect::<Vec<_>>())?;
            self.push(source, Action::Tls(check));
            return Ok(());
        }
        let tokens = tokens(received)?;
        let ending = match tokens.as_slice() {
            [Token::Word(word)] => match word.as_str() {
                "eof" => Some(Ending::Eof),
                "reset" => Some(Ending::Reset),
                "closed" => Some(Ending::Closed),
                "drained" => Some(Ending::Drained),
                "quiet" => Some(Ending::Quiet),
                _ => None,
            },
            [Token::Word(raw), Token::Quoted(bytes)] if raw == "raw" => {
                self.push(source, Action::Raw(bytes.clone()));
                return Ok(());
            }
            [Token::Word(bytes), Token::Word(length)] if bytes == "bytes" => {
                self.push(source, Action::Take(size(length)?));
                return Ok(());
            }
            [Token::Word(what), Token::Word(code)] if what == "stream-reset" => {
                self.push(source, Action::Http2(Http2Step::Reset(code.clone())));
                return Ok(());
            }
            [Token::Word(what), Token::Word(code)] if what == "goaway" => {
                self.push(source, Action::Http2(Http2Step::Goodbye(code.clone())));
                return Ok(());
            }
            _ => None,
        };
        if let Some(ending) = ending {
            self.push(source, Action::Ending(ending));
            return Ok(());
        }
        if matches!(tokens.as_slice(), [Token::Word(body), Token::Word(none)] if body == "body" && none == "none")
        {
            self.expected()?.has_body = false;
            return self.check(source, Check::Body(BodyCheck::Length(0)));
        }
        self.check(source, Check::Body(parse_body(&tokens)?))
    }

    fn expected(&mut self) -> Result<&mut Expected, String> {
        match self.steps.last_mut() {
            Some(Step { action: Action::Response(expected), .. }) => Ok(expected),
            _ => Err("no `< STATUS` before it".to_owned()),
        }
    }

    fn check(&mut self, source: Source, check: Check) -> Result<(), String> {
        self.expected()?.checks.push((source, check));
        Ok(())
    }

    fn directive(&mut self, source: Source, line: &str) -> Result<(), String> {
        let tokens = match line.trim_end().strip_suffix("\"\"\"") {
            Some(before) => {
                let mut tokens = tokens(before)?;
                tokens.push(Token::Quoted(self.block()?));
                tokens
            }
            None => tokens(line)?,
        };
        let (name, arguments) = match tokens.split_first() {
            Some((Token::Word(name), arguments)) => (name.as_str(), arguments),
            _ => return Err("a line begins with a directive, `>` or `<`".to_owned()),
        };
        let action = match (name, arguments) {
            ("config", [Token::Quoted(text)]) => Action::Config(text.clone()),
            ("file" | "dir" | "link" | "mode" | "remove" | "rename", _) => {
                Action::Fixture(parse_fixture(name, arguments)?)
            }
            ("client", [Token::Word(client), options @ ..]) => {
                let action = parse_client(client, options)?;
                if matches!(action, Action::Client { h2: Some(_), .. }) {
                    self.speak_h2.insert(client.clone());
                }
                self.is_h2 = self.speak_h2.contains(client);
                action
            }
            ("authority" | "certificate", _) => {
                Action::Certificate(parse_certificate(name == "authority", arguments)?)
            }
            ("backend", [Token::Word(name)]) => Action::Backend { name: name.clone(), is_unix: false },
            ("backend", [Token::Word(name), Token::Word(unix)]) if unix == "unix" => {
                Action::Backend { name: name.clone(), is_unix: true }
            }
            ("accept", []) => Action::Accept(None),
            ("accept", [Token::Word(nobody)]) if nobody == "nobody" => Action::AcceptNobody,
            ("accept", [Token::Word(name)]) => Action::Accept(Some(name.clone())),
            ("connect", []) => Action::Connect { early: Vec::new() },
            ("connect", [Token::Word(early), Token::Quoted(bytes)]) if early == "early" => {
                Action::Connect { early: bytes.clone() }
            }
            ("shutdown", []) => Action::Shutdown,
            ("close", []) => Action::Close,
            ("reset", []) => Action::Reset,
            ("save", [Token::Word(name), Token::Word(field)]) => {
                Action::Save { name: name.clone(), field: field.clone() }
            }
            ("server", _) => Action::Server(parse_server(arguments)?),
            ("run", [Token::Word(tidegate), arguments @ ..]) if tidegate == "tidegate" => {
                Action::Run { arguments: texts(arguments)?, checks: Vec::new() }
            }
            ("exit" | "stdout" | "stderr", _) => {
                let check = parse_output(name, arguments)?;
                return match self.steps.last_mut() {
                    Some(Step { action: Action::Run { checks, .. }, .. }) => {
                        checks.push((source, check));
                        Ok(())
                    }
                    _ => Err(format!("`{name}` belongs below `run`")),
                };
            }
            ("expect", _) => Action::Expect(Condition::parse(arguments)?),
            _ => return Err(format!("`{name}` with these arguments is no step")),
        };
        self.push(source, action);
        Ok(())
    }

    /// The lines up to one that is only `"""`, without the indentation that all of them have.
    fn block(&mut self) -> Result<Vec<u8>, String> {
        let mut lines = Vec::new();
        loop {
            match self.take() {
                Some((_, line)) if line.trim() == "\"\"\"" => break,
                Some((_, line)) => lines.push(line),
                None => return Err("a \"\"\" block does not end".to_owned()),
            }
        }
        let indentation = |line: &&str| line.len() - line.trim_start_matches(' ').len();
        let common = lines.iter().filter(|line| !line.trim().is_empty()).map(indentation).min().unwrap_or(0);
        let text: String =
            lines.iter().map(|line| format!("{}\n", line.get(common..).unwrap_or(""))).collect();
        Ok(text.into_bytes())
    }
}

/// `<request GET / HTTP/1.1`, `<fastcgi`, `<fastcgi keep`, `<scgi`.
fn parse_request(received: &str) -> Result<Option<Message>, String> {
    let words: Vec<&str> = received.trim_end().splitn(2, ' ').collect();
    Ok(match words.as_slice() {
        ["request", line] => Some(Message::Request(Pattern::new(line.as_bytes()))),
        ["fastcgi"] => Some(Message::FastCgi(None)),
        ["fastcgi", flag @ ("keep" | "close")] => Some(Message::FastCgi(Some((*flag).to_owned()))),
        ["scgi"] => Some(Message::Scgi),
        ["request" | "fastcgi" | "scgi", ..] => {
            return Err("expected `<request LINE`, `<fastcgi [keep|close]` or `<scgi`".to_owned());
        }
        _ => None,
    })
}

fn is_sent_line(line: &str) -> bool {
    line.trim_start().strip_prefix('>').is_some_and(|sent| sent.is_empty() || sent.starts_with(' '))
}

/// `HTTP/1.1 200 OK`, `HTTP/1.1 200`, `200`, `400|501`.
fn parse_status(line: &str) -> Result<Expected, String> {
    let mut words = line.splitn(3, ' ');
    let mut first = words.next().unwrap_or_default();
    let version = first.starts_with("HTTP/").then(|| first.to_owned());
    if version.is_some() {
        first = words.next().unwrap_or_default();
    }
    let parse = |code: &str| match code.parse() {
        Ok(status @ 100..=599) => Ok(status),
        _ => Err(format!("`{code}` is no status code")),
    };
    let statuses = first.split('|').map(parse).collect::<Result<_, _>>()?;
    let reason: Vec<&str> = words.collect();
    let reason = (!reason.is_empty()).then(|| Pattern::new(reason.join(" ").trim().as_bytes()));
    let message = Message::Response;
    Ok(Expected { message, version, statuses, reason, has_body: true, checks: Vec::new() })
}

fn parse_body(tokens: &[Token]) -> Result<BodyCheck, String> {
    match tokens {
        [Token::Word(name), Token::Quoted(text)] => {
            let text = text.clone();
            Ok(match name.as_str() {
                "body" => BodyCheck::Exact(text),
                "body-starts" => BodyCheck::Starts(text),
                "body-ends" => BodyCheck::Ends(text),
                "body-contains" => BodyCheck::Contains(text),
                "body-lacks" => BodyCheck::Lacks(text),
                _ => return Err(format!("`<{name}` is no expectation")),
            })
        }
        [Token::Word(name), Token::Word(length)] if name == "body-length" => {
            Ok(BodyCheck::Length(size(length)?))
        }
        [Token::Word(name), Token::Word(digest)] if name == "body-sha256" => {
            Ok(BodyCheck::Sha256(digest.clone()))
        }
        [Token::Word(name), Token::Word(path)] if name == "body-file" => {
            Ok(BodyCheck::File { path: path.clone(), range: None })
        }
        [Token::Word(name), Token::Word(path), Token::Word(range)] if name == "body-file" => {
            let ends = range
                .split_once("..")
                .and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
            let range = ends.ok_or_else(|| format!("`{range}`: expected FROM..TO"))?;
            Ok(BodyCheck::File { path: path.clone(), range: Some(range) })
        }
        _ => Err("this is no expectation".to_owned()),
    }
}

fn parse_fixture(name: &str, arguments: &[Token]) -> Result<Fixture, String> {
    let (arguments, modified) = match arguments.split_last() {
        Some((Token::Word(option), before)) if option.starts_with("mtime=") => {
            let seconds = option.trim_start_matches("mtime=");
            (
                before,
                Some(seconds.parse().map_err(|_| format!("`{seconds}`: mtime is in seconds since 1970"))?),
            )
        }
        _ => (arguments, None),
    };
    match (name, arguments) {
        ("file", [path, contents]) => {
            let contents = match contents {
                Token::Quoted(text) => Contents::Text(text.clone()),
                Token::Word(word) => Contents::parse(word)?,
            };
            Ok(Fixture::File { path: text(path)?, contents, modified })
        }
        ("dir", [Token::Word(path)]) => Ok(Fixture::Folder { path: path.clone(), modified }),
        ("link", [path, target]) => Ok(Fixture::Link { path: text(path)?, target: text(target)? }),
        ("remove", [Token::Word(path)]) => Ok(Fixture::Remove { path: path.clone() }),
        ("mode", [Token::Word(path), Token::Word(mode)]) => {
            let mode = u32::from_str_radix(mode, 8).map_err(|_| format!("`{mode}`: a mode is octal"))?;
            Ok(Fixture::Mode { path: path.clone(), mode })
        }
        ("rename", [Token::Word(from), Token::Word(to)]) => {
            Ok(Fixture::Rename { from: from.clone(), to: to.clone() })
        }
        _ => Err(format!("`{name}` has other arguments")),
    }
}

fn parse_client(name: &str, options: &[Token]) -> Result<Action, String> {
    let (mut listener, mut receive_buffer) = (None, None);
    let mut h2: Option<h2::Options> = None;
    let mut tls: Option<TlsOptions> = None;
    for option in options {
        let option = text(option)?;
        if parse_h2_option(&option, &mut h2)? {
            continue;
        }
        if parse_tls_option(&option, &mut tls) {
            continue;
        }
        match option.split_once('=') {
            Some(("listener", number)) => {
                let number: Option<usize> = number.parse().ok().filter(|number| *number > 0);
                listener = Some(number.ok_or("listeners are numbered from 1")?);
            }
            Some(("receive-buffer", bytes)) => {
                receive_buffer = Some(usize::try_from(size(bytes)?).map_err(|error| error.to_string())?);
            }
            _ => return Err(format!("`{option}` is no option of a client")),
        }
    }
    Ok(Action::Client { name: name.to_owned(), listener, receive_buffer, tls, h2 })
}

/// `h2`, and behind it `window=BYTES`, `silent`. Whether it was one of these.
fn parse_h2_option(option: &str, h2: &mut Option<h2::Options>) -> Result<bool, String> {
    let Some(options) = h2 else {
        if option == "h2" {
            *h2 = Some(h2::Options::default());
        }
        return Ok(option == "h2");
    };
    match option.split_once('=') {
        Some(("window", bytes)) => {
            options.window = Some(u32::try_from(size(bytes)?).map_err(|error| error.to_string())?);
        }
        None if option == "silent" => options.is_silent = true,
        _ => return Ok(false),
    }
    Ok(true)
}

/// `>frame PING 0 0 "12345678"`, and how often.
fn parse_frame(arguments: &[Token]) -> Result<Action, String> {
    let usage = "expected `>frame TYPE FLAGS STREAM \"payload\" [TIMES]`";
    let [Token::Word(kind), Token::Word(flags), Token::Word(stream), Token::Quoted(payload), rest @ ..] =
        arguments
    else {
        return Err(usage.to_owned());
    };
    let times = match rest {
        [] => 1,
        [Token::Word(times)] => size(times)?,
        _ => return Err(usage.to_owned()),
    };
    Ok(Action::Http2(Http2Step::Frame {
        kind: h2::kind_of(kind).ok_or_else(|| format!("`{kind}` is no type of frame"))?,
        flags: flags.parse().map_err(|_| usage)?,
        stream: stream.parse().map_err(|_| usage)?,
        payload: payload.clone(),
        times,
    }))
}

/// `tls`, and behind it `name=a.test`, `version=1.2`, `alpn=h2,http/1.1`, `certificate=alice`, `fails`.
fn parse_tls_option(option: &str, tls: &mut Option<TlsOptions>) -> bool {
    let Some(options) = tls else {
        if option == "tls" {
            *tls = Some(TlsOptions::default());
        }
        return option == "tls";
    };
    match option.split_once('=') {
        Some(("name", name)) => options.name = Some(name.to_owned()),
        Some(("version", version)) => options.version = Some(version.to_owned()),
        Some(("alpn", list)) => options.protocols = list.split(',').map(str::to_owned).collect(),
        Some(("certificate", name)) => options.certificate = Some(name.to_owned()),
        None if option == "fails" => options.must_fail = true,
        None if option == "early" => options.is_early = true,
        _ => return false,
    }
    true
}

/// `certificate NAME "host" ...` and `authority NAME`, with `by=AUTHORITY`, `rsa`, `expired`.
fn parse_certificate(is_authority: bool, arguments: &[Token]) -> Result<Made, String> {
    let [name, options @ ..] = arguments else { return Err("a certificate needs a name".to_owned()) };
    let (name, mut hosts, mut by) = (text(name)?, Vec::new(), None);
    let (mut is_rsa, mut has_expired) = (false, false);
    for option in options {
        match option {
            Token::Quoted(_) => hosts.push(text(option)?),
            Token::Word(word) => match word.as_str() {
                "rsa" => is_rsa = true,
                "expired" => has_expired = true,
                word => match word.strip_prefix("by=") {
                    Some(name) => by = Some(name.to_owned()),
                    None => return Err(format!("`{word}` is no option of a certificate")),
                },
            },
        }
    }
    Ok(Made { name, hosts, by, is_authority, is_rsa, has_expired })
}

fn parse_tls_check(words: &[&str]) -> Result<TlsCheck, String> {
    match words {
        ["version", version] => Ok(TlsCheck::Version((*version).to_owned())),
        ["alpn", name] => Ok(TlsCheck::Protocol((*name).to_owned())),
        ["certificate", name] => Ok(TlsCheck::Certificate((*name).to_owned())),
        ["resumed"] => Ok(TlsCheck::Resumed),
        ["full"] => Ok(TlsCheck::Full),
        ["early"] => Ok(TlsCheck::Early),
        _ => {
            Err("expected `<tls version|alpn|certificate VALUE`, `<tls resumed`, `<tls full` or `<tls early`"
                .to_owned())
        }
    }
}

fn parse_server(arguments: &[Token]) -> Result<ServerAction, String> {
    match texts(arguments)?.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["start"] => Ok(ServerAction::Start),
        ["hup"] => Ok(ServerAction::Signal(Signal::Hangup)),
        ["term"] => Ok(ServerAction::Signal(Signal::Terminate)),
        ["exit", code] => {
            code.parse().map(ServerAction::Exit).map_err(|_| format!("`{code}` is no exit code"))
        }
        _ => Err("expected server start, hup, term or exit CODE".to_owned()),
    }
}

fn parse_output(name: &str, arguments: &[Token]) -> Result<Output, String> {
    match (name, arguments) {
        ("exit", [Token::Word(code)]) => {
            code.parse().map(Output::Exit).map_err(|_| format!("`{code}` is no exit code"))
        }
        ("stdout", check) => TextCheck::parse(check).map(Output::Stdout),
        ("stderr", check) => TextCheck::parse(check).map(Output::Stderr),
        _ => Err("expected `exit CODE`".to_owned()),
    }
}

fn text(token: &Token) -> Result<String, String> {
    match token {
        Token::Word(word) => Ok(word.clone()),
        Token::Quoted(bytes) => String::from_utf8(bytes.clone()).map_err(|_| "not valid UTF-8".to_owned()),
    }
}

fn texts(tokens: &[Token]) -> Result<Vec<String>, String> {
    tokens.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_sent_lines_are_one_write() {
        let text = "# r1 t\nclient c\n  > GET / HTTP/1.1\n  > Host: a\n  >\n  >raw \"x\"\n  > y\n\n  > z\n";
        let transcript = Transcript::parse(text).expect("valid");
        let sent: Vec<&[u8]> = transcript
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Send { bytes, .. } => Some(bytes.as_slice()),
                _ => None,
            })
            .collect();
        assert_eq!(sent, [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(), b"x", b"y\r\n", b"z\r\n"]);
    }

    #[test]
    fn blocks_lose_their_indentation() {
        let text = "# r1 t\nconfig \"\"\"\n    site {\n      root \"x\"\n    }\n\"\"\"\n";
        let transcript = Transcript::parse(text).expect("valid");
        assert_eq!(transcript.steps[0].action, Action::Config(b"site {\n  root \"x\"\n}\n".to_vec()));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (line, text) in [
            (1, "no title"),
            (2, "# t\nfrobnicate"),
            (2, "# t\n< Name: value"),
            (2, "# t\n< 2000"),
            (2, "# t\nexit 0"),
            (3, "# t\n< 200\n<body-is \"x\""),
            (2, "# t\nconfig \"\"\"\nsite {"),
            (2, "# t\nclient a listener=0"),
            (2, "# t\nfile a \"x\" mtime=yesterday"),
            (2, "# t\n>raw GET"),
            (2, "# t\nserver restart"),
        ] {
            assert_eq!(Transcript::parse(text).map_err(|error| error.line), Err(line), "{text}");
        }
    }
}
