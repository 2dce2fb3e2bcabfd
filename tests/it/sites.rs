//! Two sites on one Postgres. Their clocks stand still unless a test moves them, so what one does
//! at the other's word it does by what it was told, and not because it looked round.

mod gap;
mod news;
mod pair;
mod place;
mod pooler;
mod processes;
mod tokens;
mod watch;
mod wire;
