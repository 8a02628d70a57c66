"""The parts that tests are built of. Each stands here once; a test module has its cases, and little else.

To write a test, look here first:

| wanted | take |
|---|---|
| a message, a record, an event, a profile as the engine has them | `values` |
| an agent that echoes, asks, waits or never ends | `agents` |
| a server in this process, two on one store, keys in a store | `places` |
| a command, in this process | `commands` |
| `dragoman serve` in a process of its own, to be killed | `processes` |
| another server, byte for byte as the test wants it | `loopback`, `web`, `tests.net.peer` |
| a receiver of webhooks | `tests.push.receiver` |
| to wait until something is so | `waiting` |
| switches that an operator sets | `switches` |
| a worker's side of the worker API | `workers` |
| a server of which an administration knows nothing | `facts` |
| fixtures that many modules have | `fixtures`, by their names: no import |
| a clock that stands, an engine on a real store | `tests.engine.house` |
| time that passes at once | `tests.virtual_time` |

A rule of A2A is a scenario in `tests/spec`: it runs over JSON-RPC, HTTP+JSON and gRPC, in both versions, through
`tests.spec.caller`. A rule of a vendor's dialect runs in `tests/systems`, through its `Site` and `speakers`. Tests of
the engine have what no caller sees over the wire: what is written, when a run is dropped, which effect is lost. No
rule is tested on two floors by the same assertions.

Five tests that differ in a value are one with parameters. A helper that two modules need is moved here, under one name.
"""
