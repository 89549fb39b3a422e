//! The service's work in a lap. Each kind of work runs on a separate thread, in parallel with the others.

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
/// The address of the blocks of [`probe`](crate::probe): below those of all other blocks.
pub const PROBE_ADDRESS: u64 = 1 << 32;

/// Plugins that are loaded per lap.
const PLUGINS: u64 = 3;

/// The context of a lap.
#[derive(Clone, Copy)]
pub struct Lap<'a> {
    /// The number of the lap, from 1.
    pub number: u64,
    pub plugin: Option<&'a Plugin>,
    pub freeing: &'a Freeing,
    pub recordings: &'a Path,
}

impl Lap<'_> {
    /// Returns a range of `count` numbers, which differs from the ranges of other laps.
    fn numbers(&self, count: u64) -> std::ops::Range<u64> {
        self.number * count..(self.number + 1) * count
    }
}

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Does the work of one lap. Returns the first error.
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

/// Locked while a plugin is loaded or unloaded.
static LOADING: Mutex<()> = Mutex::new(());

fn plugins(lap: &Lap<'_>) -> Result<(), Box<dyn Error>> {
    let load_and_unload = |number| {
        let _loading = LOADING.lock();
        lap.plugin.map_or(Ok(()), |plugin| plugin.load_and_unload(number))
    };
    lap.numbers(PLUGINS).try_for_each(load_and_unload)
}

static DEVICE_BLOCKS: AtomicU64 = AtomicU64::new(0);

/// Adds to the number of the device's reported blocks.
pub fn count_device_blocks(count: u64) {
    DEVICE_BLOCKS.fetch_add(count, Ordering::Relaxed);
}

/// Returns the number of the device's reported blocks.
pub fn device_blocks() -> u64 {
    DEVICE_BLOCKS.load(Ordering::Relaxed)
}

/// Returns a pseudo-random number below `below`, which is always the same for a given `number`.
fn pseudo_random(number: u64, below: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) % below
}
