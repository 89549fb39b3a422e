//! Runs a query: DataFusion on threads of its own, which hands batches of rows over as they come. Its memory is bounded, and
//! nothing but questions is allowed.

use super::refusal::{self, Blame};
use super::tables::{BadFile, Dataset, RankTable, ranks_of};
use crate::error::CliError;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::TableProvider;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use memtrack_core::dataset::TABLES;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// What a thread of the engine may put on its stack. It descends into the parts of a query, of which the longest has some
/// hundred thousand; only what is used is ever memory.
const STACK_BYTES: usize = 512 << 20;
/// Batches of rows that wait for whoever writes them.
const WAITING: usize = 4;

/// What to ask.
pub(crate) struct Question {
    /// The query.
    pub(crate) sql: String,
    /// The folder of the data set.
    pub(crate) folder: PathBuf,
    /// Bytes that the engine's operators may hold together.
    pub(crate) memory: u64,
    /// Threads.
    pub(crate) jobs: NonZero<usize>,
}

/// What comes back.
pub(crate) struct Answered {
    /// The columns.
    pub(crate) schema: SchemaRef,
    /// The rows, or why there are no more of them.
    pub(crate) batches: Batches,
}

/// Rows as they come. Dropped, it ends the query and waits for its threads, so that they remove their files.
pub(crate) struct Batches {
    receiver: Option<Receiver<Sent>>,
    thread: Option<JoinHandle<()>>,
}

/// What the engine's thread sends: the columns first.
enum Sent {
    Columns(SchemaRef),
    Rows(RecordBatch),
    Failed(CliError),
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, CliError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.receiver.as_ref()?.recv() {
            Ok(Sent::Rows(batch)) => Some(Ok(batch)),
            Ok(Sent::Failed(error)) => Some(Err(error)),
            Ok(Sent::Columns(_)) => None,
            Err(_) => self.ended().map(Err),
        }
    }
}

impl Batches {
    /// The thread has ended: why, if that was not the end of the rows.
    fn ended(&mut self) -> Option<CliError> {
        self.receiver = None;
        self.thread.take()?.join().err().map(|_| CliError::Io("the engine has failed on this query".into()))
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.ended();
    }
}

/// Asks. Returns with the first rows, so that what goes wrong before is known before anything is written.
///
/// # Errors
/// When the data set cannot be read, or the query cannot be answered.
pub(crate) fn ask(question: Question) -> Result<Answered, CliError> {
    let (sender, receiver) = sync_channel(WAITING);
    let thread = Builder::new()
        .name("memtrack-sql".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            if let Err(error) = run(&question, &sender) {
                // Nobody may be there any more.
                let _ = sender.send(Sent::Failed(error));
            }
        })
        .map_err(|error| CliError::Io(format!("cannot start a thread for the query: {error}")))?;
    let mut batches = Batches { receiver: Some(receiver), thread: Some(thread) };
    match batches.receiver.as_ref().map(Receiver::recv) {
        Some(Ok(Sent::Columns(schema))) => Ok(Answered { schema, batches }),
        Some(Ok(Sent::Failed(error))) => Err(error),
        _ => Err(batches.ended().unwrap_or_else(|| CliError::Io("the engine returned no result".into()))),
    }
}

/// The engine's thread.
fn run(question: &Question, sender: &SyncSender<Sent>) -> Result<(), CliError> {
    let folder = &question.folder;
    let ranks = ranks_of(folder).map_err(|bad| CliError::input(&bad.path, bad.why))?;
    let (store, files) = store(folder).map_err(|error| CliError::input(folder, error))?;
    let dataset = Arc::new(Dataset { folder: folder.clone(), ranks, store, asked: Mutex::default() });
    let jobs = question.jobs.get();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(jobs)
        // What waits for files.
        .max_blocking_threads(2 * jobs)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| CliError::Io(format!("cannot start threads for the query: {error}")))?;
    let failed = |error: &DataFusionError| refusal::refused(error, folder, question.memory);
    let context = context(question, &dataset, files).map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let Err(error) = answer(question, &context, sender).await else { return Ok(()) };
        let bad = match Blame::of(&error) {
            Blame::Query => None,
            Blame::Unknown => damaged(&context, &dataset).await,
        };
        Err(bad.map_or_else(|| failed(&error), |bad| refusal::damaged(&bad)))
    })
}

/// The data set's folder, as the engine names it and opens what is in it.
fn store(folder: &Path) -> Result<(ObjectStoreUrl, LocalFileSystem)> {
    let files = LocalFileSystem::new_with_prefix(folder)?;
    Ok((ObjectStoreUrl::parse("memtrack://dataset")?, files))
}

/// An engine that knows the tables.
fn context(question: &Question, dataset: &Arc<Dataset>, files: LocalFileSystem) -> Result<SessionContext> {
    let memory = usize::try_from(question.memory).unwrap_or(usize::MAX);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(memory)));
    let mut config = SessionConfig::new()
        .with_target_partitions(question.jobs.get())
        .with_default_catalog_and_schema("memtrack", "dataset")
        .with_information_schema(true)
        // Rows of each file are counted where it is checked.
        .with_collect_statistics(false);
    // Where in the query an error is.
    config.options_mut().sql_parser.collect_spans = true;
    let context = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
    context.register_object_store(dataset.store.as_ref(), Arc::new(files));
    for table in TABLES {
        context.register_table(table.name, Arc::new(RankTable::new(Arc::clone(dataset), table, None)))?;
    }
    Ok(context)
}

/// Answers the query.
async fn answer(question: &Question, context: &SessionContext, sender: &SyncSender<Sent>) -> Result<()> {
    let questions =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let frame = context.sql_with_options(&question.sql, questions).await?;
    let mut stream = frame.execute_stream().await?;
    let mut next = stream.next().await.transpose()?;
    let mut wanted = sender.send(Sent::Columns(stream.schema())).is_ok();
    while let (true, Some(batch)) = (wanted, next.take()) {
        wanted = sender.send(Sent::Rows(batch)).is_ok();
        next = stream.next().await.transpose()?;
    }
    Ok(())
}

/// Of the files that the query asked for, the first that cannot be read to its end.
async fn damaged(context: &SessionContext, dataset: &Arc<Dataset>) -> Option<BadFile> {
    let asked = std::mem::take(&mut *dataset.asked.lock().unwrap_or_else(PoisonError::into_inner));
    for (table, place) in asked {
        let alone: Arc<dyn TableProvider> = Arc::new(RankTable::new(Arc::clone(dataset), table, Some(place)));
        let read = async {
            let mut stream = context.read_table(alone)?.execute_stream().await?;
            while stream.next().await.transpose()?.is_some() {}
            Ok::<_, DataFusionError>(())
        };
        if let Err(error) = read.await {
            let told = refusal::bad_file(&error).cloned();
            let path = dataset.path(table, &dataset.ranks[place]);
            return Some(told.unwrap_or_else(|| BadFile { path, why: refusal::words(&error) }));
        }
    }
    None
}
