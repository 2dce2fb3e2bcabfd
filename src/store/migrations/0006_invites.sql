-- Codes that are traded for a worker's token, once; by their SHA-256 alone.
create table invites (
    hash text primary key,
    -- The name of the worker it is for; null for a name that nobody has.
    worker text,
    created_by text not null,
    created_at bigint not null,
    expires_at bigint not null,
    -- The token it was traded for.
    token_id text references tokens (id)
);
