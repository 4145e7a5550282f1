//! Why the system does not run a script (execve(2)), in words that say how to mend it.
//!
//! The stub asks when a start has failed or a script has ended with an error; `explain` asks before anything is started.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tidegate_http::Status;

/// Bytes of the first line that the kernel looks at (`BINPRM_BUF_SIZE`).
const FIRST_LINE: usize = 256;

/// What keeps a script from being run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFault {
    /// What a client is answered.
    pub status: Status,
    /// The end of a sentence that begins with the script.
    pub why: String,
}

/// Looks at a script; `None` where nothing is seen that would keep it from being run.
pub fn fault_of(script: &Path) -> Option<ScriptFault> {
    let fault = |status, why: String| Some(ScriptFault { status, why });
    let mode = script.metadata().ok()?.permissions().mode();
    if mode & 0o111 == 0 {
        return fault(Status::FORBIDDEN, format!("it may not be run: `chmod +x {}`", script.display()));
    }
    let mut front = Vec::new();
    File::open(script).ok()?.take(FIRST_LINE as u64).read_to_end(&mut front).ok()?;
    let Some(line) = front.strip_prefix(b"#!") else {
        // Programs begin with bytes that no text has.
        let is_text = !front.iter().any(|byte| *byte == 0 || *byte == 0x7f);
        return if is_text {
            fault(
                Status::INTERNAL_SERVER_ERROR,
                "it is a text without a line such as `#!/bin/sh` at its beginning, which names its interpreter".into(),
            )
        } else {
            None
        };
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.ends_with(b"\r") {
        return fault(
            Status::INTERNAL_SERVER_ERROR,
            format!(
                "its lines end as in DOS (CR LF), and the system looks for an interpreter with a CR in its name: take them \
                 out, such as with `sed -i 's/\\r$//' {}`",
                script.display()
            ),
        );
    }
    let interpreter = line.trim_ascii().split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    let interpreter = Path::new(std::ffi::OsStr::from_bytes(interpreter));
    if interpreter.as_os_str().is_empty() {
        return fault(Status::INTERNAL_SERVER_ERROR, "its first line `#!` names no interpreter".into());
    }
    match interpreter.metadata() {
        Ok(there) if there.permissions().mode() & 0o111 == 0 => fault(
            Status::FORBIDDEN,
            format!("its interpreter {} may not be run: `chmod +x` it", interpreter.display()),
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => fault(
            Status::INTERNAL_SERVER_ERROR,
            format!(
                "its interpreter {} is not there: install it, or mend the first line",
                interpreter.display()
            ),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_keeps_a_script_from_being_run() {
        let folder = std::env::temp_dir().join(format!("tidegate-fault-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("tool"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.join("tool"), fs::Permissions::from_mode(0o644)).unwrap();
        let of_tool = format!("#!{}\n", folder.join("tool").display());
        for (text, mode, expected) in [
            ("#!/bin/sh\necho", 0o755, None),
            ("#! /bin/sh -e\necho", 0o755, None),
            ("#!/usr/bin/env sh\necho", 0o755, None),
            ("\x7fELF\x02\x01\x01\0\0", 0o755, None),
            ("#!/bin/sh\necho", 0o644, Some((403, "chmod +x"))),
            ("echo no\n", 0o755, Some((500, "#!/bin/sh"))),
            ("", 0o755, Some((500, "#!/bin/sh"))),
            ("#!/bin/sh\r\necho\r\n", 0o755, Some((500, "CR LF"))),
            ("#!/usr/bin/env python3\r\nprint()\r\n", 0o755, Some((500, "CR LF"))),
            ("#!/no/such/perl -w\n", 0o755, Some((500, "/no/such/perl is not there"))),
            ("#!\n", 0o755, Some((500, "names no interpreter"))),
            (&of_tool, 0o755, Some((403, "tool may not be run"))),
        ] {
            let script = folder.join("script");
            fs::write(&script, text).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
            let fault = fault_of(&script);
            match (&fault, expected) {
                (None, None) => {}
                (Some(fault), Some((status, why))) => {
                    assert_eq!(fault.status.0, status, "{text:?}: {fault:?}");
                    assert!(fault.why.contains(why), "{text:?}: {fault:?}");
                }
                _ => panic!("{text:?}: {fault:?}"),
            }
        }
        assert_eq!(fault_of(&folder.join("missing")), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
