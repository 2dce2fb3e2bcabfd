-- What people told a worker and still holds.
create table orders (
    worker_id text not null references workers (id),
    -- Empty where it is for every lane.
    lane text not null,
    kind text not null check (kind in ('pause', 'drain')),
    -- The start of the worker that is to end; null for a pause, which outlives it.
    instance_id text,
    given_by text not null,
    given_at bigint not null,
    primary key (worker_id, lane, kind),
    check ((kind = 'drain') = (instance_id is not null)),
    check (kind = 'pause' or lane = '')
);
