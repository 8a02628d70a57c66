"""Serves an official SDK's application at a port of its own, and says where. Keeps the ledger of its agent.

Nothing but uvicorn: every SDK runs it in an environment of its own. The process ends when its standard input does, so
that none is left behind by a test run that was killed.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn


def write_down(text: str) -> None:
    """Add an execution to the file that `LEDGER` names, if it does, and wait until the disk has it."""
    if file := os.environ.get("LEDGER"):
        with open(file, "ab", 0) as ledger:
            ledger.write(json.dumps({"text": text}).encode() + b"\n")
            os.fsync(ledger.fileno())


async def serve(made: Callable[[str], Any]) -> None:
    """Serve what `made` makes of the URL, print the URL, and stop at the end of standard input."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(128)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(made(url), log_level="warning", timeout_graceful_shutdown=1))
        asyncio.get_running_loop().run_in_executor(None, _read_to_the_end, server)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        sys.stdout.write(url + "\n")
        sys.stdout.flush()
        await serving


def _read_to_the_end(server: uvicorn.Server) -> None:
    while os.read(0, 1024):
        pass
    server.should_exit = True
