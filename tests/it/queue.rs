//! The queue's conformance suite: each test is a function of a bench, run on every database.

mod any_order;
pub(crate) mod bench;
mod budgets;
mod claims;
mod clock;
mod deaths;
mod leases;
mod long;
mod orders;
mod people;
mod pg;
mod recovery;
mod store;
mod together;
mod unanswered;
mod waiting;

/// Runs each named function as a test of its own on each database.
macro_rules! on_each_database {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::queue::bench::Bench::sqlite().await).await;
                }
            )*
        }

        mod pg_server {
            $(
                #[tokio::test]
                async fn $name() {
                    let Some(bench) = crate::queue::bench::Bench::postgres().await else { return };
                    super::$name(bench).await;
                }
            )*
        }
    };
}
pub(crate) use on_each_database;
