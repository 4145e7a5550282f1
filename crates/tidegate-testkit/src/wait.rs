//! Waiting in tests for something to be seen, in place of sleeping and hoping.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a test waits for anything.
pub const WAIT: Duration = Duration::from_secs(20);

/// How long a test waits for a program, a compiler among them.
const PROGRAM: Duration = Duration::from_secs(300);

/// What comes next.
///
/// # Panics
/// After [`WAIT`], or when nothing can come any more, with `what` it was.
pub fn receive<T>(from: &Receiver<T>, what: &str) -> T {
    from.recv_timeout(WAIT).unwrap_or_else(|error| panic!("waited in vain for {what}: {error}"))
}

/// What the thread comes to.
///
/// # Panics
/// After [`WAIT`], and with the thread's own words when it has panicked.
pub fn join<T>(thread: JoinHandle<T>, what: &str) -> T {
    wait_for(|| thread.is_finished().then_some(()), what);
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The next connection, on which no read and no write takes longer than [`WAIT`].
///
/// # Panics
/// After [`WAIT`], with `what` it was.
pub fn accept(listener: &TcpListener, what: &str) -> TcpStream {
    listener.set_nonblocking(true).expect("invariant: a listener can be asked without waiting");
    let (stream, _) = wait_for(|| listener.accept().ok(), what);
    stream.set_nonblocking(false).expect("invariant: as can a connection");
    stream.set_read_timeout(Some(WAIT)).expect("invariant: the time is not zero");
    stream.set_write_timeout(Some(WAIT)).expect("invariant: the time is not zero");
    stream
}

/// What the future comes to, on this thread.
///
/// # Panics
/// When it has not been woken for [`WAIT`].
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread, AtomicBool);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, SeqCst);
            self.0.unpark();
        }
    }
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(unpark.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let deadline = Instant::now() + WAIT;
        while !unpark.1.swap(false, SeqCst) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain to be woken");
            std::thread::park_timeout(left);
        }
    }
}

/// Says to threads that it is over, also when what they are for has panicked: else a scope would wait for them for ever.
#[derive(Debug)]
pub struct OverWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for OverWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Programs that end in time, or are ended.
pub trait InTime {
    /// Its end, and what it has said.
    ///
    /// # Panics
    /// When it cannot be started, and after five minutes.
    fn output_in_time(self) -> Output;
    /// Its end.
    ///
    /// # Panics
    /// When it cannot be started, and after five minutes.
    fn status_in_time(self) -> ExitStatus;
}

impl InTime for &mut Command {
    fn output_in_time(self) -> Output {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn().unwrap_or_else(|error| panic!("{self:?}: {error}"));
        child.output_in_time()
    }

    fn status_in_time(self) -> ExitStatus {
        self.spawn().unwrap_or_else(|error| panic!("{self:?}: {error}")).status_in_time()
    }
}

impl InTime for Child {
    fn output_in_time(mut self) -> Output {
        drop(self.stdin.take());
        let collect = |from: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                // What came before an error is still worth showing.
                let _ = from.map(|mut from| from.read_to_end(&mut bytes));
                bytes
            })
        };
        let stdout = collect(self.stdout.take().map(|from| Box::new(from) as _));
        let stderr = collect(self.stderr.take().map(|from| Box::new(from) as _));
        let status = self.status_in_time();
        // What it has started may hold them open still.
        Output {
            status,
            stdout: join(stdout, "the end of its output"),
            stderr: join(stderr, "the end of its errors"),
        }
    }

    fn status_in_time(mut self) -> ExitStatus {
        let deadline = Instant::now() + PROGRAM;
        loop {
            if let Some(status) = self.try_wait().expect("invariant: it is a child") {
                return status;
            }
            if Instant::now() >= deadline {
                let _ = self.kill();
                panic!("a program has not ended within {PROGRAM:?}");
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}

/// Whether there is such a process and it has not ended. One that has ended and that nobody has taken note of has ended all the
/// same: who takes note of an orphan is the first process of the machine or container, which need not do so.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have brackets of its own (proc_pid_stat(5)).
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// What `find` finds, looked for again and again.
///
/// # Panics
/// After [`WAIT`], with `what` it was.
pub fn wait_for<T>(mut find: impl FnMut() -> Option<T>, what: &str) -> T {
    let deadline = Instant::now() + WAIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_run_before_it_is_taken_note_of() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(is_running(child.id()));
        drop(child.stdin.take());
        wait_for(|| (!is_running(child.id())).then_some(()), "its end");
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }

    #[test]
    fn a_program_is_heard_out() {
        let script = "head -c 200000 /dev/zero; echo said >&2; exit 3";
        let output = Command::new("sh").args(["-c", script]).output_in_time();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 200_000));
        assert_eq!(output.stderr, b"said\n");
    }

    #[test]
    fn a_future_is_driven_and_a_scope_ends_with_a_panic() {
        let mut polls = 0;
        let future = std::future::poll_fn(|cx| {
            polls += 1;
            let waker = cx.waker().clone();
            std::thread::spawn(move || waker.wake());
            if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
        });
        assert_eq!(block_on(future), 3);
        let is_over = AtomicBool::new(false);
        let outcome = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _end = OverWhenDropped(&is_over);
                scope.spawn(|| {
                    while !is_over.load(SeqCst) {
                        std::thread::yield_now();
                    }
                });
                panic!("as a test does that fails");
            });
        });
        assert!(outcome.is_err());
    }
}
