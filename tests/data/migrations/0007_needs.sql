-- A task that only step 7 looks up by its project.
insert into tasks (id, slug, number, lane, state, title, body, asked_by, seen_at, asked_at,
    created_at, updated_at)
values ('acme/shop#5', 'acme/shop', 5, 'codex', 'queued', 't', 'b', 'ann', 15, 15, 15, 15);
