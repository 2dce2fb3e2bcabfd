//! The only room that knows axum: the owner, its router, the bell and the run logs.
