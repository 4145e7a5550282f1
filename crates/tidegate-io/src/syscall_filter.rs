//! Calls of the system that applications may not make to other processes of their user (seccomp(2)).
//!
//! Landlock keeps files and signals apart, and the kernel the memory of processes; limits (`prlimit(2)`) and priorities of
//! another process of the same user it leaves to everybody: with them one can end the server, or make it deaf. A filter sees
//! the numbers in a call and nothing that they point to, so that a process is told from another by `0` alone, which means
//! oneself: a program that names its own number is refused as well.

use libc::{
    BPF_ABS, BPF_ALU, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_MISC, BPF_OR, BPF_RET, BPF_TAX, BPF_W,
    BPF_X, sock_filter, sock_fprog,
};
use std::io;

/// What of a call is looked at: the place of an argument.
#[derive(Clone, Copy)]
enum Test {
    /// A number of 32 bits that is not 0.
    IsSet(u32),
    /// A pointer that is not null.
    IsGiven(u32),
    /// A number of 32 bits.
    Is(u32, u32),
}

/// A call, and when it is refused: where all tests of one of the lists hold.
struct Refused {
    number: u32,
    when: &'static [&'static [Test]],
}

/// As `setpriority` has it, and one more for `ioprio_set`: all processes of a user, oneself included.
const OF_USER: u32 = 2;
/// New limits for another process. Asking for them is nobody's harm.
const LIMITS: &[&[Test]] = &[&[Test::IsSet(0), Test::IsGiven(2)]];
const SCHEDULING: &[&[Test]] = &[&[Test::IsSet(0)]];
const PRIORITY: &[&[Test]] = &[&[Test::IsSet(1)], &[Test::Is(0, OF_USER)]];
const DISK_PRIORITY: &[&[Test]] = &[&[Test::IsSet(1)], &[Test::Is(0, OF_USER + 1)]];

/// A way to call the system, and what of it is refused.
struct Interface {
    /// `AUDIT_ARCH_...`
    arch: u32,
    /// From this number on there is another interface, which is none of ours.
    end: Option<u32>,
    /// `prlimit64`, `sched_setscheduler`, `sched_setparam`, `sched_setattr`, `setpriority`, `ioprio_set`.
    numbers: [u32; 6],
}

impl Interface {
    fn refused(&self) -> [Refused; 6] {
        let [limits, scheduler, parameters, attributes, priority, disk] = self.numbers;
        [
            Refused { number: limits, when: LIMITS },
            Refused { number: scheduler, when: SCHEDULING },
            Refused { number: parameters, when: SCHEDULING },
            Refused { number: attributes, when: SCHEDULING },
            Refused { number: priority, when: PRIORITY },
            Refused { number: disk, when: DISK_PRIORITY },
        ]
    }
}

/// Those of this kind of machine; the second is that of its 32 bits.
#[cfg(target_arch = "x86_64")]
const INTERFACES: &[Interface] = &[
    // Beyond is x32.
    Interface { arch: 0xc000_003e, end: Some(0x4000_0000), numbers: [302, 144, 142, 314, 141, 251] },
    Interface { arch: 0x4000_0003, end: None, numbers: [340, 156, 154, 351, 97, 289] },
];
#[cfg(target_arch = "aarch64")]
const INTERFACES: &[Interface] = &[
    Interface { arch: 0xc000_00b7, end: None, numbers: [261, 119, 118, 274, 140, 30] },
    Interface { arch: 0x4000_0028, end: None, numbers: [369, 156, 154, 380, 97, 314] },
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const INTERFACES: &[Interface] = &[];

/// `struct seccomp_data`: where number, kind of interface and arguments are.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;

fn low_half(argument: u32) -> u32 {
    16 + 8 * argument + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn high_half(argument: u32) -> u32 {
    16 + 8 * argument + if cfg!(target_endian = "big") { 0 } else { 4 }
}

fn step(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u32, k: u32, if_so: usize, if_not: usize) -> sock_filter {
    let far = |steps: usize| u8::try_from(steps).expect("invariant: the program is short");
    sock_filter {
        code: u16::try_from(code).expect("invariant: codes have 16 bits"),
        jt: far(if_so),
        jf: far(if_not),
        k,
    }
}

fn load(at: u32) -> sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, at)
}

fn answer(answer: u32) -> sock_filter {
    step(BPF_RET | BPF_K, answer)
}

fn error(number: libc::c_int) -> sock_filter {
    answer(libc::SECCOMP_RET_ERRNO | number.cast_unsigned())
}

/// One list of tests: goes on behind it where one does not hold.
fn all_of(tests: &[Test]) -> Vec<sock_filter> {
    let is_equal = BPF_JMP | BPF_JEQ | BPF_K;
    let mut program = vec![error(libc::EPERM)];
    for test in tests.iter().rev() {
        let behind = program.len();
        let mut part = match *test {
            Test::IsSet(argument) => vec![load(low_half(argument)), jump(is_equal, 0, behind, 0)],
            Test::Is(argument, value) => vec![load(low_half(argument)), jump(is_equal, value, 0, behind)],
            Test::IsGiven(argument) => vec![
                load(high_half(argument)),
                step(BPF_MISC | BPF_TAX, 0),
                load(low_half(argument)),
                step(BPF_ALU | BPF_OR | BPF_X, 0),
                jump(is_equal, 0, behind, 0),
            ],
        };
        part.append(&mut program);
        program = part;
    }
    program
}

/// What is done with a call by this interface, whose kind has been loaded.
fn of_interface(interface: &Interface) -> Vec<sock_filter> {
    let is_equal = BPF_JMP | BPF_JEQ | BPF_K;
    let mut calls = vec![load(NUMBER_AT)];
    if let Some(end) = interface.end {
        calls.extend([jump(BPF_JMP | BPF_JGE | BPF_K, end, 0, 1), error(libc::ENOSYS)]);
    }
    for refused in interface.refused() {
        let mut tests: Vec<sock_filter> = refused.when.iter().flat_map(|tests| all_of(tests)).collect();
        tests.push(answer(libc::SECCOMP_RET_ALLOW));
        calls.push(jump(is_equal, refused.number, 0, tests.len()));
        calls.append(&mut tests);
    }
    calls.push(answer(libc::SECCOMP_RET_ALLOW));
    [vec![jump(is_equal, interface.arch, 0, calls.len())], calls].concat()
}

fn program() -> Vec<sock_filter> {
    let interfaces = INTERFACES.iter().flat_map(of_interface);
    [load(ARCH_AT)].into_iter().chain(interfaces).chain([error(libc::ENOSYS)]).collect()
}

/// From now on this thread, and all that it starts, changes neither limits nor priorities of other processes. It must have
/// given up gaining privileges, or be root.
///
/// # Errors
/// The kernel has no such filters, or none for this kind of machine.
pub fn leave_others_alone() -> io::Result<()> {
    if INTERFACES.is_empty() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut program = program();
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = sock_fprog { len: length, filter: program.as_mut_ptr() };
    // A filter is no reason for slow memory (speculative store bypass) since Linux 5.16; so it is before.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: `filter` points to the program and says its length; both live until the kernel has copied them.
    #[allow(unsafe_code)]
    let outcome =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::process::{
        Pid, Resource, getpid, getppid, getpriority_process, getrlimit, prlimit, setrlimit,
    };
    use rustix::process::{setpriority_process, setpriority_user};

    /// The first interface is the one that this program is built for, whose numbers the C library knows as well.
    #[test]
    fn the_numbers_are_those_of_this_machine() {
        let known = [
            libc::SYS_prlimit64,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setattr,
            libc::SYS_setpriority,
            libc::SYS_ioprio_set,
        ];
        assert_eq!(INTERFACES[0].numbers.map(libc::c_long::from), known);
    }

    /// What a thread may call, and not the others of this process: to the kernel it is a task of its own.
    #[test]
    fn limits_and_priorities_of_others_are_refused_and_ones_own_are_not() {
        let filtered = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            leave_others_alone().unwrap();
            let others: [Option<Pid>; 2] = [getppid(), Some(getpid())];
            let now = getrlimit(Resource::Core);
            for other in others {
                let limited = prlimit(other, Resource::Core, now);
                assert_eq!(limited.map(drop).unwrap_err(), Errno::PERM, "{other:?}");
                let niceness = getpriority_process(other).unwrap();
                assert_eq!(setpriority_process(other, niceness).unwrap_err(), Errno::PERM, "{other:?}");
            }
            assert_eq!(setpriority_user(rustix::process::Uid::ROOT, 19).unwrap_err(), Errno::PERM);
            setrlimit(Resource::Core, now).unwrap();
            prlimit(None, Resource::Core, now).unwrap();
            setpriority_process(None, getpriority_process(None).unwrap()).unwrap();
            let status =
                std::process::Command::new("sh").args(["-c", "ulimit -c 0 && nice -n 1 true"]).status();
            assert!(status.unwrap().success(), "what it starts sets its own");
        });
        filtered.join().unwrap();
        let now = getrlimit(Resource::Core);
        prlimit(Some(getpid()), Resource::Core, now).unwrap();
    }

    #[test]
    fn the_limits_of_others_can_be_asked_for() {
        let filtered = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            leave_others_alone().unwrap();
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            let pid = std::process::id().cast_signed();
            // SAFETY: no new limit is given, and the old one has its place.
            #[allow(unsafe_code)]
            let outcome =
                unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
            assert!(outcome == 0 && limit.rlim_max > 0);
        });
        filtered.join().unwrap();
    }
}
