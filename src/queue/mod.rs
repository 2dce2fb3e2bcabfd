//! What may happen to a task: add, claim, renew, start, record, finish, sweep, park, prefer.
