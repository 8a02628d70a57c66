"""The observers of a server as configured: the access log, the counts and OpenTelemetry.

Invariant: an observer that is off costs nothing, and OpenTelemetry is imported only if it is on. A log file that cannot
be written is found out at the start.
"""

import asyncio
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman import __version__
from dragoman.bindings.traffic import Traffic
from dragoman.config import Config
from dragoman.engine.observer import Observer, Observers
from dragoman.model.extras import install_command
from dragoman.model.ids import Clock
from dragoman.server.errors import StartError
from dragoman.telemetry.access_log import AccessLog
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.genai import OPT_IN
from dragoman.telemetry.job_group import JobFailures

if TYPE_CHECKING:
    from dragoman.telemetry.opentelemetry import OpenTelemetry


class Observation(Struct, frozen=True):
    """The observers of a server; None for each that is off. `jobs` knows which jobs fail."""

    access: AccessLog | None
    counts: Counts | None
    telemetry: "OpenTelemetry | None"
    jobs: JobFailures

    def make_observer(self) -> Observer | None:
        """The observer of what happens to tasks."""
        if self.counts is not None and self.telemetry is not None:
            return Observers((self.counts, self.telemetry))
        return self.counts or self.telemetry

    def make_traffic(self, clock: Clock) -> Traffic | None:
        """The observer of requests."""
        if self.access is None and self.counts is None and self.telemetry is None:
            return None
        return Traffic(self.counts, self.access, clock, self.telemetry)

    async def flush(self) -> None:
        """Send what OpenTelemetry has not sent yet."""
        if self.telemetry is not None:
            await asyncio.to_thread(self.telemetry.flush)


def open_observation(config: Config, name: str) -> Observation:
    """Make the observers that are on. Each line of the access log bears the `name`. Raises StartError."""
    counts = Counts() if config.metrics else None
    return Observation(_open_access_log(config, name), counts, _make_telemetry(config), JobFailures())


def _open_access_log(config: Config, name: str) -> AccessLog | None:
    path = config.access_log_file
    if config.access_log == "off":
        if path is not None:
            raise StartError("access_log_file is set and access_log is off: set access_log to text or json")
        return None
    access = AccessLog(config.access_log, path, name)
    try:
        access.open()
    except OSError as error:
        raise StartError(
            f"access_log_file {path!r}: {error.strerror}: name a file in a folder that this user may write to"
        ) from error
    return access


def _make_telemetry(config: Config) -> "OpenTelemetry | None":
    """Make the OpenTelemetry observer, if it is on. It is imported only here: it is large and not always installed.

    Raises StartError if it is on and not installed, or if content is to be captured by spans that there are not.
    """
    opted_in = OPT_IN in os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").replace(" ", "").split(",")
    genai = config.telemetry_genai or (config.telemetry and opted_in)
    if config.telemetry_capture_content and not genai:
        raise StartError("telemetry_capture_content is on and telemetry_genai is off: set that, too")
    if not (config.telemetry or genai):
        return None
    try:
        from dragoman.telemetry.opentelemetry import OpenTelemetry, installed
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise StartError(
            f"telemetry is on, but OpenTelemetry is not installed: run {install_command('otel')}; or turn telemetry off"
        ) from error
    providers, captures = installed(__version__), config.telemetry_capture_content
    return OpenTelemetry(*providers, config.telemetry_prefix, __version__, genai=genai, captures=captures)
