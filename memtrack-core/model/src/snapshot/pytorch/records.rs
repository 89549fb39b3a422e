//! Dictionaries of one kind as a table. Each record has a [`Shape`] (its keys, in order). The values of its keys are in
//! columns; values that do not fit in their column are kept unchanged, as [`ExactValue`]s.

use super::{Key, Kind};
use crate::event::StackId;
use crate::snapshot::{StringId, Value};
use std::ops::Range;

/// The maximum number of distinct pools in a column. Real files have only a handful. Any further pools are kept as
/// [`ExactValue`]s.
const MAX_POOLS: usize = 256;

/// The keys of a record, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The keys. A known key is a string of the vocabulary.
    pub keys: Box<[Value]>,
    /// Bit `Key as u8` is set for each known key.
    mask: u64,
}

impl Shape {
    /// Creates a shape with these keys.
    pub fn new(keys: Vec<Value>) -> Self {
        let mask = keys.iter().filter_map(known).fold(0, |mask, key| mask | 1 << key as u8);
        Self { keys: keys.into(), mask }
    }

    /// Creates a shape with known keys.
    pub fn of(keys: &[Key]) -> Self {
        Self::new(keys.iter().map(|key| Value::Str(key.id())).collect())
    }

    /// Returns whether the record has this key.
    #[inline]
    pub fn has(&self, key: Key) -> bool {
        self.mask >> key as u8 & 1 == 1
    }

    /// Returns whether the record has a key whose bit is set in `mask`.
    #[inline]
    pub fn has_any(&self, mask: u64) -> bool {
        self.mask & mask != 0
    }
}

/// Returns the known key that equals `key`, if there is one.
pub fn known(key: &Value) -> Option<Key> {
    match key {
        Value::Str(id) => Key::of(*id),
        _ => None,
    }
}

/// A column that is as wide as its kind requires.
#[derive(Clone, Debug, PartialEq)]
enum Column {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

/// A value that does not fit in its column, or that has no column.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactValue {
    /// The row of the record.
    pub row: u32,
    /// The position of the value's key in the record's shape.
    pub place: u16,
    /// The value.
    pub value: Value,
}

/// Dictionaries of one kind, by row.
///
/// **Representation.** `shape[row]` determines which keys a record has and in which order; a key that is missing from
/// the file is missing from the shape. All values of a known key are in one column. The column is created with the
/// first row that has the key, and is 0 for rows without it. A column contains the nearest number of its kind (an
/// integer as unsigned 64 bits, a string as its id). If that is not exact (for a float, a negative size, `None` or
/// 2^80), the exact value is an [`ExactValue`], and the column contains 0 or the result of Python's `int` for it.
/// Reports therefore read columns, while writers and other code that must be exact use [`Self::value`], which searches
/// for an [`ExactValue`] first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The distinct shapes.
    pub shapes: Vec<Shape>,
    /// The shape of each record.
    pub shape: Vec<u32>,
    /// The columns that exist, by key. There are at most as many as there are keys.
    columns: Vec<(Key, Column)>,
    /// The values that do not fit in their columns or have no column, sorted by row and position.
    pub exact: Vec<ExactValue>,
    /// The pools that pool columns refer to. Pool 0 is (0, 0) once there is any pool.
    pub pools: Vec<(u64, u64)>,
}

impl Records {
    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }

    /// Returns the shape of a record.
    ///
    /// # Panics
    /// Panics when `row` is not below [`Self::len`].
    pub fn shape_of(&self, row: usize) -> &Shape {
        &self.shapes[self.shape[row] as usize]
    }

    /// Returns whether a record has this key; `false` for a row that does not exist.
    #[inline]
    pub fn has(&self, row: usize, key: Key) -> bool {
        self.shape.get(row).is_some_and(|&shape| self.shapes[shape as usize].has(key))
    }

    /// Returns the number in a column, or 0 if there is none.
    #[inline]
    pub fn number(&self, row: usize, key: Key) -> u64 {
        match self.columns.iter().find(|(name, _)| *name == key) {
            Some((_, Column::Wide(column))) => column.get(row).copied().unwrap_or(0),
            Some((_, Column::Narrow(column))) => column.get(row).map_or(0, |&narrow| narrow.into()),
            None => 0,
        }
    }

    /// Returns the string under `key`, or the empty string if there is none.
    pub fn text(&self, row: usize, key: Key) -> StringId {
        StringId(self.number(row, key) as u32)
    }

    /// Returns the stack under `key`, or the empty stack if there is none.
    pub fn stack(&self, row: usize, key: Key) -> StackId {
        StackId(self.number(row, key) as u32)
    }

    /// Returns the pool under `key`, or (0, 0) if there is none.
    pub fn pool(&self, row: usize, key: Key) -> (u64, u64) {
        self.pools.get(self.number(row, key) as usize).copied().unwrap_or_default()
    }

    /// Returns the pool under `key`, even if it is kept as an [`ExactValue`] (because there are many pools, its numbers
    /// are large, or it is a list). Returns `None` if the record contains no pool.
    pub fn named_pool(&self, row: usize, key: Key) -> Option<(u64, u64)> {
        if !self.has(row, key) {
            return None;
        }
        let Some(exact) = self.exact_under(row, key) else { return Some(self.pool(row, key)) };
        let (Value::Tuple(parts) | Value::List(parts)) = exact else { return None };
        let number = |value: &Value| value.as_i128().and_then(|number| u64::try_from(number).ok());
        match &parts[..] {
            [first, second] => Some((number(first)?, number(second)?)),
            _ => None,
        }
    }

    /// Returns the rows under `key` ([`Key::Blocks`]).
    pub fn rows(&self, row: usize, key: Key) -> Range<usize> {
        let packed = self.number(row, key);
        let start = (packed >> 32) as usize;
        start..start + (packed as u32) as usize
    }

    /// Returns the value at a position in a record's shape, if it is kept as an [`ExactValue`].
    pub fn exact_at(&self, row: usize, place: usize) -> Option<&Value> {
        let at =
            self.exact.binary_search_by_key(&(row, place), |exact| (exact.row as usize, exact.place.into()));
        at.ok().map(|at| &self.exact[at].value)
    }

    /// Returns all values of a record that are kept as [`ExactValue`]s.
    pub fn exact_values(&self, row: usize) -> &[ExactValue] {
        let start = self.exact.partition_point(|exact| (exact.row as usize) < row);
        let length = self.exact[start..].iter().take_while(|exact| exact.row as usize == row).count();
        &self.exact[start..start + length]
    }

    /// Returns the value under `key`, if it is kept as an [`ExactValue`] because it does not fit in its column.
    pub fn exact_under(&self, row: usize, key: Key) -> Option<&Value> {
        if self.exact.is_empty() || !self.has(row, key) {
            return None;
        }
        let place = self.shape_of(row).keys.iter().position(|name| known(name) == Some(key))?;
        self.exact_at(row, place)
    }

    /// Returns the exact value at a position in a record's shape, except for [`Kind::Rows`] and for events' own
    /// columns.
    pub fn value_at(&self, row: usize, place: usize) -> Option<Value> {
        if let Some(exact) = self.exact_at(row, place) {
            return Some(exact.clone());
        }
        let key = known(self.shape_of(row).keys.get(place)?)?;
        if !self.columns.iter().any(|(name, _)| *name == key) {
            return None;
        }
        let number = self.number(row, key);
        Some(match key.kind() {
            Kind::Unsigned => Value::integer(number.into()),
            Kind::Signed => Value::Int(number as i64),
            Kind::Flag => Value::Bool(number != 0),
            Kind::Text => Value::Str(StringId(number as u32)),
            Kind::Stack => Value::Stack(StackId(number as u32)),
            Kind::Pool => {
                let (first, second) = self.pool(row, key);
                let pair = [Value::integer(first.into()), Value::integer(second.into())];
                Value::Tuple(pair.into_iter().collect())
            }
            Kind::Rows | Kind::Other => return None,
        })
    }

    /// Returns the exact value under `key`, or `None` if the record has no such key.
    pub fn value(&self, row: usize, key: Key) -> Option<Value> {
        if !self.has(row, key) {
            return None;
        }
        let place = self.shape_of(row).keys.iter().position(|name| known(name) == Some(key))?;
        self.value_at(row, place)
    }

    /// Appends a record of this shape and returns its row. The caller then sets its columns.
    pub fn push(&mut self, shape: u32) -> usize {
        self.shape.push(shape);
        self.shape.len() - 1
    }

    /// Sets the number under `key` in `row`, creating the column if no earlier record has the key.
    #[inline]
    pub fn set(&mut self, row: usize, key: Key, number: u64) {
        let at = match self.column_of(key) {
            Some(at) => at,
            None => {
                let narrow = matches!(key.kind(), Kind::Flag | Kind::Text | Kind::Stack | Kind::Pool);
                let column = if narrow { Column::Narrow(Vec::new()) } else { Column::Wide(Vec::new()) };
                self.columns.push((key, column));
                self.columns.len() - 1
            }
        };
        self.set_column(row, at, number);
    }

    /// Returns the position of a key's column among the columns, which does not change. Returns `None` until a row has
    /// the key.
    #[inline]
    pub fn column_of(&self, key: Key) -> Option<usize> {
        self.columns.iter().position(|(name, _)| *name == key)
    }

    /// Sets the number in `row` of the column at `at`, which [`Self::column_of`] returned.
    #[inline]
    pub fn set_column(&mut self, row: usize, at: usize, number: u64) {
        // Earlier rows without the key contain 0.
        fn store<T: Copy + Default>(column: &mut Vec<T>, row: usize, number: T) {
            if column.len() < row {
                column.resize(row, T::default());
            }
            if column.len() == row { column.push(number) } else { column[row] = number }
        }
        match &mut self.columns[at].1 {
            Column::Narrow(column) => store(column, row, number as u32),
            Column::Wide(column) => store(column, row, number),
        }
    }

    /// Returns the number of a pool in [`Self::pools`], adding the pool if necessary, or `None` once there are too many
    /// to search.
    pub fn pool_number(&mut self, pool: (u64, u64)) -> Option<u64> {
        if let Some(found) = self.pools.iter().rposition(|&known| known == pool) {
            return Some(found as u64);
        }
        if self.pools.len() >= MAX_POOLS {
            return None;
        }
        if self.pools.is_empty() && pool != (0, 0) {
            self.pools.push((0, 0));
        }
        self.pools.push(pool);
        Some(self.pools.len() as u64 - 1)
    }

    /// Copies the records at `rows`, in that order. A row may occur several times or not at all.
    pub fn gather(&self, rows: &[u32]) -> Self {
        fn pick<T: Copy + Default>(column: &[T], rows: &[u32]) -> Vec<T> {
            rows.iter().map(|&row| column.get(row as usize).copied().unwrap_or_default()).collect()
        }
        let columns = self.columns.iter().map(|(key, column)| {
            let picked = match column {
                Column::Narrow(column) => Column::Narrow(pick(column, rows)),
                Column::Wide(column) => Column::Wide(pick(column, rows)),
            };
            (*key, picked)
        });
        let mut exact = Vec::new();
        for (to, &from) in rows.iter().enumerate() {
            exact.extend(
                self.exact_values(from as usize)
                    .iter()
                    .map(|exact| ExactValue { row: to as u32, ..exact.clone() }),
            );
        }
        Self {
            shapes: self.shapes.clone(),
            shape: pick(&self.shape, rows),
            columns: columns.collect(),
            exact,
            pools: self.pools.clone(),
        }
    }

    /// Returns the number of bytes of memory that the table takes, including an estimate for the [`ExactValue`]s.
    pub fn used_bytes(&self) -> u64 {
        let columns = self.columns.iter().map(|(_, column)| match column {
            Column::Narrow(column) => column.capacity() * 4,
            Column::Wide(column) => column.capacity() * 8,
        });
        let keys: usize = self.shapes.iter().map(|shape| shape.keys.len() * size_of::<Value>() + 32).sum();
        let rest = self.shape.capacity() * 4 + self.exact.capacity() * size_of::<ExactValue>();
        (columns.sum::<usize>() + rest + self.pools.capacity() * 16 + keys) as u64
    }
}
