"""The engine: the meaning of each operation on tasks.

Doors: `engine` puts the parts together. `operations` answers callers: it is a Handler, whose protocol for the bindings
is in `handler`. `api` is the protocol for agents, `observer` the one for counts and spans. `handlers` has what stacks
on the operations, `admin` what operators read and change, by way of `operated_tasks`.

One task: `log` is its log in memory, `runs` the executions of an agent on it, `announcements` its webhook
deliveries.

All tasks: `tasks` finds logs, `intake` takes messages (`policy` has the pure checks), `supervisor` starts runs and
hands them what they need, `ends` and `cancellations` end tasks in their place, `leases` decides which replica goes on
with a task, `membership` is about this replica among the others, `recovery` claims tasks that no living replica has,
`delegation` ties tasks to those they delegated (`lineage` says through which agents a task came), `subscriptions`
streams logs, `webhooks` registers webhooks, `files` gives agents the files of earlier tasks, `hints` keeps logs up to
date with other replicas.
"""
