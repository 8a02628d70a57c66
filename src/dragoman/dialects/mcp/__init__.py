"""The Model Context Protocol, client and server: it converts messages between bytes and values. No I/O.

`client` is the client's side, with `outcomes`, which are answers to calls, and `param_headers`. The server's side is
`requests`, which arrive, `answers`, and `tools`, which present skills. `names` has the words of the protocol for both,
`headers` the form of their values in HTTP.
"""
