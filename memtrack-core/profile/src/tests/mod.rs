//! Tests the whole analysis on programs that are small enough for their results to be computed by hand.

mod advice;
mod damage;
mod passes;
mod program;
mod reading;
mod recorded;
mod snapshot;
mod stated;
mod vector;
mod writing;
