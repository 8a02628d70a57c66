"""The engine: the meaning of each operation on tasks.

Doors: `engine` has Engine, a Handler. `handler` is its protocol for the bindings, `api` the one for agents, `observer`
the one for counts and spans. `handlers` has what stacks on the engine, `admin` what operators read and change.

One task: `task_log` is its log in memory, `runs` the executions of an agent on it, `announcements` its webhook
deliveries.

All tasks: `tasks` finds logs, `intake` takes messages (`policy` has the pure checks), `supervisor` starts and ends
runs, `leases` decides which replica goes on with a task, `recovery` claims tasks that no living replica has,
`delegation` ties tasks to those they delegated (`lineage` says through which agents a task came), `subscriptions`
streams logs, `webhooks` registers webhooks, `files` gives agents the files of earlier tasks, `hints` keeps logs up to
date with other replicas.
"""
