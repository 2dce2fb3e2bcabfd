//! The site over TCP, as strangers and other machines meet it.

mod abuse;
mod answers;
mod gone;
mod input;
mod net;
mod person;
mod stop;
mod versions;
