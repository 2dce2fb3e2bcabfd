-- Tokens, by their SHA-256 alone. They stay: a revoked one says who had it.
create table tokens (
    id text primary key,
    name text not null,
    hash text not null unique,
    -- Words, with a blank between them.
    scopes text not null,
    -- The name of the worker it speaks for.
    worker text,
    created_by text not null,
    created_at bigint not null,
    last_used bigint,
    revoked_at bigint,
    revoked_by text,
    check ((revoked_at is null) = (revoked_by is null))
);

-- The token that the worker's present instance registered with; null for the site's own user.
alter table workers add column token_id text references tokens (id);
