"""The network as the demo shows it to a user's agent: a proxy that lets nothing through, and notes what was asked for.

Most clients of models take the proxy from the environment. What an agent lacks then shows in the refusal.
"""

import asyncio
import re
from urllib.parse import urlsplit

_SECRET = re.compile(
    r"(?:^|_)(?:API)?KEY(?:_ID)?$|(?:^|_)(?:TOKEN|SECRET|CREDENTIALS)$|(?:PASSWORD|PASSWD|PASSPHRASE)$"
)
"""Has AWS_ACCESS_KEY_ID, too: with half of its credentials a library says something else than with none."""

LINE_BYTES_MAX = 8192


class BlockedNetwork:
    """Refuses all requests until the block ends. `wanted` are the hosts that were asked for."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "BlockedNetwork":
        self._server = await asyncio.start_server(self._refuse, "127.0.0.1", 0, limit=LINE_BYTES_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def variables(self) -> dict[str, str]:
        """The variables that lead a process here."""
        assert self._server is not None
        url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        here = "127.0.0.1,localhost,::1"
        return {name: url for each in names for name in (each, each.lower())} | {"NO_PROXY": here, "no_proxy": here}

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, _, rest = (await reader.readline()).decode("latin-1").partition(" ")
            place = rest.split(" ", 1)[0]
            host = place.rpartition(":")[0] if method == "CONNECT" else urlsplit(place).hostname
            if host:
                self.wanted.add(host)
            writer.write(
                b"HTTP/1.1 403 the demo runs without a network\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            await writer.drain()
        except (OSError, ValueError):
            pass  # nobody waits for an answer
        finally:
            writer.close()


def is_secret(variable: str) -> bool:
    """Whether a variable of the environment is named as keys are. The servers of the demo have none of them."""
    return _SECRET.search(variable.upper()) is not None
