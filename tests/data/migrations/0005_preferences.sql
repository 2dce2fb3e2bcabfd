-- Rows that only step 5 allows.
insert into preferences (key, slug, lane, rank, value, set_by, set_at)
values ('lane.model', '', 'claude', 1, 'opus', 'user:ann', 10),
    ('run.max_minutes', '', '', 0, '90', 'user:ann', 10),
    ('run.max_turns', 'acme/shop', 'claude', 3, '60', 'user:ann', 10),
    ('budget.usd_day', '', '', 0, '20.00', 'user:ann', 10);
insert into budget_stops (slug, lane, usd_day, spent_usd, until)
values ('', '', '20.00', '20.31', 86400000);
