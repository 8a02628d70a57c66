"""Server of the newer official MCP SDK (2.x): `python mcp2_server.py` prints its URL; `stdio` is spoken to there."""

import asyncio
import sys

from listening import serve
from mcp.server import MCPServer

server = MCPServer("newer")


@server.tool()
def forecast(city: str) -> str:
    """The forecast for a city."""
    return f"Sunny in {city}"


if __name__ == "__main__":
    if "stdio" in sys.argv:
        server.run()
    else:
        asyncio.run(serve(lambda _: server.streamable_http_app()))
