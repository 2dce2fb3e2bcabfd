//! The worker: its loop, its heartbeats, and the job with its steps.
