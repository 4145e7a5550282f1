//! A process that is killed while it fills, again and again: what the next one serves is what was stored.
//!
//! The child is this very test, which finds in its environment that it is one. It says each step in a line; the parent kills it
//! after a number of them, so that nothing depends on how fast either is.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidegate_cache::disk::{DiskEntry, DiskSettings, Disks, Head, NewObject, layout};

const CHILD: &str = "TIDEGATE_CACHE_KILLED";
const ROUNDS: u64 = 100;
const KEYS: u64 = 40;
const LIMIT: u64 = 12 << 20;
const NOW: i64 = 1_800_000_000;

#[test]
fn a_killed_process_leaves_no_wrong_byte() {
    if let Some(folder) = env::var_os(CHILD) {
        fill_until_killed(Path::new(&folder));
        return;
    }
    let folder = env::temp_dir().join(format!("tidegate-kill-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let (mut served, mut parts) = (0, 0);
    for round in 0..ROUNDS {
        run_and_kill(&folder, round, random.usize(1..120));
        let disks = open(&folder);
        assert_eq!(disks.figures()[0].trouble, None, "round {round}");
        assert!(!disks.may_probe(), "round {round}: the journal knows every file");
        for number in 0..KEYS {
            let (whole, part) = check(&disks, number);
            served += whole;
            parts += part;
        }
        let figures = &disks.figures()[0];
        let used = used(&folder.join("cache"));
        assert!(
            used <= figures.used && figures.used <= LIMIT,
            "round {round}: {used} on the disk, {figures:?}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(served > ROUNDS * 5 && parts > 0, "{served} served, {parts} in part: too little was tried");
}

fn open(folder: &Path) -> Disks {
    Disks::open(&[DiskSettings { folder: folder.join("cache"), size: LIMIT, slots: 1 }], NOW)
}

fn run_and_kill(folder: &Path, round: u64, steps: usize) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_no_wrong_byte", "--nocapture"])
        .env(CHILD, folder)
        .env("TIDEGATE_CACHE_SEED", round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = lines.map_while(Result::ok).filter(|line| line.starts_with("step")).take(steps).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, steps, "round {round}: the child ended by itself");
}

/// Stores, resumes and removes until somebody kills it; ends by itself after a while, so that nobody waits for ever.
fn fill_until_killed(folder: &Path) {
    let seed: u64 = env::var("TIDEGATE_CACHE_SEED").unwrap().parse().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let disks = open(folder);
    for turn in 0..2000 {
        let number = random.u64(..KEYS);
        let key = key(number);
        match random.u8(..10) {
            0 => drop(disks.forget(key.1)),
            1 => drop(disks.tick(0, NOW + turn)),
            2 => disks.save(0),
            choice => drop(fill(&disks, &key, number, choice, &mut random)),
        }
        step();
    }
}

fn fill(
    disks: &Disks,
    key: &(Vec<u8>, u128),
    number: u64,
    choice: u8,
    random: &mut fastrand::Rng,
) -> Option<DiskEntry> {
    let bytes = content(number);
    let part = disks.look_up(key.1).filter(|entry| !entry.is_whole);
    let resumed = part.and_then(|entry| disks.resume(entry.disk, entry.id, &key.0).ok());
    let is_known = choice < 8;
    let mut fill = match resumed {
        Some(fill) => fill,
        None => {
            let head = Head { status: 200, lines: b"a: b\r\n", ..Head::default() };
            let length = is_known.then_some(bytes.len() as u64);
            let new = NewObject { hash: key.1, key: &key.0, head, variant: 0, mark: 0, length, now: NOW };
            disks.create(0, &new).ok()?
        }
    };
    let mut rest = &bytes[fill.position() as usize..];
    let stop = random.usize(..bytes.len() * 2);
    while !rest.is_empty() {
        if fill.position() as usize > stop {
            step();
            return fill.keep().ok();
        }
        let (now, behind) = rest.split_at(rest.len().min(random.usize(1..70_000)));
        fill.write(now).ok()?;
        rest = behind;
        step();
    }
    fill.finish().ok()
}

fn step() {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "step").and_then(|()| out.flush());
}

/// Reads what there is of an object and compares it: whole ones, and ones in part.
fn check(disks: &Disks, number: u64) -> (u64, u64) {
    let (key, hash) = key(number);
    let bytes = content(number);
    let Some(entry) = disks.look_up(hash) else { return (0, 0) };
    let Ok(object) = disks.open_object(&entry, &key) else { return (0, 0) };
    assert_eq!(object.header().entity_length, bytes.len() as u64, "{number}");
    let mut there = 0;
    for piece in 0..object.pieces() {
        if object.verify_piece(piece).is_err() {
            assert!(!entry.is_whole, "{number}: a piece of a whole object is missing");
            continue;
        }
        object.compare_piece(piece).unwrap();
        let range = layout::piece_range(piece, bytes.len() as u64);
        let mut buffer = vec![0; (range.end - range.start) as usize];
        assert_eq!(object.read_at(&mut buffer, range.start).unwrap(), buffer.len(), "{number}");
        assert!(
            buffer == bytes[range.start as usize..range.end as usize],
            "{number}: piece {piece} is wrong"
        );
        there += 1;
    }
    (u64::from(there == object.pieces()), u64::from(there < object.pieces()))
}

fn key(number: u64) -> (Vec<u8>, u128) {
    (format!("https|a.example|/{number}").into_bytes(), fastrand::Rng::with_seed(number).u128(..))
}

fn content(number: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number + 1000);
    let length =
        if number.is_multiple_of(4) { random.usize(300_000..1_500_000) } else { random.usize(..60_000) };
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

/// Bytes that everything in a folder takes, as `du` counts.
fn used(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let meta = entry.path().symlink_metadata().unwrap();
            sum += meta.blocks() * 512;
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    sum
}
