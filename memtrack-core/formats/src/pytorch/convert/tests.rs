//! Tests that devices keep their numbers and names when a recording is converted to PyTorch's form.

use super::convert;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::DeviceStatistics;
use memtrack_model::{Frame, NameFrames, Snapshot};
use std::rc::Rc;

pub(crate) struct NoNames;

impl NameFrames for NoNames {
    fn frames(&mut self, key: u64) -> Rc<[Frame]> {
        [Frame { function: format!("{key:#x}"), ..Frame::default() }].into()
    }
}

fn with_devices(devices: &[DeviceId]) -> Snapshot {
    Snapshot { devices: devices.iter().copied().map(DeviceStatistics::of).collect(), ..Snapshot::default() }
}

#[test]
fn devices_keep_their_numbers_when_converted() {
    let both = [DeviceId(1), DeviceId::HOST, DeviceId::PINNED];
    for devices in [&both[..], &[DeviceId(0), DeviceId::PINNED], &[DeviceId::PINNED], &both[1..]] {
        let recorded = with_devices(devices);
        let converted = convert(&recorded, &mut NoNames);
        let numbers = |snapshot: &Snapshot| -> Vec<(String, u16)> {
            let devices = snapshot.device_ids().into_iter();
            let mut all: Vec<_> =
                devices.map(|id| (snapshot.device_name(id), snapshot.ordinal(id))).collect();
            all.sort();
            all
        };
        assert_eq!(numbers(&recorded), numbers(&converted));
    }
}

#[test]
fn devices_keep_their_names_when_converted() {
    let recorded = with_devices(&[DeviceId(0), DeviceId::PINNED, DeviceId::HOST]);
    let names = |snapshot: &Snapshot| -> Vec<String> {
        snapshot.device_ids().into_iter().map(|device| snapshot.device_name(device)).collect()
    };
    assert_eq!(names(&recorded), ["device 0", "pinned host memory", "host heap"]);
    let converted = convert(&recorded, &mut NoNames);
    assert_eq!(names(&converted), ["device 0", "host heap", "pinned host memory"]);
}
