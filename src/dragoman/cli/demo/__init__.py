"""`dragoman demo kill`: servers are killed in the middle of a task, and what that cost is counted.

`command` is the command, `contest` runs the columns side by side and counts, `column` is what a column does, whichever
server it shows. `dragoman_column` and `sdk_column` are the two. Each server and the official client are processes of
their own (`process`, `child`): `work`, `sdk_server`, `sdk_client`. `steps` is the work that both servers do, `webhooks`
receives their reports, `blocked` stands in for the network, and `screen` shows it all.

Invariant: nothing is stored, and nothing is listed that was not counted in this run. Only processes that the demo has
started are ended, and all of them end with it.
"""
