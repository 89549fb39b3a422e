//! Writes a table as a Parquet file. The names, types and encodings of its columns are defined once, in a [`Table`].
//! Rows are passed as columns of plain values, one group of rows at a time, so a table never has to fit into memory.
//!
//! **Why `parquet` without Arrow?** With `default-features = false` and `zstd`, it depends on 25 crates and on libzstd
//! (C code, which needs a C compiler, but linking needs one anyway). `parquet` supports no other zstd implementation,
//! such as `ruzstd`. Times and references to allocations are delta-encoded, and the other columns use dictionaries. In
//! a generated snapshot with a million random allocations and frees, an event takes 5.7 bytes, including its stack
//! (docs/COSTS.md). Encodings that Spark 3 cannot read, such as byte-stream splits, are not used.

use foldhash::{HashMap, HashMapExt};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::io::{self, Write};
use std::sync::Arc;

/// The number of rows in a row group, which is the default in parquet's own writers.
pub(crate) const ROWS_PER_GROUP: usize = 1 << 20;

/// The size of a column's dictionary, in bytes, at which the rest of the column is written without one. The limit is high
/// because even addresses take less space in a dictionary: each is in two or more rows, but in the dictionary only once.
const MAX_DICTIONARY_BYTES: usize = 8 << 20;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A signed 32-bit integer (`INT`).
    Int,
    /// A signed 64-bit integer (`BIGINT`).
    Long,
    /// A floating-point number (`DOUBLE`).
    Double,
    /// A boolean (`BOOLEAN`).
    Flag,
    /// UTF-8 text (`STRING`).
    Text,
}

impl Kind {
    /// Returns the type's name in SQL.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::Long => "BIGINT",
            Self::Double => "DOUBLE",
            Self::Flag => "BOOLEAN",
            Self::Text => "STRING",
        }
    }

    /// Returns the type's physical type in Parquet files.
    pub(crate) const fn physical(self) -> Physical {
        match self {
            Self::Int => Physical::INT32,
            Self::Long => Physical::INT64,
            Self::Double => Physical::DOUBLE,
            Self::Flag => Physical::BOOLEAN,
            Self::Text => Physical::BYTE_ARRAY,
        }
    }
}

/// A column of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The column's name.
    pub name: &'static str,
    /// The type of the values.
    pub kind: Kind,
    /// Whether values may be null.
    pub nullable: bool,
    /// Whether the column is delta-encoded, because its values increase or are close to each other.
    delta: bool,
}

impl Column {
    pub(crate) const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, nullable: false, delta: false }
    }

    pub(crate) const fn nullable(self) -> Self {
        Self { nullable: true, ..self }
    }

    pub(crate) const fn delta(self) -> Self {
        Self { delta: true, ..self }
    }
}

/// A table. Its files are called `NAME.parquet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    pub name: &'static str,
    /// The table's columns.
    pub columns: &'static [Column],
}

impl Table {
    /// Returns the name of the table's file in the folder of a rank.
    pub fn file_name(&self) -> String {
        format!("{}.parquet", self.name)
    }

    fn schema(&self) -> Result<Type, ParquetError> {
        let fields = self.columns.iter().map(|column| {
            let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            Type::primitive_type_builder(column.name, column.kind.physical())
                .with_repetition(repetition)
                .with_logical_type((column.kind == Kind::Text).then_some(LogicalType::String))
                .build()
                .map(Arc::new)
        });
        Type::group_type_builder("memtrack").with_fields(fields.collect::<Result<_, _>>()?).build()
    }

    fn properties(&self, facts: &[(&str, String)]) -> Result<WriterProperties, ParquetError> {
        let facts = facts.iter().map(|(key, value)| KeyValue::new(format!("memtrack.{key}"), value.clone()));
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("memtrack ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(facts.collect()))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            // Write statistics only for row groups, because there are few pages, and their indexes would be a large
            // part of a small file.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_dictionary_page_size_limit(MAX_DICTIONARY_BYTES)
            .set_data_page_row_count_limit(ROWS_PER_GROUP);
        for column in self.columns.iter().filter(|column| column.delta) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        Ok(properties.build())
    }
}

/// A value in a row of a small table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Number(i64),
    Fraction(f64),
    Flag(bool),
    Text(&'a str),
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<u64> for Value<'_> {
    /// Converts a size or a count. Larger numbers than `i64::MAX` become `i64::MAX`, but no size or count comes near it.
    fn from(value: u64) -> Self {
        Self::Number(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Self::Fraction(value)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

/// The values of a column in one group of rows.
#[derive(Debug)]
pub(crate) enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Double(Vec<f64>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>),
}

/// A column in one group of rows. If the column is nullable, `present` is 1 for each row with a value and 0 for each
/// null, and `values` contains only the values of the rows that have one.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) values: Values,
    pub(crate) present: Option<Vec<i16>>,
}

impl Cells {
    /// Creates a column in which all values are present.
    pub(crate) fn all(values: Values) -> Self {
        Self { values, present: None }
    }

    /// Creates a column of `rows` nulls.
    pub(crate) fn nulls(kind: Kind, rows: usize) -> Self {
        Self { values: empty_values(kind), present: Some(vec![0; rows]) }
    }

    /// Creates a nullable column of 64-bit values.
    pub(crate) fn longs(values: impl Iterator<Item = Option<i64>>) -> Self {
        Self::nullable(values, Values::Long)
    }

    /// Creates a nullable column of texts.
    pub(crate) fn texts(values: impl Iterator<Item = Option<ByteArray>>) -> Self {
        Self::nullable(values, Values::Text)
    }

    fn nullable<T>(values: impl Iterator<Item = Option<T>>, of_kind: impl FnOnce(Vec<T>) -> Values) -> Self {
        let mut present = Vec::with_capacity(values.size_hint().0);
        let values = values.inspect(|value| present.push(i16::from(value.is_some()))).flatten().collect();
        Self { values: of_kind(values), present: Some(present) }
    }
}

fn empty_values(kind: Kind) -> Values {
    match kind {
        Kind::Int => Values::Int(Vec::new()),
        Kind::Long => Values::Long(Vec::new()),
        Kind::Double => Values::Double(Vec::new()),
        Kind::Flag => Values::Flag(Vec::new()),
        Kind::Text => Values::Text(Vec::new()),
    }
}

/// A table that is being written.
pub(crate) struct TableWriter<W: Write + Send> {
    table: &'static Table,
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> TableWriter<W> {
    /// Starts the file, with `facts` as its key-value metadata (`memtrack.KEY`).
    pub(crate) fn new(output: W, table: &'static Table, facts: &[(&str, String)]) -> io::Result<Self> {
        let schema = table.schema().map_err(into_io_error)?;
        let properties = table.properties(facts).map_err(into_io_error)?;
        let writer = SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties))
            .map_err(into_io_error)?;
        Ok(Self { table, writer })
    }

    /// Writes a row group, which consists of all columns in the table's order, each with the same number of rows.
    pub(crate) fn write_group(&mut self, columns: Vec<Cells>) -> io::Result<()> {
        debug_assert_eq!(columns.len(), self.table.columns.len());
        let mut group = self.writer.next_row_group().map_err(into_io_error)?;
        for cells in columns {
            write_column(&mut group, &cells).map_err(into_io_error)?;
        }
        group.close().map(|_| ()).map_err(into_io_error)
    }

    /// Writes the end of the file.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.writer.close().map(|_| ()).map_err(into_io_error)
    }
}

impl TableWriter<Vec<u8>> {
    /// Removes and returns the bytes that have been written so far.
    pub(crate) fn take_written(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.inner_mut())
    }

    /// Finishes the file, and returns the remaining bytes.
    pub(crate) fn finish_into_bytes(self) -> io::Result<Vec<u8>> {
        self.writer.into_inner().map_err(into_io_error)
    }
}

fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cells: &Cells,
) -> Result<(), ParquetError> {
    fn write_values<T: DataType, W: Write + Send>(
        group: &mut SerializedRowGroupWriter<'_, W>,
        values: &[T::T],
        present: Option<&[i16]>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else {
            return Err(ParquetError::General("more columns than the table has".into()));
        };
        column.typed::<T>().write_batch(values, present, None)?;
        column.close()
    }
    let present = cells.present.as_deref();
    match &cells.values {
        Values::Int(values) => write_values::<Int32Type, W>(group, values, present),
        Values::Long(values) => write_values::<Int64Type, W>(group, values, present),
        Values::Double(values) => write_values::<DoubleType, W>(group, values, present),
        Values::Flag(values) => write_values::<BoolType, W>(group, values, present),
        Values::Text(values) => write_values::<ByteArrayType, W>(group, values, present),
    }
}

/// Converts a write error to the I/O error that parquet has wrapped.
fn into_io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// The rows of a small table, or of a part of a large table.
pub(crate) struct Rows {
    table: &'static Table,
    columns: Vec<Cells>,
    texts: HashMap<String, ByteArray>,
    rows: usize,
}

impl Rows {
    pub(crate) fn of(table: &'static Table) -> Self {
        let columns = table.columns.iter().map(|column| Cells {
            values: empty_values(column.kind),
            present: column.nullable.then(Vec::new),
        });
        Self { table, columns: columns.collect(), texts: HashMap::new(), rows: 0 }
    }

    /// Appends a row.
    ///
    /// # Panics
    /// Panics if the values do not match the table's columns in number and type.
    pub(crate) fn push<const N: usize>(&mut self, row: [Value<'_>; N]) {
        assert_eq!(N, self.columns.len(), "{}", self.table.name);
        self.rows += 1;
        for ((value, cells), column) in row.into_iter().zip(&mut self.columns).zip(self.table.columns) {
            if let Some(present) = &mut cells.present {
                present.push(i16::from(!matches!(value, Value::Null)));
                if let Value::Null = value {
                    continue;
                }
            }
            match (&mut cells.values, value) {
                (Values::Int(values), Value::Number(number)) => {
                    values.push(i32::try_from(number).unwrap_or(i32::MAX));
                }
                (Values::Long(values), Value::Number(number)) => values.push(number),
                (Values::Double(values), Value::Fraction(number)) => values.push(number),
                (Values::Flag(values), Value::Flag(flag)) => values.push(flag),
                (Values::Text(values), Value::Text(text)) => {
                    if !self.texts.contains_key(text) {
                        self.texts.insert(text.to_owned(), ByteArray::from(text));
                    }
                    values.push(self.texts[text].clone());
                }
                (_, value) => panic!("{}.{} does not take {value:?}", self.table.name, column.name),
            }
        }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn into_columns(self) -> Vec<Cells> {
        self.columns
    }

    /// Writes the table as a file.
    pub(crate) fn write<W: Write + Send>(self, output: W, facts: &[(&str, String)]) -> io::Result<()> {
        let mut writer = TableWriter::new(output, self.table, facts)?;
        if self.rows > 0 {
            writer.write_group(self.columns)?;
        }
        writer.finish()
    }
}
