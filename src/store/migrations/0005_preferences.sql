-- Four more words in the constraint; a constraint cannot be changed in place.
create table preferences_new (
    key text not null check (key in (
        'lane.labels', 'lane.model', 'run.max_minutes', 'run.max_turns', 'budget.usd_day',
        'push.workflows')),
    slug text not null,
    lane text not null,
    rank bigint not null check (rank between 0 and 3),
    value text not null,
    set_by text not null,
    set_at bigint not null,
    primary key (key, slug, lane)
);
insert into preferences_new (key, slug, lane, rank, value, set_by, set_at)
    select key, slug, lane, rank, value, set_by, set_at from preferences;
drop table preferences;
alter table preferences_new rename to preferences;

-- Budgets that are used up: a claim passes over the tasks they cover. Empty where there are none,
-- so it costs a claim one look at an empty table.
create table budget_stops (
    -- As in `preferences`.
    slug text not null,
    lane text not null,
    -- The budget and what was reported of it, as text with cents.
    usd_day text not null,
    spent_usd text not null,
    -- The end of the day; null where the budget is nothing, which no day ends.
    until bigint,
    primary key (slug, lane)
);

-- What a day cost.
create index usage_cost on usage (at) where cost_usd is not null;

-- Leases of one worker that were lost together. Empty while workers live.
create index runs_lost on runs (worker_id, finished_at) where ended_by = 'expiry';
