"""Observers: counters, and OpenTelemetry if it is on.

Invariant: an observer that is off is not imported.
"""

import asyncio
from typing import TYPE_CHECKING

from dragoman import __version__
from dragoman.config import Config
from dragoman.engine.observer import Observer, Observers
from dragoman.server.errors import StartError
from dragoman.telemetry.counts import Counts

if TYPE_CHECKING:
    from dragoman.telemetry.opentelemetry import OpenTelemetry


def observer_of(counts: Counts | None, telemetry: "OpenTelemetry | None") -> Observer | None:
    """The observer of what happens to tasks. None costs nothing."""
    if counts is not None and telemetry is not None:
        return Observers((counts, telemetry))
    return counts or telemetry


def telemetry_of(config: Config) -> "OpenTelemetry | None":
    """Make the OpenTelemetry observer, if it is on. It is imported only here: it is large and not always installed.

    Raises StartError if it is on and not installed.
    """
    if not config.telemetry:
        return None
    try:
        from dragoman.telemetry.opentelemetry import OpenTelemetry, installed
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise StartError(
            "telemetry is on, but OpenTelemetry is not installed: "
            "run pip install '.[otel]' in a copy of Dragoman's repository, or turn telemetry off"
        ) from error
    return OpenTelemetry(*installed(__version__), config.telemetry_prefix, __version__)


async def flush(telemetry: "OpenTelemetry | None") -> None:
    """Send what OpenTelemetry has not sent yet."""
    if telemetry is not None:
        await asyncio.to_thread(telemetry.flush)
