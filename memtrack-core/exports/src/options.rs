//! The parts of a snapshot that an export has.

use memtrack_blocks::moment::Moment;
use memtrack_frames::ownership::Rules;
use memtrack_model::Snapshot;
use memtrack_model::event::DeviceId;

/// The parts of a snapshot to write.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// The devices, each with the moment whose live memory is exported. Exports whose content does not depend on a
    /// moment ([`Export::depends_on_moment`](crate::Export::depends_on_moment)) ignore the moment.
    pub devices: Vec<(DeviceId, Moment)>,
    /// The code ownership rules, for exports that distinguish the user's code from framework code.
    pub rules: Rules,
}

impl ExportOptions {
    /// Selects all devices of `snapshot`, each at its peak, with the built-in rules.
    pub fn of(snapshot: &Snapshot) -> Self {
        let devices = snapshot.device_ids().into_iter().map(|device| (device, Moment::Peak)).collect();
        Self { devices, rules: Rules::new() }
    }

    /// Selects only these devices, each with the moment whose live memory is exported.
    #[must_use]
    pub fn devices(self, devices: Vec<(DeviceId, Moment)>) -> Self {
        Self { devices, ..self }
    }

    /// Sets the code ownership rules.
    #[must_use]
    pub fn rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    pub(crate) fn device_ids(&self) -> Vec<DeviceId> {
        self.devices.iter().map(|&(device, _)| device).collect()
    }
}
