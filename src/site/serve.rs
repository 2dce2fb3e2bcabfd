//! The site over TCP, for other machines.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::caller::Door;
use super::owner::OwnerError;
use super::router::router;
use super::state::Site;

/// Takes the address, so that a second site on it is told before anything else happens.
pub(super) async fn bind(addr: SocketAddr) -> Result<TcpListener, OwnerError> {
    TcpListener::bind(addr).await.map_err(|cause| OwnerError::Address { addr, cause })
}

/// Serves until `closing`, then lets what is under way go on to its end.
pub(super) async fn serve(listener: TcpListener, site: Arc<Site>, closing: CancellationToken) {
    let router = router(site, Door::Network);
    let served = axum::serve(listener, router).with_graceful_shutdown(closing.cancelled_owned());
    if let Err(error) = served.await {
        tracing::error!(%error, "the address is no longer served");
    }
}
