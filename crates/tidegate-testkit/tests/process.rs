//! Starting, signalling and ending a real process, with a shell script in the place of the server.

use std::path::Path;

use tidegate_testkit::{Binary, Transcript};

fn play(steps: &str) -> Result<(), String> {
    let binary = Binary::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-in.sh"));
    Transcript::parse(&format!("# t0002 test\n{steps}")).expect("a valid transcript").run(&binary)
}

#[test]
fn a_server_lives_and_ends() {
    play(
        r#"
config "listen"
server start
expect log contains "listening on unix:${CONTROL}"
server hup
expect log contains "taking new settings"
run tidegate check --config ${CONFIG}
  exit 1
  stdout is "checked ${CONFIG}\n"
  stderr contains "warning"
server term
server exit 0
expect log contains "draining"
"#,
    )
    .unwrap_or_else(|message| panic!("{message}"));
}

#[test]
fn a_server_that_does_not_start_is_shown() {
    let message = play("config \"refuse\"\nserver start\n").expect_err("it does not start");
    for part in ["line 3: server start", "ended with 3", "the settings are refused"] {
        assert!(message.contains(part), "no {part:?} in:\n{message}");
    }
}

#[test]
fn another_exit_code_is_a_failure() {
    let message = play("config \"x\"\nserver start\nserver term\nserver exit 1\n").expect_err("another code");
    assert!(message.contains("the server ended with 0"), "{message}");
}

#[test]
fn a_missing_binary_is_named() {
    let transcript = Transcript::parse("# t0003 test\nserver start\n").expect("a valid transcript");
    let message = transcript.run(&Binary::new("/no/such/binary")).expect_err("it is missing");
    assert!(message.contains("/no/such/binary"), "{message}");
}
