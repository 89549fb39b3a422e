//! Runs a query with DataFusion on separate threads, which send batches of rows as the engine yields them. The engine's
//! memory is limited, and only read-only queries are allowed.

use super::refusal::{self, Cause};
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

/// The stack size of an engine thread in bytes. The engine recurses into the parts of a query, and the longest query
/// has some hundred thousand of them; only the part of the stack that is used takes memory.
const STACK_BYTES: usize = 512 << 20;
/// The maximum number of row batches that wait to be written.
const MAX_WAITING_BATCHES: usize = 4;

/// A query and its settings.
pub(crate) struct Query {
    /// The query in SQL.
    pub(crate) sql: String,
    /// The folder of the data set.
    pub(crate) folder: PathBuf,
    /// The memory limit for all of the engine's operators, in bytes.
    pub(crate) memory: u64,
    /// The number of threads.
    pub(crate) jobs: NonZero<usize>,
}

/// The result of a query.
pub(crate) struct QueryResult {
    /// The columns.
    pub(crate) schema: SchemaRef,
    /// The rows, followed by an error if they ended early.
    pub(crate) batches: Batches,
}

/// An iterator over batches of rows. Dropping it stops the query and waits for the engine's threads, so that they
/// remove their temporary files.
pub(crate) struct Batches {
    receiver: Option<Receiver<Message>>,
    thread: Option<JoinHandle<()>>,
}

/// A message from the engine's thread. The first one has the columns.
enum Message {
    Columns(SchemaRef),
    Rows(RecordBatch),
    Failed(CliError),
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, CliError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.receiver.as_ref()?.recv() {
            Ok(Message::Rows(batch)) => Some(Ok(batch)),
            Ok(Message::Failed(error)) => Some(Err(error)),
            Ok(Message::Columns(_)) => None,
            Err(_) => self.join().map(Err),
        }
    }
}

impl Batches {
    /// Waits for the thread and returns an error if it panicked.
    fn join(&mut self) -> Option<CliError> {
        self.receiver = None;
        self.thread.take()?.join().err().map(|_| CliError::Io("the engine has failed on this query".into()))
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.join();
    }
}

/// Runs a query. Returns once the first rows are available, so that earlier errors are known before anything is
/// written.
///
/// # Errors
/// Fails if the data set cannot be read, or if the query fails before its first rows.
pub(crate) fn execute(query: Query) -> Result<QueryResult, CliError> {
    let (sender, receiver) = sync_channel(MAX_WAITING_BATCHES);
    let thread = Builder::new()
        .name("memtrack-sql".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            if let Err(error) = run_query(&query, &sender) {
                // The receiver may be gone.
                let _ = sender.send(Message::Failed(error));
            }
        })
        .map_err(|error| CliError::Io(format!("cannot start a thread for the query: {error}")))?;
    let mut batches = Batches { receiver: Some(receiver), thread: Some(thread) };
    match batches.receiver.as_ref().map(Receiver::recv) {
        Some(Ok(Message::Columns(schema))) => Ok(QueryResult { schema, batches }),
        Some(Ok(Message::Failed(error))) => Err(error),
        _ => Err(batches.join().unwrap_or_else(|| CliError::Io("the engine returned no result".into()))),
    }
}

/// Runs the query on the engine's thread.
fn run_query(query: &Query, sender: &SyncSender<Message>) -> Result<(), CliError> {
    let folder = &query.folder;
    let ranks = ranks_of(folder).map_err(|bad| CliError::input(&bad.path, bad.why))?;
    let (store, files) = open_store(folder).map_err(|error| CliError::input(folder, error))?;
    let dataset = Arc::new(Dataset { folder: folder.clone(), ranks, store, scanned: Mutex::default() });
    let jobs = query.jobs.get();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(jobs)
        // These threads wait for file I/O.
        .max_blocking_threads(2 * jobs)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| CliError::Io(format!("cannot start threads for the query: {error}")))?;
    let failed = |error: &DataFusionError| refusal::query_error(error, folder, query.memory);
    let context = new_context(query, &dataset, files).map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let Err(error) = send_rows(query, &context, sender).await else { return Ok(()) };
        let bad = match Cause::of(&error) {
            Cause::Query => None,
            Cause::Unknown => find_damaged_file(&context, &dataset).await,
        };
        Err(bad.map_or_else(|| failed(&error), |bad| refusal::damaged_file(&bad)))
    })
}

/// Returns the URL that stands for the data set's folder in the engine, and the store that opens files there.
fn open_store(folder: &Path) -> Result<(ObjectStoreUrl, LocalFileSystem)> {
    let files = LocalFileSystem::new_with_prefix(folder)?;
    Ok((ObjectStoreUrl::parse("memtrack://dataset")?, files))
}

/// Creates a session in which the tables are registered.
fn new_context(query: &Query, dataset: &Arc<Dataset>, files: LocalFileSystem) -> Result<SessionContext> {
    let memory = usize::try_from(query.memory).unwrap_or(usize::MAX);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(memory)));
    let mut config = SessionConfig::new()
        .with_target_partitions(query.jobs.get())
        .with_default_catalog_and_schema("memtrack", "dataset")
        .with_information_schema(true)
        // Statistics need not be collected, because the rows of each file are counted when the file is checked.
        .with_collect_statistics(false);
    // Keep the position of an error in the query.
    config.options_mut().sql_parser.collect_spans = true;
    let context = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
    context.register_object_store(dataset.store.as_ref(), Arc::new(files));
    for table in TABLES {
        context.register_table(table.name, Arc::new(RankTable::new(Arc::clone(dataset), table, None)))?;
    }
    Ok(context)
}

/// Runs the query and sends the columns and rows until the receiver is gone.
async fn send_rows(query: &Query, context: &SessionContext, sender: &SyncSender<Message>) -> Result<()> {
    let read_only =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let frame = context.sql_with_options(&query.sql, read_only).await?;
    let mut stream = frame.execute_stream().await?;
    let mut next = stream.next().await.transpose()?;
    let mut is_connected = sender.send(Message::Columns(stream.schema())).is_ok();
    while let (true, Some(batch)) = (is_connected, next.take()) {
        is_connected = sender.send(Message::Rows(batch)).is_ok();
        next = stream.next().await.transpose()?;
    }
    Ok(())
}

/// Returns the first of the query's files that cannot be read to the end.
async fn find_damaged_file(context: &SessionContext, dataset: &Arc<Dataset>) -> Option<BadFile> {
    let scanned = std::mem::take(&mut *dataset.scanned.lock().unwrap_or_else(PoisonError::into_inner));
    for (table, place) in scanned {
        let alone: Arc<dyn TableProvider> = Arc::new(RankTable::new(Arc::clone(dataset), table, Some(place)));
        let read = async {
            let mut stream = context.read_table(alone)?.execute_stream().await?;
            while stream.next().await.transpose()?.is_some() {}
            Ok::<_, DataFusionError>(())
        };
        if let Err(error) = read.await {
            let located = refusal::bad_file(&error).cloned();
            let path = dataset.path(table, &dataset.ranks[place]);
            return Some(located.unwrap_or_else(|| BadFile { path, why: refusal::one_line(&error) }));
        }
    }
    None
}
