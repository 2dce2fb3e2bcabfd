-- Rows that only step 6 allows.
insert into invites (hash, worker, created_by, created_at, expires_at, token_id)
values ('cc', 'desk', 'user:ann', 13, 14, 'k1'), ('dd', null, 'user:ann', 13, 14, null);
