-- Where a run's work is kept that could not be delivered: a path on its worker's disk.
alter table runs add column kept text;

-- One more word in the constraint; a constraint cannot be changed in place.
create table preferences_new (
    key text not null check (key in ('lane.labels', 'push.workflows')),
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
