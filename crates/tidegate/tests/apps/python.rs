//! An ASGI application on uvicorn with a WebSocket, reached by a library and by a browser.

use crate::site::{Site, folder, has};
use std::fs;
use std::process::Command;
use tidegate_testkit::InTime;

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn python_on_uvicorn() {
    if !has(&[
        "curl",
        PYTHON,
        "/usr/lib/python3/dist-packages/uvicorn",
        "/usr/lib/python3/dist-packages/websockets",
    ]) {
        return;
    }
    let site = Site::start("python.kdl", folder("python"), &[]);
    let visitor = site.visitor("one");
    visitor.get("/").shows("Echo over a WebSocket");
    let seen = visitor.curl(&["-H", "X-Forwarded-For: 192.0.2.1", &format!("{}/request?a=b", site.url)]);
    let seen: serde_json::Value = serde_json::from_str(&seen.shows("fields").text).unwrap();
    assert_eq!(seen["query"], "a=b");
    let forwarded: Vec<_> =
        seen["fields"].as_array().unwrap().iter().filter(|field| field[0] == "x-forwarded-for").collect();
    assert_eq!(
        forwarded,
        [&serde_json::json!(["x-forwarded-for", "127.0.0.1"])],
        "a client cannot claim to be another"
    );
    visitor.get("/stream").shows("line 4\nend\n");
    let file = site.folder.join("large.bin");
    fs::write(&file, vec![7; 5_000_000]).unwrap();
    let body = format!("@{}", file.display());
    visitor.curl(&["--data-binary", &body, &format!("{}/digest", site.url)]).shows("5000000");

    // Text, bytes, and messages larger than a buffer, in both directions.
    let script = r#"
import asyncio, sys, websockets
async def main(url):
    async with websockets.connect(url, max_size=1 << 22) as socket:
        await socket.send("hello")
        assert await socket.recv() == "you said: hello"
        for length in (0, 1, 125, 126, 65535, 65536, 1 << 20):
            await socket.send(b"x" * length)
            assert await socket.recv() == b"x" * length, length
        await asyncio.gather(*(socket.send(str(number)) for number in range(100)))
        for number in range(100):
            assert await socket.recv() == f"you said: {number}"
        await (await socket.ping())
asyncio.run(asyncio.wait_for(main(sys.argv[1]), 30))
"#;
    let url = format!("{}/socket", site.url.replace("http://", "ws://"));
    let output = Command::new(PYTHON).args(["-c", script, &url]).output_in_time();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    if has(&["chromium"]) {
        let profile = format!("--user-data-dir={}", site.folder.join("profile").display());
        // The browser's time is its own and may end before the answer is there: it is asked again, a few times.
        let open = || {
            let arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"];
            Command::new("chromium")
                .args(arguments)
                .args(["--virtual-time-budget=4000", "--enable-logging=stderr", "--timeout=20000", &profile])
                .arg(format!("{}/", site.url))
                .output_in_time()
        };
        let has_answer = |output: &std::process::Output| {
            String::from_utf8_lossy(&output.stdout).contains("<li>you said: first</li>")
        };
        let mut output = open();
        for _ in 0..5 {
            if has_answer(&output) {
                break;
            }
            output = open();
        }
        let page = String::from_utf8_lossy(&output.stdout);
        assert!(has_answer(&output), "{page}");
        assert!(page.contains("<output id=\"state\">open</output>"), "{page}");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!log.contains(":CONSOLE("), "{log}");
    }
}
