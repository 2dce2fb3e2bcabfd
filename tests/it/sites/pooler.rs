//! Something in front of the server that keeps what it tells by itself, as a pooler does that
//! lends a connection for one transaction.

use std::net::SocketAddr;

use relay::queue::StoreError;
use relay::site::owner::OwnerError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::pair::site;
use crate::support::postgres::Database;

/// Listens for one database's clients and passes everything on but notifications.
async fn pooler(server: String) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let addr = listener.local_addr().expect("it");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.expect("the server");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                // The answer to the question for TLS is one letter without a length.
                let mut first = [0; 1];
                from_server.read_exact(&mut first).await?;
                let mut kind = first[0];
                if kind == b'N' {
                    to_client.write_all(&first).await?;
                    kind = from_server.read_u8().await?;
                }
                loop {
                    let length = from_server.read_u32().await?;
                    let mut rest = vec![0; length as usize - 4];
                    from_server.read_exact(&mut rest).await?;
                    if kind != b'A' {
                        to_client.write_u8(kind).await?;
                        to_client.write_u32(length).await?;
                        to_client.write_all(&rest).await?;
                    }
                    kind = from_server.read_u8().await?;
                }
                #[expect(unreachable_code, reason = "it gives the block its type")]
                Ok::<_, std::io::Error>(())
            });
        }
    });
    addr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_site_that_would_not_hear_the_others_does_not_start() {
    let Some(database) = Database::new().await else { return };
    let (before, name) = database.url.rsplit_once('/').expect("a database");
    let (login, server) = before.rsplit_once('@').expect("a login");
    let addr = pooler(server.to_owned()).await;
    let url = format!("{login}@{addr}/{name}");
    let error = site(&url, true).await.map(|_| ()).expect_err("it started");
    assert!(
        matches!(&error, OwnerError::Store(StoreError::Deaf { .. }))
            || matches!(&error, OwnerError::Queue(_)),
        "{error:?}"
    );
    assert!(error.to_string().contains("does not pass on what one site tells another"), "{error}");
    let hint = error.hint().expect("a hint");
    assert!(hint.contains("not a pooler in front of it"), "{hint}");
    // What was taken is let go of, and alone it needs no such thing.
    let one = site(&url, false).await.expect("a site");
    one.owner.close().await;
}
