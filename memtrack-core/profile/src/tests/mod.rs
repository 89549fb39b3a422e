//! Tests of the whole analysis on programs that are small enough to compute the results by hand.

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
