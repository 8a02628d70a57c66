"""An agent whose tasks are done by processes elsewhere, over the worker API (docs/workers.md).

`agent` has WorkerAgent, the server's side, with its `leases`. `lessee` takes tasks in a worker process, and `run` is
the run that the agent sees there. `wire` defines the messages between both sides.
"""
