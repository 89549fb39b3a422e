//! Tests of the whole analysis, on programs small enough that the answers are known by hand.

mod advice;
mod damage;
mod passes;
mod program;
mod reading;
mod snapshot;
mod vector;
mod writing;
