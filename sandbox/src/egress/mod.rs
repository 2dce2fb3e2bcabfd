//! What a run may reach over the network: the hosts of its list, and of their addresses those
//! that are nobody's own. The proxy that holds runs to it is the worker's.

mod address;
mod allow;
mod vendors;

pub use address::{AddressKind, kind_of};
pub use allow::{AllowList, Destination, Grant, Host, NotAllowed};
pub use vendors::vendor_hosts;
