//! Keeps track of the order of events in the traces.

/// The event rows in the table, in the order of the traces.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The number of rows at the start that are in place. Usually, this is all of them.
    in_place: u32,
    /// All rows in order. The list is empty until a row arrives out of place.
    rows: Vec<u32>,
}

impl Order {
    /// Appends a row.
    pub(crate) fn push(&mut self, row: u32) {
        if self.rows.is_empty() {
            if row == self.in_place && row != u32::MAX {
                self.in_place += 1;
                return;
            }
            self.rows.extend(0..self.in_place);
        }
        self.rows.push(row);
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        if self.rows.is_empty() { self.in_place as usize } else { self.rows.len() }
    }

    /// Returns whether the traces contain all `length` rows of the table in the table's order.
    pub(crate) fn is_order_of_table(&self, length: usize) -> bool {
        self.rows.is_empty() && self.in_place as usize == length
    }

    /// Returns the rows.
    pub(crate) fn into_rows(self) -> Vec<u32> {
        if self.rows.is_empty() { (0..self.in_place).collect() } else { self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_stored_only_when_they_are_out_of_place() {
        let mut order = Order::default();
        assert!(order.is_order_of_table(0));
        (0..3).for_each(|row| order.push(row));
        assert!(order.is_order_of_table(3) && !order.is_order_of_table(4) && order.rows.is_empty());
        order.push(1);
        order.push(4);
        assert!(!order.is_order_of_table(5));
        assert_eq!((order.len(), order.into_rows()), (5, vec![0, 1, 2, 1, 4]));
        let mut late = Order::default();
        late.push(2);
        assert_eq!((late.len(), late.into_rows()), (1, vec![2]));
    }
}
