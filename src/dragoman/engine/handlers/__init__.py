"""Handlers that stack on the engine: each hands calls on to the one behind it.

`admission` decides who may do what and how often, and `audit` keeps what it notes. `links` puts URLs in place of large
files. `tracing` puts spans around calls. `no_store` stands in for the engine where a server keeps no tasks.
"""
