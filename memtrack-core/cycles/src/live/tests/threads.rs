//! threads
