//! Finds the module that a storage belongs to, whether as a parameter, a gradient, a buffer or optimizer
//! state.

use crate::analysis::Profile;
use crate::places::{ModuleId, Places};
use memtrack_model::optrace::RecordKind;

/// The module that owns each storage.
pub(super) struct Owners(Vec<Option<ModuleId>>);

impl Owners {
    pub(super) fn of(profile: &Profile<'_>, places: &Places) -> Self {
        let mut owners = vec![None; profile.storages().len()];
        for (number, record) in (0..).zip(&profile.trace().records) {
            if !matches!(record.what, RecordKind::Module(_)) {
                continue;
            }
            for (_, storage) in profile.references(number) {
                if let Some(storage) = storage {
                    // A parameter shared by several modules belongs to the one that was called first.
                    owners[storage as usize] = owners[storage as usize].or(places.called_module(number));
                }
            }
        }
        let mut owners = Self(owners);
        for (number, record) in (0..).zip(&profile.trace().records) {
            let mut references = profile.references(number).into_iter().map(|(_, storage)| storage);
            match &record.what {
                RecordKind::Optimizer(optimizer) => {
                    for param in &optimizer.params {
                        let module = references.next().flatten().and_then(|param| owners.module(param));
                        let count = usize::from(param.grad.is_some()) + param.state.len();
                        references.by_ref().take(count).for_each(|storage| owners.add(storage, module));
                    }
                }
                RecordKind::Grad { param: Some(_), .. } => {
                    let module = references.next().flatten().and_then(|param| owners.module(param));
                    owners.add(references.next().flatten(), module);
                }
                _ => {}
            }
        }
        owners
    }

    fn add(&mut self, storage: Option<u32>, module: Option<ModuleId>) {
        if let Some(storage) = storage {
            let slot = &mut self.0[storage as usize];
            *slot = slot.or(module);
        }
    }

    pub(super) fn module(&self, storage: u32) -> Option<ModuleId> {
        self.0.get(storage as usize).copied().flatten()
    }
}
