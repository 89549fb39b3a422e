//! The service without memtrack's allocator, for comparison.

mod service;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    service::serve("without", "")
}
