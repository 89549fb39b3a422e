//! Programs people would really write with memtrack; each lies in `src/bin`.
