//! What the service does in a lap. Each kind of work has a thread of its own, and all of them run at once.

mod children;
pub mod device;
pub mod handed_over;
mod monitors;
mod requests;
mod threads;

use crate::plugin::Plugin;
use handed_over::Freeing;
use memtrack_core::event::{DeviceId, StreamId};
use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

pub const DEVICE: DeviceId = DeviceId(0);
pub const STREAM: StreamId = StreamId(0);
/// Where the blocks of [`probe`](crate::probe) lie: below all others.
pub const PROBE_ADDRESS: u64 = 1 << 32;

/// Plugins that are loaded in a lap.
const PLUGINS: u64 = 3;

/// What the work of a lap needs.
#[derive(Clone, Copy)]
pub struct Lap<'a> {
    /// From 1.
    pub number: u64,
    pub plugin: Option<&'a Plugin>,
    pub freeing: &'a Freeing,
    pub recordings: &'a Path,
}

impl Lap<'_> {
    /// Numbers that no other lap has: `count` of them.
    fn numbers(&self, count: u64) -> std::ops::Range<u64> {
        self.number * count..(self.number + 1) * count
    }
}

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Does all of it. An error names the first thing that went wrong.
pub fn one_lap(lap: &Lap<'_>) -> Outcome {
    let kinds: [fn(&Lap<'_>) -> Outcome; 7] =
        [requests::run, threads::run, handed_over::run, device::run, children::run, monitors::run, |lap| {
            plugins(lap).map_err(|error| error.to_string().into())
        }];
    thread::scope(|scope| {
        let running = kinds.map(|kind| scope.spawn(move || kind(lap)));
        let outcomes = running.map(|thread| thread.join().map_err(|_| "a thread of the service panicked")?);
        outcomes.into_iter().collect()
    })
}

/// Locked while a plugin comes or goes.
static LOADING: Mutex<()> = Mutex::new(());

fn plugins(lap: &Lap<'_>) -> Result<(), Box<dyn Error>> {
    let come_and_go = |number| {
        let _loading = LOADING.lock();
        lap.plugin.map_or(Ok(()), |plugin| plugin.come_and_go(number))
    };
    lap.numbers(PLUGINS).try_for_each(come_and_go)
}

static DEVICE_BLOCKS: AtomicU64 = AtomicU64::new(0);

/// So many more blocks of the device were reported.
pub fn count_device_blocks(count: u64) {
    DEVICE_BLOCKS.fetch_add(count, Ordering::Relaxed);
}

/// How many were reported.
pub fn device_blocks() -> u64 {
    DEVICE_BLOCKS.load(Ordering::Relaxed)
}

/// A number below `below` that looks drawn; the same for the same `number`.
fn drawn(number: u64, below: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) % below
}
