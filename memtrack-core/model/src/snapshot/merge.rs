//! Merge order: events of all threads by ticks. The reader sorts here once; whoever appends events from several
//! threads calls it before reports look at them.

use super::EventTable;

impl EventTable {
    /// Sorts the events by ticks; events of equal ticks keep their order, so each thread's own order is kept.
    pub fn sort_by_ticks(&mut self) {
        if self.ticks.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|&row| self.ticks[row]);
        // One column at a time, so that the extra memory is one column.
        fn sorted<T: Copy>(column: &mut Vec<T>, order: &[usize]) {
            *column = order.iter().map(|&row| column[row]).collect();
        }
        sorted(&mut self.ticks, &order);
        sorted(&mut self.address, &order);
        sorted(&mut self.size_bytes, &order);
        sorted(&mut self.stream, &order);
        sorted(&mut self.stack, &order);
        sorted(&mut self.scope, &order);
        sorted(&mut self.thread, &order);
        sorted(&mut self.device, &order);
        sorted(&mut self.action, &order);
        sorted(&mut self.flags, &order);
    }
}
