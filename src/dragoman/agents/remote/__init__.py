"""An agent of another server, offered behind a card of this one.

`agent` has UpstreamAgent. `route` is the connection to the other server, with its card and breaker. `task` joins one of
our tasks to the task that the upstream makes of it, and `relay` passes the upstream's updates on to our task.
`failures` says why calls fail, to the operator and to the caller.
"""
