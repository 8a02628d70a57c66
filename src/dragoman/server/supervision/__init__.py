"""Processes that serve nothing and watch over servers.

`processes` watches over the replicas on one machine, `reloader` over the server of a developer. `supervised` is the
socket between a supervisor and a replica.
"""
