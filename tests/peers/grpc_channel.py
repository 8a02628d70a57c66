"""Channels of gRPC for the official Python clients, with the metadata that names an agent.

0.3 has no tenant, and the clients have no setting for metadata; so the channel adds it to each call.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

from grpc import aio

AGENT = "x-dragoman-agent"


class _Unary(aio.UnaryUnaryClientInterceptor):
    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(_named(details, self._agent), request)


class _Stream(aio.UnaryStreamClientInterceptor):
    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> AsyncIterator[Any]:
        call: AsyncIterator[Any] = await continuation(_named(details, self._agent), request)
        return call


def _named(details: Any, agent: str) -> Any:
    return details._replace(metadata=aio.Metadata(*(details.metadata or ()), (AGENT, agent)))


def channels(agent: str) -> Callable[[str], aio.Channel]:
    """A factory of channels for the clients' settings; an empty `agent` is not named."""
    interceptors = [_Unary(agent), _Stream(agent)] if agent else []
    return lambda target: aio.insecure_channel(target, interceptors=interceptors)
