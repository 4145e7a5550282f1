//! Connections that are made for requests which go away, and requests of which nothing was sent.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::task::Context;
use std::time::Duration;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::connect::Address;
use tidegate_io::{Kind, Poller, Runtime};
use tidegate_testkit::{WAIT, wait_for};
use tidegate_wire::h2::{self, FieldSource};

/// What a worker does between two polls.
fn turn(poller: &mut Poller, runtime: &Runtime) {
    let mut ready = Vec::new();
    poller.wait(Some(Duration::from_millis(10)), &mut ready).unwrap();
    ready.iter().filter(|event| event.kind() == Kind::Io).for_each(|event| runtime.on_io(event));
    runtime.expire(monotonic_ns());
    runtime.run_tasks();
}

/// Turns until there is something.
fn turns<T>(poller: &mut Poller, runtime: &Runtime, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + WAIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        turn(poller, runtime);
    }
}

fn pool(listener: &TcpListener) -> Rc<Http2Pool> {
    listener.set_nonblocking(true).unwrap();
    let limits = PoolLimits {
        idle: 1,
        idle_timeout: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(10),
    };
    let address = Address::Tcp(listener.local_addr().unwrap());
    Http2Pool::new(crate::Peers::new().peer(&address), limits, None)
}

fn post<'a>(lines: &'a FieldLines) -> RequestParts<'a> {
    RequestParts {
        method: "POST",
        scheme: "http",
        authority: "x",
        target: "/",
        protocol: None,
        fields: FieldSource::Lines(lines),
        content_length: None,
    }
}

#[test]
fn a_connection_that_was_being_made_for_nobody_serves_the_next() {
    let mut poller = Poller::new().unwrap();
    let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pool, lines) = (pool(&listener), FieldLines::new());
    let (mut cx, parts) = (Context::from_waker(Waker::noop()), post(&lines));
    for _ in 0..2 {
        let mut open = Box::pin(pool.open(&parts, true));
        assert!(open.as_mut().poll(&mut cx).is_pending());
        let mut second = Box::pin(pool.open(&parts, true));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(open);
        assert!(second.as_mut().poll(&mut cx).is_pending(), "it goes on with what the first has begun");
        drop(second);
    }
    // The other end may speak first: that is no reason to connect anew.
    let mut accepted = wait_for(|| listener.accept().ok(), "a connection").0;
    accepted.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut open = Box::pin(pool.open(&parts, true));
    let stream = turns(&mut poller, &runtime, || match open.as_mut().poll(&mut cx) {
        Poll::Ready(stream) => Some(stream.unwrap()),
        Poll::Pending => None,
    });
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "one was enough");
    drop(stream);
}

#[test]
fn who_waited_for_a_connect_that_failed_does_not_try_once_more() {
    let mut poller = Poller::new().unwrap();
    let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pool, lines) = (pool(&listener), FieldLines::new());
    drop(listener);
    let (mut cx, parts) = (Context::from_waker(Waker::noop()), post(&lines));
    let mut opens: Vec<_> = (0..3).map(|_| Box::pin(pool.open(&parts, true))).collect();
    let mut failed = 0;
    let deadline = std::time::Instant::now() + WAIT;
    while failed < 3 {
        assert!(std::time::Instant::now() < deadline, "{failed} have failed");
        opens.retain_mut(|open| match open.as_mut().poll(&mut cx) {
            Poll::Ready(Err(error)) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                failed += 1;
                false
            }
            Poll::Ready(Ok(_)) => panic!("nobody listens"),
            Poll::Pending => true,
        });
        turn(&mut poller, &runtime);
    }
    assert_eq!(pool.connects.get(), 1);
}

#[test]
fn of_which_nothing_was_sent_may_be_sent_again() {
    let mut poller = Poller::new().unwrap();
    let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pool, lines) = (pool(&listener), FieldLines::new());
    let (mut cx, parts) = (Context::from_waker(Waker::noop()), post(&lines));
    let mut open = Box::pin(pool.open(&parts, false));
    let first = turns(&mut poller, &runtime, || match open.as_mut().poll(&mut cx) {
        Poll::Ready(stream) => Some(stream.unwrap()),
        Poll::Pending => None,
    });
    let accepted = wait_for(|| listener.accept().ok(), "a connection").0;
    turns(&mut poller, &runtime, || has_something(&accepted).then_some(()));
    // With something unread this is a reset; it is known to the kernel and not yet to the driver.
    drop(accepted);
    let second = pool.try_open(&parts, true).expect("nobody has looked at the connection");
    let mut errors = [None, None];
    while errors.iter().any(Option::is_none) {
        turn(&mut poller, &runtime);
        for (stream, error) in [&first, &second].into_iter().zip(&mut errors) {
            if let Poll::Ready(outcome) = stream.poll_head(&mut cx) {
                *error = outcome.err();
            }
        }
    }
    let [first, second] = errors.map(Option::unwrap);
    assert!(matches!(first, Http2Error::Lost(_)), "{first}");
    assert_eq!(second, Http2Error::Unprocessed);
}

#[test]
fn a_connection_without_a_sign_of_life_gets_no_further_requests() {
    const PING: u8 = 6;
    let mut poller = Poller::new().unwrap();
    let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pool, lines) = (pool(&listener), FieldLines::new());
    let (mut cx, parts) = (Context::from_waker(Waker::noop()), post(&lines));
    let mut open = Box::pin(pool.open(&parts, true));
    let stream = turns(&mut poller, &runtime, || match open.as_mut().poll(&mut cx) {
        Poll::Ready(stream) => Some(stream.unwrap()),
        Poll::Pending => None,
    });
    let mut accepted = wait_for(|| listener.accept().ok(), "a connection").0;
    accepted.set_nonblocking(true).unwrap();
    assert!(pool.try_open(&parts, true).is_some());
    stream.has_waited(Duration::ZERO);
    assert!(pool.try_open(&parts, true).is_none(), "nothing has come on it");
    let (mut received, mut at) = (Vec::new(), h2::PREFACE.len());
    let ping: Vec<u8> = turns(&mut poller, &runtime, || {
        let _ = accepted.read_to_end(&mut received); // as much as is there
        while let Some([a, b, c, kind]) = received.get(at..at + 4) {
            let end = at + 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if *kind == PING {
                return received.get(at..end).map(<[u8]>::to_vec);
            }
            at = end;
        }
        None
    });
    accepted.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap(); // SETTINGS
    accepted.write_all(&[&ping[..4], &[1], &ping[5..]].concat()).unwrap();
    turns(&mut poller, &runtime, || pool.try_open(&parts, true));
    // It listens, and has answered no request since: another connection may do better, and this one ends with its streams.
    stream.has_waited(Duration::ZERO);
    assert!(pool.try_open(&parts, true).is_none());
    drop(stream);
    turns(&mut poller, &runtime, || pool.sessions.borrow().is_empty().then_some(()));
}

#[test]
fn a_process_that_hangs_gets_so_many_connections_and_no_more() {
    let mut poller = Poller::new().unwrap();
    let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pool, lines) = (pool(&listener), FieldLines::new());
    let (mut cx, parts) = (Context::from_waker(Waker::noop()), post(&lines));
    let mut streams = Vec::new();
    for _ in 0..2 * DOUBTFUL_MAX {
        let mut open = Box::pin(pool.open(&parts, true));
        let stream = turns(&mut poller, &runtime, || match open.as_mut().poll(&mut cx) {
            Poll::Ready(stream) => Some(stream.unwrap()),
            Poll::Pending => None,
        });
        stream.has_waited(Duration::ZERO);
        streams.push(stream);
    }
    let sessions = || pool.sessions.borrow().clone();
    assert_eq!(sessions().len(), DOUBTFUL_MAX);
    let newest = sessions().pop().unwrap();
    assert!(streams[DOUBTFUL_MAX - 1..].iter().all(|stream| Rc::ptr_eq(&stream.session, &newest)));
    // It comes to itself on an older one.
    let mut accepted: TcpStream = wait_for(|| listener.accept().ok(), "a connection").0;
    accepted.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap(); // SETTINGS
    turns(&mut poller, &runtime, || (!streams[0].session.is_doubtful()).then_some(()));
    let stream = pool.try_open(&parts, true).unwrap();
    assert!(Rc::ptr_eq(&stream.session, &streams[0].session));
}

fn has_something(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0; 1]).is_ok()
}
