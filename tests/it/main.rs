//! Everything that needs more than one room: one binary, one module a subject.
