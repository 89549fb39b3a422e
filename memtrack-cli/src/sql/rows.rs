//! Writes rows as a table, as CSV or as JSON. CSV and JSON are written while the query runs, so that only a few batches
//! are in memory. A table requires the widths of its columns in advance, so it keeps the rows that
//! it shows.

use super::engine::Batches;
use crate::Streams;
use crate::answers::SqlColumn;
use crate::error::CliError;
use comfy_table::{Cell, CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use datafusion::arrow::csv::WriterBuilder as CsvBuilder;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder as JsonBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use memtrack_core::analysis::units::{counted, printable, shorten_middle};
use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// The minimum number of characters that text is shortened to, however narrow the terminal is.
const MIN_TEXT_WIDTH: usize = 16;
/// The number of spaces between two columns.
const COLUMN_GAP: usize = 2;

/// Makes column names unique. If two columns have the same name, the second becomes `NAME_2`.
fn make_names_unique(schema: &SchemaRef) -> SchemaRef {
    let mut taken = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        let mut name = field.name().clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{}_{number}", field.name());
        }
        Arc::new(Field::new(name, field.data_type().clone(), true))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns a result's columns for JSON.
pub(crate) fn columns(schema: &SchemaRef) -> Vec<SqlColumn> {
    let column =
        |field: &Arc<Field>| SqlColumn { name: field.name().clone(), kind: sql_type_name(field.data_type()) };
    make_names_unique(schema).fields().iter().map(column).collect()
}

/// Returns the SQL name of a type.
fn sql_type_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".into(),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            format!("DECIMAL({precision}, {scale})")
        }
        other => other.to_string().to_uppercase(),
    }
}

fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())
}

/// Returns the error for a value that cannot be written in the requested format.
fn unwritable_error(error: &ArrowError) -> CliError {
    CliError::Usage(format!("the answer cannot be written: {error}"))
}

/// A result's rows as JSON, with one object per line. Serialization consumes the rows.
pub(crate) struct SqlRows {
    batches: RefCell<Batches>,
    failed: Rc<RefCell<Option<CliError>>>,
}

impl SqlRows {
    /// Returns the rows, and a cell that receives the error if serialization fails.
    pub(crate) fn of(batches: Batches) -> (Self, Rc<RefCell<Option<CliError>>>) {
        let failed = Rc::default();
        (Self { batches: RefCell::new(batches), failed: Rc::clone(&failed) }, failed)
    }
}

impl Serialize for SqlRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(None)?;
        for batch in &mut *self.batches.borrow_mut() {
            let lines =
                batch.and_then(|batch| batch_to_json(&batch).map_err(|error| unwritable_error(&error)));
            let lines = lines.map_err(|error| {
                let text = error.to_string();
                *self.failed.borrow_mut() = Some(error);
                S::Error::custom(text)
            })?;
            for line in lines.lines() {
                let row = RawValue::from_string(line.to_owned()).map_err(S::Error::custom)?;
                rows.serialize_element(&row)?;
            }
        }
        rows.end()
    }
}

/// Formats the rows of a batch as JSON, with one row per line.
fn batch_to_json(batch: &RecordBatch) -> Result<String, ArrowError> {
    let mut writer = JsonBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(Vec::new());
    writer.write(&with_schema(batch, &make_names_unique(&batch.schema()))?)?;
    writer.finish()?;
    String::from_utf8(writer.into_inner()).map_err(|error| ArrowError::JsonError(error.to_string()))
}

/// Writes all rows as CSV, preceded by the column names.
pub(crate) fn write_csv(
    schema: &SchemaRef,
    batches: Batches,
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let schema = make_names_unique(schema);
    // Write through a buffer, because arrow's writer reports I/O errors only as text.
    let mut write = |batch: &RecordBatch, with_head| {
        let mut text = Vec::new();
        let written = CsvBuilder::new().with_header(with_head).build(&mut text).write(batch);
        written.map_err(|error| unwritable_error(&error))?;
        streams.stdout.write_all(&text).map_err(CliError::from)
    };
    write(&RecordBatch::new_empty(Arc::clone(&schema)), true)?;
    for batch in batches {
        let batch = with_schema(&batch?, &schema).map_err(|error| unwritable_error(&error))?;
        write(&batch, false)?;
    }
    Ok(())
}

/// Writes the first `limit` rows as a table of at most `width` characters, followed by the number of remaining rows.
pub(crate) fn write_text(
    schema: &SchemaRef,
    batches: Batches,
    limit: usize,
    width: Option<usize>,
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let schema = make_names_unique(schema);
    let mut shown = TextTable {
        heads: schema.fields().iter().map(|field| printable(field.name())).collect(),
        is_number: schema.fields().iter().map(|field| field.data_type().is_numeric()).collect(),
        rows: Vec::new(),
    };
    let mut more = 0;
    for batch in batches {
        let batch = batch?;
        let taken = batch.num_rows().min(limit - shown.rows.len());
        shown.add(&batch.slice(0, taken)).map_err(|error| unwritable_error(&error))?;
        more += (batch.num_rows() - taken) as u64;
    }
    shown.write(width, streams)?;
    if more > 0 {
        writeln!(streams.stdout, "\n… and {}; -n 0 shows all", counted(more, "more row"))?;
    }
    Ok(())
}

/// A text table in memory.
struct TextTable {
    heads: Vec<String>,
    is_number: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    fn add(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let options = FormatOptions::new().with_null("—").with_display_error(true);
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            self.rows.push(columns.iter().map(|column| printable(&column.value(row).to_string())).collect());
        }
        Ok(())
    }

    /// Distributes `width` characters over the columns by narrowing text columns, the widest first. The result has
    /// fewer columns if there is no room for the last ones.
    fn widths(&self, width: Option<usize>) -> Vec<usize> {
        let longest = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(self.heads[column].chars().count())
        };
        let mut widths: Vec<usize> = (0..self.heads.len()).map(longest).collect();
        let Some(width) = width else { return widths };
        let shortest = |column: usize| MIN_TEXT_WIDTH.max(self.heads[column].chars().count());
        let all = |widths: &[usize]| widths.iter().sum::<usize>() + widths.len() * COLUMN_GAP;
        while all(&widths) > width {
            let can_shrink = |&column: &usize| !self.is_number[column] && widths[column] > shortest(column);
            let widest = (0..widths.len()).filter(can_shrink).max_by_key(|&column| widths[column]);
            match widest {
                Some(column) => widths[column] -= 1,
                None if widths.len() > 1 => drop(widths.pop()),
                None => break,
            }
        }
        widths
    }

    fn write(&self, width: Option<usize>, streams: &mut Streams<'_>) -> Result<(), CliError> {
        let widths = self.widths(width);
        let mut table = Table::new();
        table.load_style(
            TableStyle::new()
                .header_lines(ContentLineStyle::none())
                .header_separator(LineStyle::none().fill('─'))
                .content_lines(ContentLineStyle::none()),
        );
        let cells = |texts: &[String]| {
            let cell = |(column, text): (usize, &String)| {
                let cell = Cell::new(shorten_middle(text, widths[column]));
                if self.is_number[column] { cell.set_alignment(CellAlignment::Right) } else { cell }
            };
            texts.iter().take(widths.len()).enumerate().map(cell).collect::<Vec<_>>()
        };
        table.set_header(cells(&self.heads));
        for row in &self.rows {
            table.add_row(cells(row));
        }
        writeln!(streams.stdout, "{}", table.trim_fmt())?;
        if self.rows.is_empty() {
            writeln!(streams.stdout, "No rows.")?;
        }
        if widths.len() < self.heads.len() {
            let left_out = self.heads[widths.len()..].join(", ");
            writeln!(streams.stdout, "\nNo room for {left_out}; --wide shows all columns")?;
        }
        Ok(())
    }
}
