"""Handlers that stack on the engine: each passes calls on to the one behind it.

`admission` decides who may do what and how often, and `audit` writes its notes to the store. `links` replaces large
files by URLs. `tracing` puts spans around calls. `no_store` replaces the engine on a server that keeps no tasks.

`administration` is the other door, for operators: `records`, `task_changes`, `deliveries` and `keys` read and change
what the store has, `access` refuses and notes. `feeds` are their streams; `change_feeds` reads what changes once for
all of them, after the hints of `change_hints`, and `shared_reads` makes equal reads once.
"""
