-- Rows that only step 3 allows.
update runs set kept = '/srv/relay/kept/acme_shop/relay-claude-3-0123456789ab.bundle'
where id = 'r2';
insert into preferences (key, slug, lane, rank, value, set_by, set_at)
values ('push.workflows', 'acme/shop', '', 2, 'allow', 'user:ann', 9);
