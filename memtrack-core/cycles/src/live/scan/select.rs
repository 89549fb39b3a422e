//! Selects the reported values: unreachable values from which device memory can be reached, other values that also
//! hold that memory, and the values that the options request.

use super::super::handles::ForgottenHandles;
use super::table::{HELD, MEMORY, Table};
use crate::findings::components::Components;
use std::collections::VecDeque;

/// Returns, for each value, whether it is reported.
pub(super) fn select(
    table: &Table,
    unreachable: &[u32],
    forgotten: &[ForgottenHandles],
    options: &super::Scan,
) -> Vec<bool> {
    let mut keep = vec![options.everything; table.len()];
    if options.everything {
        return keep;
    }
    let mut wanted = vec![false; table.len()];
    for &place in unreachable {
        wanted[place as usize] = true;
        for &target in table.targets_of(place).iter().filter(|&&target| table.has(target, HELD)) {
            let leads_there: Vec<u32> =
                table.targets_of(target).iter().copied().filter(|&next| table.has(next, MEMORY)).collect();
            if table.has(target, MEMORY) || !leads_there.is_empty() {
                wanted[target as usize] = true;
                leads_there.into_iter().for_each(|next| wanted[next as usize] = true);
            }
        }
    }
    if options.live_cycles {
        let on_cycles = find_on_cycles(table);
        let mut waiting: Vec<u32> =
            (0..table.len() as u32).filter(|&place| on_cycles[place as usize]).collect();
        waiting.iter().for_each(|&place| wanted[place as usize] = true);
        while let Some(place) = waiting.pop() {
            for &target in table.targets_of(place) {
                if !std::mem::replace(&mut wanted[target as usize], true) {
                    waiting.push(target);
                }
            }
        }
    }
    keep_leading_to_memory(table, &wanted, &mut keep);
    for each in forgotten {
        find_path_to_memory(table, each.place).into_iter().for_each(|place| keep[place as usize] = true);
    }
    keep
}

/// Keeps the wanted values from which device memory can be reached through wanted values only.
fn keep_leading_to_memory(table: &Table, wanted: &[bool], keep: &mut [bool]) {
    // The referrers of all values, as one list sorted by the values that they refer to.
    let mut starts = vec![0_u32; table.len() + 1];
    let pointers = || {
        let from = (0..table.len() as u32).filter(|&place| wanted[place as usize]);
        let to = |from| table.targets_of(from).iter().map(move |&target| (from, target));
        from.flat_map(to).filter(|&(_, target)| wanted[target as usize])
    };
    pointers().for_each(|(_, target)| starts[target as usize + 1] += 1);
    for place in 0..table.len() {
        starts[place + 1] += starts[place];
    }
    let mut next = starts.clone();
    let mut referrers = vec![0_u32; starts[table.len()] as usize];
    for (from, target) in pointers() {
        referrers[next[target as usize] as usize] = from;
        next[target as usize] += 1;
    }
    let holds_memory = |&place: &u32| wanted[place as usize] && table.has(place, MEMORY);
    let mut waiting: Vec<u32> = (0..table.len() as u32).filter(holds_memory).collect();
    waiting.iter().for_each(|&place| keep[place as usize] = true);
    while let Some(place) = waiting.pop() {
        let (begin, end) = (starts[place as usize] as usize, starts[place as usize + 1] as usize);
        for &from in &referrers[begin..end] {
            if !std::mem::replace(&mut keep[from as usize], true) {
                waiting.push(from);
            }
        }
    }
}

/// Returns the values on a shortest path from a value to device memory, or only the value itself if there is no path.
pub(super) fn find_path_to_memory(table: &Table, place: u32) -> Vec<u32> {
    let mut come_from = foldhash::HashMap::default();
    come_from.insert(place, place);
    let mut waiting = VecDeque::from([place]);
    while let Some(next) = waiting.pop_front() {
        if table.has(next, MEMORY) {
            let mut path = vec![next];
            let mut at = next;
            while at != place {
                at = come_from[&at];
                path.push(at);
            }
            return path;
        }
        for &target in table.targets_of(next) {
            come_from.entry(target).or_insert_with(|| {
                waiting.push_back(target);
                next
            });
        }
    }
    vec![place]
}

/// Returns, for each value, whether it is on a cycle.
fn find_on_cycles(table: &Table) -> Vec<bool> {
    let pointers =
        |place: u32| table.starts[place as usize] as usize..table.starts[place as usize + 1] as usize;
    let components = Components::find_components(table.len(), pointers, |at| Some(table.targets[at]));
    let members = components.members();
    let mut result = vec![false; table.len()];
    for component in 0..components.count {
        let places = members.nodes_of(component);
        let is_cycle = places.len() > 1 || table.targets_of(places[0]).contains(&places[0]);
        places.iter().for_each(|&place| result[place as usize] = is_cycle);
    }
    result
}
