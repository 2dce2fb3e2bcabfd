-- A run that ended with its worker: was the worker last heard of within a minute of the run's
-- start? Null where the worker ended the run itself, and did not say that it crashed at once.
alter table runs add column death text check (death in ('quick', 'slow'));

-- Deaths of later epochs are one row: since a person asked, or a run ended otherwise.
alter table tasks add column deaths_from bigint not null default 0;
