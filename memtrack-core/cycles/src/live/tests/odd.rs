//! odd
