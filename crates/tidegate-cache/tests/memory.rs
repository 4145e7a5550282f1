//! What is allocated is reserved: in a process of its own, since memory that is a file is counted for the whole process.

#[path = "store/support.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;

use support::*;
use tidegate_io::file_memory;

/// What is allocated as against what is reserved, at every step of a life.
#[test]
fn what_is_allocated_is_reserved() {
    let store = store(2 * MIB);
    // What keeps account of such memory is the process's.
    drop(file_memory::FileMemory::with_capacity(1));
    let mut allocated = 0_i64;
    let mut step = |name: &str, run: &mut dyn FnMut()| {
        allocated += allocation_counter::measure(run).bytes_current;
        let allocated = allocated + file_memory::in_use() as i64;
        let reserved = store.figures().bytes as i64;
        assert!(allocated <= reserved, "{name}: {allocated} bytes allocated, {reserved} reserved");
        assert!(
            reserved < allocated * 2 + 16 * 1024,
            "{name}: {allocated} bytes allocated, {reserved} reserved"
        );
    };
    for number in 0..600_usize {
        let target = format!("/{number}");
        let len = [0, 10, 5_000, 30_000, 64 * 1024, 100_000][number % 6];
        let content = bytes(number as u64, len);
        let announced = (number % 4 < 2).then_some(len as u64);
        step(&target, &mut || {
            let head = head_of(&target, ["", "de"][number % 2], &[1, 2, 3]);
            let (_, mut fill) = lead(&store, target.as_bytes()).store(head, announced, NOW).unwrap();
            append_all(&mut fill, &content);
            assert!(fill.complete());
        });
    }
    step("removed", &mut || {
        (0..600).for_each(|number| {
            store.remove(format!("/{number}").as_bytes());
        });
    });
    step("swept", &mut || {
        store.sweep(usize::MAX, NOW);
    });
    assert_eq!(store.figures().entries, 0);
}
