"""Handlers that stack on the engine: each passes calls on to the one behind it.

`admission` decides who may do what and how often, `usage` counts that, and `audit` writes its notes to the store.
`links` replaces large files by URLs. `tracing` puts spans around calls. `no_store` replaces the engine on a server that
keeps no tasks.
"""
