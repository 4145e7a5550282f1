//! What the process uses, told of a process of its own: others take and give back memory beside it.

use std::fs::File;
use tidegate_io::usage::Usage;

#[test]
fn what_is_used_is_told() {
    let before = Usage::now();
    let held: Vec<File> = (0..40).map(|_| File::open("/dev/null").unwrap()).collect();
    let mut memory = vec![1u8; 32 << 20];
    for round in 0..20u8 {
        memory.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(3).wrapping_add(round));
    }
    let after = Usage::now();
    assert!(after.cpu_micros > before.cpu_micros, "{before:?} {after:?}");
    assert!(after.resident > before.resident + (16 << 20), "{before:?} {after:?}");
    assert!(after.descriptors >= before.descriptors + held.len() as u64, "{before:?} {after:?}");
    drop((held, memory));
}
