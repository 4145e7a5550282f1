//! The store from outside: scenarios, properties, threads, memory.

mod allocations;
mod collapse;
mod contents;
mod disks;
mod evictions;
mod model;
mod purges;
mod support;
mod threads;
mod variants;
