//! The tables of a data set for the engine. They have the columns of `memtrack_core::dataset::TABLES`, and `job` and `rank` from
//! the names of the folders. DataFusion's `ListingTable` is not used, because it does not decode the names (`a%20job`) and its
//! errors do not name a damaged file.

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, ScalarValue, Statistics, project_schema};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::object_store;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use memtrack_core::dataset::{self, Kind, RankFolder};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of bytes at the end of a file to read first, which is more than the metadata of any rank's table.
const METADATA_BYTES: usize = 64 << 10;

/// A file of a data set that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct BadFile {
    /// The file's path.
    pub(super) path: PathBuf,
    /// Why the file cannot be read.
    pub(super) why: String,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for BadFile {}

/// The data set that a query reads.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) folder: PathBuf,
    pub(super) ranks: Vec<RankFolder>,
    pub(super) store: ObjectStoreUrl,
    /// The files that the query has read, each given as its table and the index of its rank.
    pub(super) scanned: Mutex<Vec<(&'static dataset::Table, usize)>>,
}

impl Dataset {
    pub(super) fn path(&self, table: &dataset::Table, rank: &RankFolder) -> PathBuf {
        self.folder.join(&rank.folder).join(table.file_name())
    }
}

/// A table of the data set, with the rows of all ranks or of one.
#[derive(Debug)]
pub(super) struct RankTable {
    dataset: Arc<Dataset>,
    table: &'static dataset::Table,
    /// The index of the rank whose rows the table has, or `None` for the rows of all ranks.
    only: Option<usize>,
    schema: TableSchema,
}

impl RankTable {
    pub(super) fn new(dataset: Arc<Dataset>, table: &'static dataset::Table, only: Option<usize>) -> Self {
        let fields = table.columns.iter().map(|column| {
            let kind = match column.kind {
                Kind::Int => DataType::Int32,
                Kind::Long => DataType::Int64,
                Kind::Double => DataType::Float64,
                Kind::Flag => DataType::Boolean,
                Kind::Text => DataType::Utf8,
            };
            Field::new(column.name, kind, column.nullable)
        });
        let folders = vec![
            Arc::new(Field::new("job", DataType::Utf8, false)),
            Arc::new(Field::new("rank", DataType::Int64, false)),
        ];
        let schema = TableSchema::new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), folders);
        Self { dataset, table, only, schema }
    }

    /// Returns a rank's file for the engine, or `None` if the file has no rows. The engine's errors would not name a damaged
    /// file, so its metadata is checked here.
    fn rank_file(&self, place: usize) -> Result<Option<(PartitionedFile, usize)>, BadFile> {
        let rank = &self.dataset.ranks[place];
        let path = self.dataset.path(self.table, rank);
        let bad = |why: String| BadFile { path: path.clone(), why };
        let rows = dataset::check(&path, self.table).map_err(|error| bad(error.to_string()))?;
        if rows == 0 {
            return Ok(None);
        }
        let size = path.metadata().map_err(|error| bad(error.to_string()))?.len();
        let name = rank.folder.join(self.table.file_name());
        let name = name.to_str().ok_or_else(|| bad("its name is not UTF-8".into()))?;
        let mut file = PartitionedFile::new("", size);
        // Parse the path, because a conversion from a string would encode it.
        file.object_meta.location =
            object_store::path::Path::parse(name).map_err(|error| bad(error.to_string()))?;
        let rank_number = i64::try_from(rank.rank).unwrap_or(i64::MAX);
        let statistics = Statistics::new_unknown(self.schema.file_schema())
            .with_num_rows(Precision::Exact(rows as usize))
            .with_total_byte_size(Precision::Inexact(size as usize));
        let file = file
            .with_partition_values(vec![
                ScalarValue::Utf8(Some(rank.job.clone())),
                ScalarValue::Int64(Some(rank_number)),
            ])
            .with_metadata_size_hint(METADATA_BYTES)
            .with_statistics(Arc::new(statistics));
        Ok(Some((file, rows as usize)))
    }
}

#[async_trait]
impl TableProvider for RankTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let places = self.only.map_or(0..self.dataset.ranks.len(), |only| only..only + 1);
        self.dataset
            .scanned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(places.clone().map(|place| (self.table, place)));
        let (mut files, mut rows, mut bytes) = (Vec::new(), 0, 0);
        for place in places {
            let file = self.rank_file(place).map_err(|bad| DataFusionError::External(Box::new(bad)))?;
            if let Some((file, more)) = file {
                rows += more;
                bytes += file.object_meta.size as usize;
                files.push(file);
            }
        }
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema(), projection)?)));
        }
        let statistics = Statistics::new_unknown(&self.schema())
            .with_num_rows(Precision::Exact(rows))
            .with_total_byte_size(Precision::Inexact(bytes));
        let source = Arc::new(ParquetSource::new(self.schema.clone()));
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let scan = FileScanConfigBuilder::new(self.dataset.store.clone(), source)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
}

/// Returns the ranks of the data set in `folder`.
///
/// # Errors
/// Fails with an error that describes what the folder actually is and what to do about it.
pub(super) fn ranks_of(folder: &Path) -> Result<Vec<RankFolder>, BadFile> {
    let bad = |why: String| BadFile { path: folder.to_owned(), why };
    let ranks = dataset::ranks(folder).map_err(|error| bad(error.to_string()))?;
    if ranks.is_empty() {
        let is_part =
            |begin: &str| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin));
        return Err(bad(match is_part("job=") || is_part("rank=") {
            true => "it is a part of a data set; name the folder that the folder job=… is in".into(),
            false => "it is not a data set: it has no folder job=…/rank=…; memtrack export --parquet DIR \
                      FILES… writes one"
                .into(),
        }));
    }
    Ok(ranks)
}
