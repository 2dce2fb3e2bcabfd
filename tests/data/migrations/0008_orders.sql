-- A worker that is to end, and of which one lane is paused.
insert into orders (worker_id, lane, kind, instance_id, given_by, given_at)
values ('w1', 'codex', 'pause', null, 'user:ann', 16), ('w1', '', 'drain', 'i1', 'user:ann', 17);
