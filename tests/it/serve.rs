//! The site over TCP, as strangers and other machines meet it.

mod abuse;
mod answers;
mod input;
mod net;
mod stop;
mod versions;
