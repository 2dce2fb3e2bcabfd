-- The oldest queued tasks of each lane of each project are read without the others.
create index tasks_needs on tasks (lane, slug, asked_at, number) where state = 'queued';
