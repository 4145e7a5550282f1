//! What `docs/first-hour.md` tells to do, as steps: its blocks in their order, and nothing of this file's own.
//!
//! A block of `sh` is run. One of `text` is what the block before it has to print. Any other is a file whose name is the last
//! that the line before it has in backquotes; where that line says "At the end of", it is added to the file.

use anyhow::{Context, Result, bail};

/// One thing to do.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Commands, and lines that have to be in what they print.
    Run { commands: String, expected: Vec<String> },
    /// A file to write, or to add to.
    File { path: String, content: String, is_added: bool },
}

/// The steps of a page.
pub fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut before = "";
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            before = if line.is_empty() { before } else { line };
            continue;
        };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let content = block.join("\n") + "\n";
        match (language, steps.last_mut()) {
            ("sh", _) => steps.push(Step::Run { commands: content, expected: Vec::new() }),
            ("text", Some(Step::Run { expected, .. })) => {
                expected.extend(block.into_iter().map(str::to_owned))
            }
            ("text", _) => bail!("line {}: no command prints this", at + 1),
            _ => {
                let path = before.rsplit('`').nth(1).filter(|path| path.starts_with('/'));
                let path =
                    path.with_context(|| format!("line {}: no line names the file", at + 1))?.to_owned();
                steps.push(Step::File { path, content, is_added: before.contains("At the end of") });
            }
        }
    }
    Ok(steps)
}

/// The packages of Debian that commands install, so that they can be fetched before there is no network.
pub fn packages(steps: &[Step]) -> Vec<&str> {
    let commands = steps.iter().filter_map(|step| match step {
        Step::Run { commands, .. } => Some(commands.lines()),
        Step::File { .. } => None,
    });
    let installed = commands.flatten().filter_map(|line| line.strip_prefix("apt install "));
    installed.flat_map(str::split_whitespace).filter(|word| !word.starts_with(['-', '.'])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_steps() {
        let page = "# T\n\nDo:\n\n```sh\napt install -y a ./b.deb\n```\n\nIt says:\n\n```text\none\ntwo\n```\n\n`/x/y`:\n\n```kdl\nz\n```\n\n\
                    At the end of `/p`:\n\n```yaml\nq\n```\n";
        let steps = steps(page).unwrap();
        let file = |path: &str, content: &str, is_added| Step::File {
            path: path.into(),
            content: content.into(),
            is_added,
        };
        assert_eq!(
            steps,
            [
                Step::Run {
                    commands: "apt install -y a ./b.deb\n".into(),
                    expected: vec!["one".into(), "two".into()]
                },
                file("/x/y", "z\n", false),
                file("/p", "q\n", true),
            ]
        );
        assert_eq!(packages(&steps), ["a"]);
        assert!(super::steps("```kdl\nz\n```\n").is_err());
    }

    #[test]
    fn the_page_has_steps() {
        let page = std::fs::read_to_string(crate::workspace::root().join(super::super::PAGE)).unwrap();
        let steps = steps(&page).unwrap();
        assert!(steps.len() > 15, "{steps:?}");
        assert!(packages(&steps).contains(&"wordpress"));
    }
}
