//! The network between a site and its database, which can be cut and mended.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Wire {
    /// The database as it is reached over this wire.
    pub url: String,
    whole: watch::Sender<bool>,
}

impl Wire {
    pub async fn to(database: &str) -> Self {
        let (before, name) = database.rsplit_once('/').expect("a database");
        let (login, server) = before.rsplit_once('@').expect("a login");
        let (server, whole) = (server.to_owned(), watch::Sender::new(true));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("{login}@{}/{name}", listener.local_addr().expect("it"));
        let state = whole.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, mut state) = (server.clone(), state.subscribe());
                tokio::spawn(async move {
                    if !*state.borrow() {
                        return;
                    }
                    let mut server = TcpStream::connect(server).await.expect("the server");
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = state.wait_for(|whole| !whole) => {}
                    }
                });
            }
        });
        Self { url, whole }
    }

    /// Ends every connection, and lets none through.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}
