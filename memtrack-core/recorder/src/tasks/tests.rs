use super::table::Shard;
use memtrack_model::event::TaskId;
use memtrack_model::snapshot::Task;

fn task(number: u64) -> Task {
    Task { id: TaskId::new(2, number), begun_ticks: number, ..Task::default() }
}

fn numbers(shard: &Shard) -> Vec<u64> {
    let mut numbers: Vec<u64> = shard.rows().iter().map(|row| row.id.number()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn rows_of_running_tasks_stay_and_those_that_ended_first_go_first() {
    let mut shard = Shard::new(4);
    let rows: Vec<u32> = (1..=4).map(|number| shard.begin(task(number)).unwrap()).collect();
    assert_eq!(shard.begin(task(5)), None);
    shard.end(rows[2], TaskId::new(2, 3), 10);
    shard.end(rows[0], TaskId::new(2, 1), 11);
    // Ended already.
    shard.end(rows[2], TaskId::new(2, 3), 12);
    assert_eq!(shard.begin(task(6)), Some(rows[2]));
    assert_eq!(numbers(&shard), [1, 2, 4, 6]);
    // The row belongs to another task by now.
    shard.end(rows[2], TaskId::new(2, 3), 13);
    assert_eq!(shard.begin(task(7)), Some(rows[0]));
    assert_eq!(numbers(&shard), [2, 4, 6, 7]);
    assert_eq!(shard.begin(task(8)), None);
}
