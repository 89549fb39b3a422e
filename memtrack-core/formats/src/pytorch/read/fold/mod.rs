//! Folding, which turns a dictionary into a row of a table as soon as it is complete.

pub(super) mod event;
pub(super) mod numbers;
pub(super) mod repeated;
pub(super) mod rows;
pub(super) mod settle;
pub(super) mod shapes;
pub(super) mod stack;
