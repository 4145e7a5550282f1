//! The store from outside: scenarios, properties, threads, memory.

mod allocations;
mod collapse;
mod contents;
mod disks;
mod evictions;
mod held;
mod model;
mod parts;
mod purges;
mod support;
mod threads;
mod variants;
