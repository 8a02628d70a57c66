"""The engine: the meaning of each operation on tasks.

Doors: `engine` has Engine, a Handler. `handler` is its protocol for the bindings, `api` the one for agents, `observer`
the one for counts and spans. `handlers` has what stacks on the engine.

One task: `task_log` is its log in memory, `run` one execution of an agent on it, `run_writer` the events of a run on
their way to the log, `replay` what a later run repeats, `announcements` its webhook deliveries.

All tasks: `tasks` finds logs, `intake` takes messages (`policy` has the pure checks, `direct` the agents without
tasks, `auto_run` those that may do without), `supervisor` starts, ends and recovers runs, `delegation` ties tasks to
those they delegated (`lineage` says through which agents a task came), `subscriptions` streams logs, `webhooks`
registers webhooks, `files` and `history` give agents what earlier tasks left.
"""
