"""The engine's other door, for operators: `administration` binds a function to each question of `dragoman.admin`.

`answers` calls it, and `access` notes what became of it. `stored_answers` has those that a store answers alone, for a
command as well.

For reading, `inspection` has tasks and their logs, `playback` a log with all that it holds, `wire` the same as
clients of each dialect get it, `wire_facts` what they learn from that, `wire_summary` the sentence about it, `moments`
a task as it stood (most from `folded_places`), `delegation_tree` what a task delegated. `conversations`, `overview`
and `usage_report` sum tasks up, and `records` reads the audit trail. `shared_reads` makes equal reads once.

For changing, there are `task_changes`, `deliveries` with `redelivery`, and `keys`.

`feeds` are their streams; `change_feeds` reads what changes once for all of them, after the hints of `change_hints`.
"""
