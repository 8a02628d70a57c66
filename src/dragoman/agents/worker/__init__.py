"""An agent whose tasks are done by processes elsewhere, over the worker API (docs/workers.md).

`agent` has WorkerAgent, the server's side, with the leases of its tasks. `attendance` shares these leases and the
`roster` of workers with other replicas. `lessee` takes tasks in a worker process, and runs the agent on them there.
`wire` defines the messages between both sides.
"""
