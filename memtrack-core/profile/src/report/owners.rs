//! Finds the module that a storage belongs to, whether as a parameter, a gradient, a buffer or optimizer
//! state.

use crate::analysis::{Profile, Role};
use crate::places::{ModuleId, Places};
use memtrack_model::optrace::RecordKind;

/// The module that owns each storage.
pub(super) struct Owners(Vec<Option<ModuleId>>);

impl Owners {
    pub(super) fn of(profile: &Profile<'_>, places: &Places) -> Self {
        let mut owners = Self(vec![None; profile.storages().len()]);
        for (number, record) in (0..).zip(&profile.trace().records) {
            if matches!(record.what, RecordKind::Module(_)) {
                // A parameter shared by several modules belongs to the one that was called first.
                for (_, storage) in profile.references(number) {
                    owners.add(storage, places.called_module(number));
                }
            }
        }
        for (number, record) in (0..).zip(&profile.trace().records) {
            if matches!(record.what, RecordKind::Optimizer(_) | RecordKind::Grad { .. }) {
                // Gradients and states belong to the module of the parameter before them.
                let mut module = None;
                for (role, storage) in profile.references(number) {
                    match role {
                        Role::Parameter | Role::Differentiated => {
                            module = storage.and_then(|param| owners.module(param));
                        }
                        _ => owners.add(storage, module),
                    }
                }
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
