//! Tells the master what the workers of this process want of pools, and of other processes' idle connections: often while
//! requests are under way, at once when one begins to wait where none did, and otherwise hardly ever.

use crate::link::{Link, ToMaster};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use tidegate_modules::gateway::pool_directory::{PoolDemand, PoolDirectory};

/// How often, while there is something to tell.
const BUSY: Duration = Duration::from_millis(50);
/// How often it is looked whether there is.
const QUIET: Duration = Duration::from_millis(500);

/// Starts the thread that tells.
pub fn start(directory: Arc<PoolDirectory>, link: Arc<Link>) -> io::Result<()> {
    // One wake-up is as good as many.
    let (sender, pressed) = sync_channel::<()>(1);
    let starved = sender.clone();
    directory.on_pressure(move || {
        let _ = sender.try_send(());
    });
    directory.on_starving(move || {
        let _ = starved.try_send(());
    });
    std::thread::Builder::new().name("tidegate-pools".into()).spawn(move || {
        let (mut last, mut untold): (Vec<PoolDemand>, Vec<PoolDemand>) = Default::default();
        loop {
            let mut demands = directory.demands();
            for pool in &mut demands {
                let before = untold.iter().find(|untold| untold.name == pool.name);
                before.iter().for_each(|untold| pool.demand.take_peaks(&untold.demand));
            }
            let is_busy = demands.iter().any(|pool| pool.demand.in_use > 0 || pool.demand.waiting > 0);
            // While requests wait their age is news, and while none does the absence of any is news once.
            let is_news = demands != last || is_busy;
            // What a slow master does not take now it is told next time.
            if is_news {
                match link.send(&ToMaster::Pools(demands.clone()), Vec::new()) {
                    true => (last, untold) = (demands, Vec::new()),
                    false => untold = demands,
                }
            }
            // Said again and again as long as it is so: others forget it soon.
            let starving = directory.starving();
            let is_starving = !starving.is_empty();
            if is_starving {
                link.send(&ToMaster::Starving(starving), Vec::new());
            }
            let wait = if is_busy || is_news || is_starving { BUSY } else { QUIET };
            if pressed.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    })?;
    Ok(())
}
