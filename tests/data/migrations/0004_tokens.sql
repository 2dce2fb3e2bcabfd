-- Rows that only step 4 allows.
insert into tokens (id, name, hash, scopes, worker, created_by, created_at, last_used, revoked_at,
    revoked_by)
values ('k1', 'desk', 'aa', 'work:claim memory:read feed:read', 'desk', 'user:ann', 10, 11, null,
        null),
    ('k2', 'old', 'bb', 'admin', null, 'site', 10, null, 12, 'user:ann');
update workers set token_id = 'k1' where id = 'w1';
