-- One row in each table after step 1, so that later steps run over data.
insert into projects (slug, forge, host, remote, default_branch, linked_at)
values ('acme/shop', 'github', 'github.com', 'https://github.com/acme/shop.git', 'main', 1),
    ('local/scratch', 'local', 'desk', '/srv/scratch', 'master', 2);
insert into workers (id, name, instance_id, host, version, registered_at, last_seen)
values ('w1', 'desk', 'i1', 'desk', '0.1.0', 3, 4);
insert into worker_traits (worker_id, kind, value)
values ('w1', 'lane', 'claude'), ('w1', 'label', 'gpu'), ('w1', 'forge', 'github.com');
insert into tasks (id, slug, number, lane, state, title, body, asked_by, seen_at, asked_at,
    created_at, updated_at, epoch, worker_id, claim_id, expires_at, parked_until)
values ('acme/shop#1', 'acme/shop', 1, 'claude', 'queued', 't', 'b', 'ann', 5, 5, 5, 5, 0,
        null, null, null, null),
    ('acme/shop#2', 'acme/shop', 2, 'claude', 'running', 't', 'b', 'ann', 5, 5, 5, 6, 1,
        'w1', 'c1', 99, null),
    ('acme/shop#3', 'acme/shop', 3, 'claude', 'parked', 't', 'b', 'ann', 5, 5, 5, 6, 1,
        null, null, null, 99);
insert into runs (id, task_id, epoch, worker_id, instance_id, claim_id, claimed_at, finished_at,
    ended_by, outcome, stop_reason)
values ('r1', 'acme/shop#2', 1, 'w1', 'i1', 'c1', 6, null, null, null, null),
    ('r2', 'acme/shop#3', 1, 'w1', 'i1', 'c0', 6, 7, 'worker', 'failed', '{"reason":"crashed"}');
insert into effects (task_id, epoch, kind, body, recorded_at)
values ('acme/shop#2', 1, 'commented', '{"effect":"commented","id":"9"}', 7);
insert into events (at, kind, actor, task_id, data)
values (5, 'task.queued', 'user:ann', 'acme/shop#1', '{}');
insert into usage (run_id, task_id, lane, worker_id, at, output_tokens)
values ('r2', 'acme/shop#3', 'claude', 'w1', 7, 12);
insert into preferences (key, slug, lane, rank, value, set_by, set_at)
values ('lane.labels', 'acme/shop', '', 2, 'gpu', 'user:ann', 8);
insert into preference_labels (slug, lane, rank, label) values ('acme/shop', '', 2, 'gpu');
insert into local_pulls (task_id, number, title, body, branch, base, head, diff, updated_at)
values ('acme/shop#2', 2, 't', 'b', 'relay/claude-2', 'main', 'abc', 'diff', 9);
