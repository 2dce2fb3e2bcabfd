//! The contract of process lanes: real programs that keep it or break it, the schemas that tell
//! it, and whole runs.

mod answers;
mod ends;
mod program;
mod schema;
mod whole;
