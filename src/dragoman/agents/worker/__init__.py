"""An agent whose tasks are done by processes elsewhere, over the worker API (docs/workers.md).

`agent` has WorkerAgent, the server's side, and `leases` the calls of its workers, with a list of the modules below it.
`attendance` tells other replicas of the `roster` of workers. `lessee` takes tasks in a worker process, and runs the
agent on them there. `wire` defines the messages between both sides.
"""
