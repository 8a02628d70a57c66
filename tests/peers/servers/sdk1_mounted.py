"""Agents of the official Python SDK: one at the root, and one that is mounted at `/agents/billing` with its card."""

import asyncio
from typing import Any

from listening import serve
from sdk1 import application
from starlette.applications import Starlette
from starlette.routing import Mount


def applications(url: str) -> Any:
    """The two agents, each with tasks of its own."""
    below = "/agents/billing"
    return Starlette(routes=[Mount(below, application(url + below)), Mount("/", application(url))])


if __name__ == "__main__":
    asyncio.run(serve(applications))
