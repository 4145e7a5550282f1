//! The executor against a model: tasks that wake, spawn, cancel and drop each other from within their polls and their
//! destructors, in random order (FAULTS 56). Runs under Miri as well: `cargo xtask miri`.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tidegate_io::runtime::{self, Runtime, SCRATCH};
use tidegate_io::timer::{self, Deadline};
use tidegate_io::{LocalFuture, Poller};

const SEEDS: u64 = if cfg!(miri) { 12 } else { 600 };
const ROUNDS: u32 = if cfg!(miri) { 25 } else { 60 };
/// Tasks that one run of the model may spawn.
const SPAWNS: u32 = 120;
/// Acts within acts: a destructor may drop something that drops something.
const DEPTH: u32 = 4;

/// What the model knows of a task.
struct Known {
    /// Woken since it was polled last: it has to be polled in the next turn.
    is_due: Cell<bool>,
    is_dropped: Cell<bool>,
    polled_in: Cell<u32>,
    waker: RefCell<Option<Waker>>,
    deadline: RefCell<Option<Pin<Box<Deadline>>>>,
}

struct World {
    runtime: Rc<Runtime>,
    random: RefCell<fastrand::Rng>,
    tasks: RefCell<Vec<Rc<Known>>>,
    /// Futures that belong to nobody: dropping one is a cancellation.
    children: RefCell<Vec<LocalFuture<()>>>,
    /// Woken from another thread, which counts from the next look at what others have woken.
    remote: RefCell<Vec<Rc<Known>>>,
    spawns: Cell<u32>,
    depth: Cell<u32>,
    turn: Cell<u32>,
    has_ended: Cell<bool>,
}

impl World {
    /// Below `most`.
    fn pick(&self, most: usize) -> usize {
        self.random.borrow_mut().usize(..most)
    }

    fn some_task(&self) -> Option<Rc<Known>> {
        let count = self.tasks.borrow().len();
        (count > 0).then(|| self.tasks.borrow()[self.pick(count)].clone())
    }

    fn wake(known: &Known) {
        let waker = known.waker.borrow().clone();
        if let Some(waker) = waker {
            if !known.is_dropped.get() {
                known.is_due.set(true);
            }
            waker.wake();
        }
    }

    /// Anything that code of a task may do.
    fn act(self: &Rc<Self>) {
        if self.depth.get() >= DEPTH {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        match self.pick(10) {
            0..=2 => {
                if let Some(known) = self.some_task() {
                    World::wake(&known);
                }
            }
            3 => self.spawn(),
            4 => {
                let child = Task { world: self.clone(), known: None };
                self.children.borrow_mut().push(Box::pin(child));
            }
            5 => {
                let count = self.children.borrow().len();
                let child = (count > 0).then(|| self.children.borrow_mut().swap_remove(self.pick(count)));
                drop(child);
            }
            6 => {
                if let Some(known) = self.some_task() {
                    drop(known.waker.take());
                }
            }
            7 => {
                if let Some(known) = self.some_task() {
                    drop(known.deadline.take());
                }
            }
            8 => runtime::with_scratch(|outer| {
                outer[0] = 1;
                runtime::with_scratch(|inner| {
                    assert_eq!((outer.len(), inner.len()), (SCRATCH, SCRATCH));
                    inner[0] = 2;
                });
                assert_eq!(outer[0], 1, "a nested call got the same buffer");
            }),
            _ => {
                let known = self.some_task();
                let waker = known.as_ref().and_then(|known| known.waker.borrow().clone());
                if let (Some(known), Some(waker)) = (known, waker) {
                    std::thread::spawn(move || waker.wake()).join().unwrap();
                    self.remote.borrow_mut().push(known);
                }
            }
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn spawn(self: &Rc<Self>) {
        if self.spawns.get() >= SPAWNS {
            return;
        }
        self.spawns.set(self.spawns.get() + 1);
        let known = Rc::new(Known {
            is_due: Cell::new(!self.has_ended.get()),
            is_dropped: Cell::new(false),
            polled_in: Cell::new(0),
            waker: RefCell::default(),
            deadline: RefCell::default(),
        });
        self.tasks.borrow_mut().push(known.clone());
        self.runtime.spawn(Task { world: self.clone(), known: Some(known) });
    }

    /// One turn of a worker, and whether it did what the model says.
    fn turn(self: &Rc<Self>) {
        self.turn.set(self.turn.get() + 1);
        let due: Vec<Rc<Known>> =
            self.tasks.borrow().iter().filter(|known| known.is_due.get()).cloned().collect();
        // The other way round it may be a task that has woken itself and ended.
        assert!(due.is_empty() || self.runtime.has_ready(), "the poller would wait");
        self.runtime.run_tasks();
        for known in due {
            assert_eq!(known.polled_in.get(), self.turn.get(), "a task was woken and not polled");
        }
    }
}

/// A task, or a child, which is never polled.
struct Task {
    world: Rc<World>,
    known: Option<Rc<Known>>,
}

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (world, known) = (&self.world, self.known.as_ref().expect("children are not polled"));
        assert!(known.is_due.replace(false), "a task was polled that nobody has woken");
        assert!(known.polled_in.replace(world.turn.get()) < world.turn.get(), "polled twice in one turn");
        *known.waker.borrow_mut() = Some(cx.waker().clone());
        if world.pick(3) == 0 {
            // Far away for the clock; the model lets it expire.
            let mut deadline = Box::pin(timer::at(u64::MAX - 1));
            assert!(deadline.as_mut().poll(cx).is_pending());
            drop(known.deadline.replace(Some(deadline)));
        }
        for _ in 0..world.pick(4) {
            world.act();
        }
        if world.pick(5) == 0 {
            known.is_due.set(true);
            cx.waker().wake_by_ref();
        }
        if world.pick(6) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(known) = &self.known {
            assert!(!known.is_dropped.replace(true), "dropped twice");
            known.is_due.set(false);
            drop(known.deadline.take());
        }
        for _ in 0..self.world.pick(3) {
            self.world.act();
        }
    }
}

fn run(seed: u64) {
    let poller = Poller::new().unwrap();
    let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
    let world = Rc::new(World {
        runtime: runtime.clone(),
        random: RefCell::new(fastrand::Rng::with_seed(seed)),
        tasks: RefCell::default(),
        children: RefCell::default(),
        remote: RefCell::default(),
        spawns: Cell::new(0),
        depth: Cell::new(0),
        turn: Cell::new(0),
        has_ended: Cell::new(false),
    });
    world.spawn();
    for _ in 0..ROUNDS {
        world.turn();
        for _ in 0..world.pick(3) {
            world.act();
        }
        for known in world.remote.take() {
            if !known.is_dropped.get() {
                known.is_due.set(true);
            }
        }
        runtime.on_remote();
        if world.pick(4) == 0 {
            let tasks = world.tasks.borrow().clone();
            // What is armed wakes its task, whether that has another waker by now or none.
            for known in tasks.iter().filter(|known| known.deadline.borrow().is_some()) {
                known.is_due.set(!known.is_dropped.get());
            }
            runtime.expire(u64::MAX);
            tasks.iter().for_each(|known| drop(known.deadline.take()));
        }
    }
    world.has_ended.set(true);
    runtime.end();
    assert!(world.tasks.borrow().iter().all(|known| known.is_dropped.get()));
    world.spawn();
    assert!(world.tasks.borrow().iter().all(|known| known.is_dropped.get()));
    assert!(!runtime.has_ready());
    world.depth.set(DEPTH); // nothing more is done
    drop(world.children.take());
}

#[test]
fn tasks_may_do_anything_to_each_other() {
    for seed in 1..=SEEDS {
        // Each is a worker of its own.
        if std::thread::spawn(move || run(seed)).join().is_err() {
            panic!("seed {seed}");
        }
    }
}
