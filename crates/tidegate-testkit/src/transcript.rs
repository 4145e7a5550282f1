//! Reads a transcript into steps. The format is described in `tests/transcripts/README.md`.

mod words;

use crate::backend::FastCgi;
use crate::condition::Condition;
use crate::fixture::size;
use crate::pattern::Pattern;
use crate::step::{Action, BodyCheck, Check, Ending, Expected, Http2Step, Source, Step};
use crate::token::{Token, tokens};
use std::collections::BTreeSet;
use words::{
    parse_body, parse_certificate, parse_client, parse_fixture, parse_frame, parse_output, parse_request,
    parse_server, parse_status, parse_tls_check, texts,
};

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
    /// Reads a transcript: its title, then its steps, line by line.
    ///
    /// # Errors
    /// The first line is no title, or a line is not understood: the first such line.
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
            [Token::Word(what), Token::Word(code), rest @ ..] if what == "goaway" => {
                let after = match rest {
                    [] => None,
                    [Token::Word(after), Token::Word(id)] if after == "after" => {
                        Some(id.parse().map_err(|_| format!("`{id}` is no stream"))?)
                    }
                    _ => return Err("`<goaway CODE`, or `<goaway CODE after STREAM`".to_owned()),
                };
                self.push(source, Action::Http2(Http2Step::Goodbye { code: code.clone(), after }));
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
            ("dns", [Token::Word(name), Token::Quoted(records)]) => {
                Action::NameServer { name: name.clone(), records: records.clone() }
            }
            ("dns", [Token::Word(name), Token::Word(asked), Token::Word(times)]) if asked == "asked" => {
                let times = times.parse().map_err(|_| format!("`{times}` is no number"))?;
                Action::Asked { name: name.clone(), times }
            }
            ("accept", [Token::Word(nobody)]) if nobody == "nobody" => Action::AcceptNobody,
            ("accept", name @ ([] | [Token::Word(_)])) => {
                self.is_h2 = false; // it is a backend's connection
                Action::Accept(if let [Token::Word(name)] = name { Some(name.clone()) } else { None })
            }
            ("connect", [Token::Word(fails)]) if fails == "fails" => Action::ConnectInVain,
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

fn is_sent_line(line: &str) -> bool {
    line.trim_start().strip_prefix('>').is_some_and(|sent| sent.is_empty() || sent.starts_with(' '))
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
