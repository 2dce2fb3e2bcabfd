-- A task that was lost with its worker, so that later steps run over data.
insert into tasks (id, slug, number, lane, state, title, body, asked_by, seen_at, asked_at,
    created_at, updated_at, epoch, deaths_from, stop_reason)
values ('acme/shop#4', 'acme/shop', 4, 'claude', 'failed', 't', 'b', 'ann', 5, 5, 5, 9, 2, 1,
        '{"reason":"quarantined"}');
insert into runs (id, task_id, epoch, worker_id, instance_id, claim_id, claimed_at, finished_at,
    ended_by, outcome, stop_reason, death)
values ('r3', 'acme/shop#4', 2, 'w1', 'i1', 'c2', 6, 9, 'expiry', 'released',
    '{"reason":"lease_lost"}', 'quick');
