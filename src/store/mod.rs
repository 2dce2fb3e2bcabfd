//! The only room that knows sqlx: migrations and the statements, each in the method that uses it.
