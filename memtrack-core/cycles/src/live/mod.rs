//! The running program: what is registered, and scans of it.
