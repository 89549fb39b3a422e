//! Makes the tables of a file safe to follow: rows are indexed by id, parents lead to the root, and no id refers to a
//! missing row. `reader` calls this once per file; reports then follow ids without checks.

use memtrack_model::event::{ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::{Scope, Snapshot};

/// An id is treated as damage if it is at least this number plus 16 times the number of written rows.
const MAX_HOLES: usize = 1 << 16;
/// Scopes nested deeper than this are cut off from their outer scopes.
const MAX_SCOPE_DEPTH: u32 = 4096;

/// Returns the rows indexed by id, with the default for each missing row; row 0 always exists. Of two rows with the same
/// id, the later one is used. Counts the dropped rows. `room` is the number of rows that may still be missing in the tables of
/// all processes.
pub(super) fn index_by_id<T: Default>(rows: Vec<(u32, T)>, room: &mut usize, dropped: &mut u64) -> Vec<T> {
    let bound = MAX_HOLES.min(*room) + 16 * rows.len();
    let highest = rows.iter().map(|row| row.0 as usize).filter(|&id| id < bound).max().unwrap_or(0);
    *room = room.saturating_sub((highest + 1).saturating_sub(rows.len()));
    let mut table: Vec<T> = std::iter::repeat_with(T::default).take(highest + 1).collect();
    for (id, row) in rows {
        match table.get_mut(id as usize) {
            Some(place) => *place = row,
            None => *dropped += 1,
        }
    }
    table
}

/// Cuts cycles and excessive nesting, so that every scope's parents lead to "none" within [`MAX_SCOPE_DEPTH`] steps.
/// Visits each row once and counts the cuts.
pub(super) fn cut_scope_cycles(rows: &mut [Scope], cut: &mut u64) {
    const UNKNOWN: u32 = 0;
    const VISITING: u32 = u32::MAX;
    let mut depths = vec![UNKNOWN; rows.len()];
    if let Some(top) = rows.first_mut() {
        top.parent = ScopeId::NONE;
    }
    let mut path = Vec::new();
    for start in 1..rows.len() {
        // Follow the parents to the root or to a row with a known depth, or until the chain is too long.
        let mut at = start;
        while at != 0 && depths[at] == UNKNOWN && path.len() < MAX_SCOPE_DEPTH as usize {
            depths[at] = VISITING;
            path.push(at);
            at = rows[at].parent.index();
            if at >= rows.len() {
                at = 0;
                rows[path[path.len() - 1]].parent = ScopeId::NONE;
                *cut += 1;
            }
        }
        let mut depth = match (at, depths.get(at)) {
            (0, _) | (_, None) => 0,
            (_, Some(&UNKNOWN | &VISITING)) => MAX_SCOPE_DEPTH,
            (_, Some(&depth)) => depth,
        };
        while let Some(row) = path.pop() {
            if depth >= MAX_SCOPE_DEPTH {
                rows[row].parent = ScopeId::NONE;
                *cut += 1;
                depth = 0;
            }
            depth += 1;
            depths[row] = depth;
        }
    }
}

/// Replaces ids that are in no table with "none", and counts them.
pub(super) fn clear_dangling_ids(snapshot: &mut Snapshot, cleared: &mut u64) {
    let (stacks, scopes, threads) =
        (snapshot.stacks.len(), snapshot.scopes.rows.len(), snapshot.threads.len());
    let mut stack = |id: &mut StackId| {
        if id.index() >= stacks {
            *id = StackId::NONE;
            *cleared += 1;
        }
    };
    snapshot.events.stack.iter_mut().for_each(&mut stack);
    snapshot.blocks.iter_mut().for_each(|block| stack(&mut block.stack));
    snapshot.segments.iter_mut().for_each(|segment| stack(&mut segment.stack));
    let mut scope = |id: &mut ScopeId| {
        if id.index() >= scopes {
            *id = ScopeId::NONE;
            *cleared += 1;
        }
    };
    snapshot.events.scope.iter_mut().for_each(&mut scope);
    snapshot.blocks.iter_mut().for_each(|block| scope(&mut block.scope));
    snapshot.tasks.rows.iter_mut().for_each(|task| scope(&mut task.scope));
    let sums = snapshot.scope_sums.iter_mut().flat_map(|sums| &mut sums.rows);
    sums.for_each(|row| scope(&mut row.scope));
    let mark_threads = snapshot.marks.rows.iter_mut().map(|mark| &mut mark.thread);
    for thread in snapshot.events.thread.iter_mut().chain(mark_threads) {
        if thread.index() >= threads {
            *thread = ThreadId::NONE;
            *cleared += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(parents: &[u32]) -> Vec<Scope> {
        parents.iter().map(|&p| Scope { parent: ScopeId(p), ..Scope::default() }).collect()
    }

    fn steps_up(rows: &[Scope], mut at: usize) -> u32 {
        let mut steps = 0;
        while at != 0 {
            at = rows[at].parent.index();
            steps += 1;
            assert!(steps <= MAX_SCOPE_DEPTH);
        }
        steps
    }

    #[test]
    fn valid_table_is_unchanged() {
        let mut table = rows(&[0, 3, 1, 0, 2]);
        let (before, mut cut) = (table.clone(), 0);
        cut_scope_cycles(&mut table, &mut cut);
        assert_eq!((table, cut), (before, 0));
    }

    #[test]
    fn cycles_dangling_parents_and_endless_chains_are_cut() {
        let chain: Vec<u32> = std::iter::once(0).chain(0..20_000).collect();
        let backwards: Vec<u32> = std::iter::once(0).chain(2..20_000).chain([0]).collect();
        for parents in [vec![5, 1, 3, 4, 2, 99], vec![0, 2, 3, 1, 1], chain, backwards] {
            let mut table = rows(&parents);
            let mut cut = 0;
            cut_scope_cycles(&mut table, &mut cut);
            assert!(cut > 0 && (0..table.len()).all(|row| steps_up(&table, row) <= MAX_SCOPE_DEPTH));
        }
    }

    #[test]
    fn rows_are_stored_by_id_and_implausible_ids_are_dropped() {
        let mut dropped = 0;
        assert_eq!(
            index_by_id(vec![(3, 'c'), (1, 'a'), (u32::MAX, 'z')], &mut { usize::MAX }, &mut dropped),
            ['\0', 'a', '\0', 'c']
        );
        assert_eq!(dropped, 1);
    }
}
