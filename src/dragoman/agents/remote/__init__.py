"""An agent of another server behind a card of this one.

`agent` has UpstreamAgent, `route` the way to the other server (card, connection, breaker), `task` one task of ours with
the task that the upstream makes of it, `relay` the way of the upstream's updates into our task.
"""
