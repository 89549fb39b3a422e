//! A custom allocator reports to memtrack: a language model is served from a small simulated device, through
//! the pool in `memtrack_examples::pool`, until a conversation grows too long for it.
//!
//! No global allocator is installed here: the recording contains only the pool's reports.

use std::error::Error;

use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::{By, start_monitor_with, stop, track_memory};
use memtrack_examples::pool::{Buffer, OutOfMemory, Pool};

const MIB: u64 = 1 << 20;
/// The bytes of one token's keys and values, in all layers.
const TOKEN_BYTES: u64 = 48 << 10;
const LAYERS: u64 = 8;

/// The device memory of one conversation.
struct Conversation {
    cache: Vec<Buffer>,
}

#[track_memory]
fn load_weights(pool: &Pool) -> Result<Vec<Buffer>, OutOfMemory> {
    (0..LAYERS).map(|_| pool.allocate(3 * MIB)).collect()
}

/// Reads the prompt: allocates large temporary scores, and a cache that is kept.
#[track_memory]
fn read_prompt(pool: &Pool, tokens: u64) -> Result<Conversation, OutOfMemory> {
    let _scores = pool.allocate(tokens * tokens * 4)?;
    Ok(Conversation { cache: vec![pool.allocate(tokens * TOKEN_BYTES)?] })
}

/// Writes one token after another; each allocates a small piece of cache.
#[track_memory]
fn write_answer(pool: &Pool, conversation: &mut Conversation, tokens: u64) -> Result<(), OutOfMemory> {
    for _ in 0..tokens {
        let _logits = pool.allocate(128 << 10)?;
        conversation.cache.push(pool.allocate(TOKEN_BYTES)?);
    }
    Ok(())
}

fn serve(pool: &Pool) -> Result<(), OutOfMemory> {
    let _weights = load_weights(pool)?;
    let mut longest = read_prompt(pool, 200)?;
    for prompt_tokens in [64, 128, 96] {
        let mut short = read_prompt(pool, prompt_tokens)?;
        write_answer(pool, &mut short, 32)?;
        write_answer(pool, &mut longest, 32)?;
    }
    // The device runs out of memory before this answer is complete.
    write_answer(pool, &mut longest, 1_000)
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::new(DeviceId(0), 64 * MIB);
    start_monitor_with(&Options::new().without_host_heap())?;
    let Err(full) = serve(&pool) else {
        return Err("the device should not have had room for all that".into());
    };
    pool.release_unused();
    let recording = stop();

    println!("the last answer ended early: {full}\n");
    println!("{}", recording.top_of(DeviceId(0), By::Operator, 10));
    Ok(())
}
