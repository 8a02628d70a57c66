"""HTTP/1.1 on the connections of a listener, parsed by httptools.

`ServerConnection` (connection.py) is one connection: the limits and rules of HTTP, and the order of its requests.
`AsgiExchange` (exchange.py) is one request with its answer, as the ASGI application sees them. `ConnectionCounter`
(bounds.py) counts the connections of a listener, and decides which are served.
"""
