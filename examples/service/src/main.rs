//! A small service on tokio: two workers, requests through a channel, and a task for each request. The scope of an annotated
//! `async fn` follows its future: across `.await`, and when it continues on another worker.

use std::error::Error;
use std::sync::Arc;

use memtrack_core::{By, TrackingAllocator, scope, start_monitor, stop, track_memory};
use tokio::sync::{mpsc, oneshot};
use tokio::task;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

const DOCUMENTS: usize = 12;
const REQUESTS: usize = 60;

/// A handler's result.
type Reply = Result<usize, Box<dyn Error + Send + Sync>>;

/// A client's request.
enum Question {
    /// The number of occurrences of a word in all documents.
    Count(&'static str),
    /// The bytes of the compressed documents.
    Export,
    /// The size of a document's thumbnail.
    Thumbnail(usize),
}

struct Request {
    question: Question,
    reply: oneshot::Sender<Reply>,
}

/// The service's data, shared by all handlers.
struct Library {
    documents: Vec<String>,
}

impl Library {
    #[track_memory(name = "open_library")]
    fn open() -> Self {
        let documents =
            (0..DOCUMENTS).map(|number| format!("Chapter {number} is about memory. ").repeat(4_000));
        Self { documents: documents.collect() }
    }
}

/// Simulates a read from disk: a copy, and a pause during which other requests continue.
#[track_memory]
async fn read_document(library: &Library, number: usize) -> String {
    let text = library.documents[number % DOCUMENTS].clone();
    task::yield_now().await;
    text
}

#[track_memory]
async fn count_word(library: Arc<Library>, word: &'static str) -> usize {
    let mut occurrences = 0;
    for number in 0..DOCUMENTS {
        let text = read_document(&library, number).await;
        occurrences += text.to_uppercase().matches(word).count();
    }
    occurrences
}

/// Compresses text by run-length encoding, which works poorly, but allocates like a real compressor.
#[track_memory]
fn compress(text: &str) -> Vec<u8> {
    let mut packed: Vec<u8> = Vec::new();
    for byte in text.bytes() {
        match packed.as_mut_slice() {
            [.., last, count] if *last == byte && *count < u8::MAX => *count += 1,
            _ => packed.extend([byte, 1]),
        }
    }
    packed
}

#[track_memory]
async fn export(library: Arc<Library>) -> Reply {
    let mut parts = Vec::new();
    for number in 0..DOCUMENTS {
        let library = Arc::clone(&library);
        let part = async move { compress(&read_document(&library, number).await) };
        // A spawned task starts outside all scopes; `future` moves it into the current scope, the export.
        parts.push(task::spawn(scope::current().future(part)));
    }
    let mut archive = Vec::new();
    for part in parts {
        archive.extend(part.await?);
    }
    Ok(archive.len())
}

#[track_memory]
async fn thumbnail(library: Arc<Library>, number: usize) -> usize {
    const SIDE: usize = 512;
    let text = read_document(&library, number).await;
    let picture: Vec<u8> = text.bytes().cycle().take(SIDE * SIDE).collect();
    // The picture is live during the pause and is attributed to this handler, even while others run.
    task::yield_now().await;
    let small: Vec<u8> =
        picture.chunks(2 * SIDE).flat_map(|rows| rows.iter().step_by(2).take(SIDE / 2).copied()).collect();
    small.len()
}

async fn answer(library: Arc<Library>, question: Question) -> Reply {
    match question {
        Question::Count(word) => Ok(count_word(library, word).await),
        Question::Export => export(library).await,
        Question::Thumbnail(number) => Ok(thumbnail(library, number).await),
    }
}

/// Starts a task for every request until all clients have ended.
async fn serve(mut requests: mpsc::Receiver<Request>) {
    let library = Arc::new(Library::open());
    while let Some(Request { question, reply }) = requests.recv().await {
        let library = Arc::clone(&library);
        task::spawn(async move {
            // Sending fails if the client no longer waits, which is not an error.
            let _ = reply.send(answer(library, question).await);
        });
    }
}

/// Sends all requests at once and adds up the answers.
async fn send_all_questions(service: mpsc::Sender<Request>) -> Reply {
    let mut replies = Vec::new();
    for number in 0..REQUESTS {
        let question = match number % 3 {
            0 => Question::Count("MEMORY"),
            1 => Question::Export,
            _ => Question::Thumbnail(number),
        };
        let (reply, answered) = oneshot::channel();
        service.send(Request { question, reply }).await.map_err(|_| "the service has ended")?;
        replies.push(answered);
    }
    let mut sum = 0;
    for reply in replies {
        sum += reply.await??;
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    start_monitor();
    let sum = runtime.block_on(async {
        let (sender, receiver) = mpsc::channel(8);
        task::spawn(serve(receiver));
        send_all_questions(sender).await
    })?;
    let recording = stop();

    println!("{REQUESTS} requests answered, their sum is {sum}\n");
    println!("{}", recording.top(By::Operator, 10));
    Ok(())
}
