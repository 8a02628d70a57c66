"""An agent of another server, offered behind a card of this one.

`agent` has UpstreamAgent. `route` is all that is known of the other server: `access` the way there, `endpoint` its card
and the connection, `health` whether calls get through. `task` joins one of our tasks to the task that the upstream
makes of it, and `relay` passes the upstream's updates on to our task; `begun_send` is the short way of most messages,
whose answer comes whole. `failures` says why calls fail, to the operator and to the caller.
"""
