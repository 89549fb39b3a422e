//! Attributes of addresses.

use std::ffi::c_void;

use crate::call::{entries, put};
use crate::context::Context;
use crate::counters::Kind;
use crate::machine::machine;
use crate::status::{CuResult, Status};

entries! {
    fn cuPointerGetAttribute(value: *mut c_void, attribute: i32, address: u64) {
        let found = attribute_of(attribute, address)?;
        write(value, attribute, found)
    }

    fn cuPointerGetAttributes(count: u32, attributes: *mut i32, values: *mut *mut c_void, address: u64) {
        for index in 0..count as usize {
            let attribute = crate::call::get(attributes.wrapping_add(index))?;
            let place = crate::call::get(values.wrapping_add(index))?;
            // All attributes of an address that the driver does not know are zero; this is not an error here.
            write(place, attribute, attribute_of(attribute, address).unwrap_or(0))?;
        }
        Ok(())
    }
}

/// Returns an attribute of an address, by its number in `CUpointer_attribute`.
fn attribute_of(attribute: i32, address: u64) -> CuResult<u64> {
    let machine = machine()?;
    let area = machine.area_of(address).ok_or(Status::INVALID_VALUE)?;
    let (start, block) = machine.area(area).block_around(address).ok_or(Status::INVALID_VALUE)?;
    let is_host = area == machine.devices();
    Ok(match attribute {
        1 => Context::current()?.handle().addr() as u64,
        2 => {
            if is_host {
                1
            } else {
                2
            }
        }
        3 => address,
        4 if is_host || block.kind == Kind::Managed => address,
        8 => u64::from(block.kind == Kind::Managed),
        9 => {
            if is_host {
                0
            } else {
                area as u64
            }
        }
        11 => start,
        12 => block.bytes,
        13 => 1,
        _ => return Err(Status::INVALID_VALUE),
    })
}

fn write(place: *mut c_void, attribute: i32, value: u64) -> CuResult {
    match attribute {
        // Types and ordinals are ints; flags are bytes that callers declare as ints or bools.
        2 | 9 => put(place.cast(), value as i32),
        8 | 13 => put(place.cast(), value as u8),
        _ => put(place.cast(), value),
    }
}
