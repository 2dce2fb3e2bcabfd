//! The site's API as functions, over HTTP: a URL or a unix socket.
