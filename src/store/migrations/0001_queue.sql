-- Booleans are integers, ids are text, times are integers (milliseconds since 1970): so one text
-- serves SQLite and Postgres. Words in CHECK constraints repeat the closed enums of `model`.

create table projects (
    slug text primary key,
    forge text not null check (forge in ('github', 'local')),
    -- The forge's host, or the machine whose disk holds a local repository.
    host text not null,
    remote text not null,
    api_base text,
    default_branch text not null,
    linked_at bigint not null,
    -- For tasks that no issue numbers.
    next_number bigint not null default 1
);

create table workers (
    id text primary key,
    name text not null unique,
    -- The start of the worker that may speak for it.
    instance_id text not null,
    host text not null,
    version text not null,
    registered_at bigint not null,
    last_seen bigint not null,
    offline integer not null default 0 check (offline in (0, 1)),
    interval_ms bigint
);

create table worker_traits (
    worker_id text not null references workers (id),
    kind text not null check (kind in ('lane', 'label', 'forge')),
    value text not null,
    primary key (worker_id, kind, value)
);

create table tasks (
    id text primary key,
    slug text not null references projects (slug),
    number bigint not null check (number > 0),
    lane text not null,
    state text not null check (
        state in ('queued', 'claimed', 'running', 'review', 'failed', 'done', 'parked', 'cancelled')
    ),
    title text not null,
    body text not null,
    asked_by text not null,
    -- The forge's own time of the wish: a wish is new when it is newer than this.
    seen_at bigint not null,
    -- The place in the queue: when the current request was made.
    asked_at bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    -- Claims so far. Every write of a worker names it.
    epoch bigint not null default 0,
    -- The last epoch of the request before this one: effects of later epochs are gone on from.
    request_epoch bigint not null default 0,
    -- Infrastructure failures in a row.
    retries bigint not null default 0,
    -- The live lease. It stands on the row, so two of them cannot exist.
    worker_id text references workers (id),
    claim_id text,
    expires_at bigint,
    parked_until bigint,
    -- JSON.
    stop_reason text,
    message text,
    branch text,
    pr bigint,
    pr_url text,
    unique (slug, number, lane),
    check ((state in ('claimed', 'running')) = (worker_id is not null)),
    check ((state in ('claimed', 'running')) = (claim_id is not null)),
    check ((state in ('claimed', 'running')) = (expires_at is not null)),
    check ((state = 'parked') = (parked_until is not null)),
    check (request_epoch <= epoch)
);

-- The oldest of a lane is the first entry, however long the queue.
create index tasks_queued on tasks (lane, asked_at, slug, number) where state = 'queued';
create index tasks_expiry on tasks (expires_at) where expires_at is not null;
create index tasks_parked on tasks (parked_until) where parked_until is not null;
create index tasks_worker on tasks (worker_id) where worker_id is not null;
create unique index tasks_claim on tasks (claim_id) where claim_id is not null;

create table runs (
    id text primary key,
    task_id text not null references tasks (id),
    epoch bigint not null,
    worker_id text not null references workers (id),
    instance_id text not null,
    claim_id text not null,
    claimed_at bigint not null,
    started_at bigint,
    finished_at bigint,
    -- Who ended it: its worker, the clock, a newer instance of its worker, or a person.
    ended_by text check (ended_by in ('worker', 'expiry', 'instance', 'person')),
    outcome text check (outcome in ('finished', 'failed', 'released')),
    -- JSON.
    stop_reason text,
    summary text,
    error text,
    unique (task_id, epoch),
    check ((finished_at is null) = (ended_by is null)),
    check ((finished_at is null) = (outcome is null)),
    check ((finished_at is null) = (stop_reason is null))
);

create index runs_claim on runs (claim_id);

-- The journal: what a run did outside, one of each kind.
create table effects (
    task_id text not null,
    epoch bigint not null,
    kind text not null check (kind in ('committed', 'pushed', 'pull_request', 'commented')),
    -- JSON.
    body text not null,
    recorded_at bigint not null,
    primary key (task_id, epoch, kind),
    foreign key (task_id, epoch) references runs (task_id, epoch)
);

-- Append-only.
create table events (
    seq integer primary key,
    at bigint not null,
    kind text not null,
    actor text not null,
    task_id text,
    -- JSON.
    data text not null
);

create index events_task on events (task_id, seq) where task_id is not null;

-- Null is "not reported", which is never zero.
create table usage (
    run_id text primary key references runs (id),
    task_id text not null references tasks (id),
    lane text not null,
    worker_id text not null references workers (id),
    at bigint not null,
    model text,
    input_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    output_tokens bigint,
    model_calls bigint,
    turns bigint,
    cost_usd double precision,
    duration_ms bigint
);

create table preferences (
    key text not null check (key in ('lane.labels')),
    -- Empty where the preference holds for every project, or every lane.
    slug text not null,
    lane text not null,
    -- The narrowest has the highest: 3 project and lane, 2 project, 1 lane, 0 global.
    rank bigint not null check (rank between 0 and 3),
    value text not null,
    set_by text not null,
    set_at bigint not null,
    primary key (key, slug, lane)
);

-- The value of `lane.labels`, taken apart so that a claim can compare it.
create table preference_labels (
    slug text not null,
    lane text not null,
    rank bigint not null,
    label text not null,
    primary key (slug, lane, label)
);

-- A local repository has nowhere else to put a pull request.
create table local_pulls (
    task_id text primary key references tasks (id),
    number bigint not null,
    title text not null,
    body text not null,
    branch text not null,
    base text not null,
    head text not null,
    diff text not null,
    comment text,
    updated_at bigint not null
);
