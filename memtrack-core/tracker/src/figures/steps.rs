//! Draws a series as a step line on whole pixels, because a counter keeps its value until the next operator. However
//! many samples fall into one pixel column, they become at most four points (first, lowest, highest and last). A figure
//! of a million operators is therefore no larger than one of a thousand, and no peak is lost.

use memtrack_figures::{Axis, Point};

/// The samples that fall into one pixel column.
struct Column {
    x: i32,
    first: i32,
    lowest: i32,
    highest: i32,
    last: i32,
}

/// Returns the lines that make up a series. There are several if values that cannot be drawn leave gaps. `at` converts
/// positions on the two axes (from 0 to 1) to a point.
pub(super) fn step_lines(
    values: impl Iterator<Item = f64>,
    calls: &Axis,
    memory: &Axis,
    at: impl Fn(f64, f64) -> Point,
) -> Vec<Vec<Point>> {
    let mut lines = Vec::new();
    let mut line: Vec<Point> = Vec::new();
    let mut column: Option<Column> = None;
    let mut count = 0;
    for (index, value) in values.enumerate() {
        count = index + 1;
        let height = if is_drawable(value) { memory.position(value) } else { 0.0 };
        let (x, y) = at(calls.position(index as f64), height);
        if !is_drawable(value) {
            end_column(&mut line, column.take(), x);
            lines.push(std::mem::take(&mut line));
            continue;
        }
        match &mut column {
            Some(column) if column.x == x => {
                column.lowest = column.lowest.max(y);
                column.highest = column.highest.min(y);
                column.last = y;
            }
            open => {
                end_column(&mut line, open.take(), x);
                *open = Some(Column { x, first: y, lowest: y, highest: y, last: y });
            }
        }
    }
    let (x, _) = at(calls.position(count as f64), 0.0);
    end_column(&mut line, column, x);
    lines.push(line);
    lines.retain(|line| line.len() > 1);
    lines
}

/// Returns whether a value can be drawn on an axis.
pub(super) fn is_drawable(mib: f64) -> bool {
    mib.abs() < 1e300
}

/// Ends a column by appending its points and the step to the column at `x`.
fn end_column(line: &mut Vec<Point>, column: Option<Column>, x: i32) {
    let Some(column) = column else { return };
    for y in [column.first, column.lowest, column.highest, column.last] {
        push_point(line, (column.x, y));
    }
    push_point(line, (x, column.last));
}

/// Appends a point. A point that only extends a horizontal line replaces the end of that line.
fn push_point(line: &mut Vec<Point>, point: Point) {
    match line[..] {
        [.., last] if last == point => {}
        [.., before, last] if before.1 == last.1 && last.1 == point.1 => {
            let end = line.len() - 1;
            line[end] = point;
        }
        _ => line.push(point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(values: &[f64], width: f64) -> Vec<Vec<Point>> {
        let memory = Axis { from: 0.0, to: 10.0, ticks: Vec::new() };
        let calls = Axis::of_calls(values.len());
        step_lines(values.iter().copied(), &calls, &memory, |x, y| {
            ((x * width) as i32, 10 - (y * 10.0) as i32)
        })
    }

    #[test]
    fn counter_keeps_its_value_until_next_operator() {
        assert_eq!(draw(&[1.0, 1.0, 3.0], 30.0), [[(0, 9), (20, 9), (20, 7), (30, 7)]]);
    }

    #[test]
    fn no_peak_is_lost_among_many_samples() {
        let mut values = vec![1.0; 1_000_000];
        values[654_321] = 9.0;
        let lines = draw(&values, 100.0);
        assert!(lines[0].contains(&(65, 1)));
        assert!(lines[0].len() < 500);
    }

    #[test]
    fn nan_leaves_gap() {
        let lines = draw(&[1.0, f64::NAN, f64::INFINITY, 2.0], 4.0);
        assert_eq!(lines, [[(0, 9), (1, 9)], [(3, 8), (4, 8)]]);
        assert_eq!(draw(&[], 4.0), Vec::<Vec<Point>>::new());
    }
}
