"""Outgoing connections: every request from Dragoman to another host goes through this package.

`egress` has the doors: Egress for requests and streams, Poster for webhook calls. `target` parses URLs; `address` finds
the addresses of hosts and judges them (Guard). `dialer` makes, keeps and limits connections, `connection` is one of
them, and `exchange` is HTTP/1.1 without I/O. All errors are in `errors`.
"""
