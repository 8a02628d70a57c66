"""The access log as configured.

Invariant: a file that cannot be written is found out at the start.
"""

from dragoman.config import Config
from dragoman.server.errors import StartError
from dragoman.telemetry.access_log import AccessLog


def open_access_log(config: Config, name: str) -> AccessLog | None:
    """Open the access log; None if it is off. Each line bears the `name`. Raises StartError."""
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


async def run_access_log(access: AccessLog | None) -> None:
    """Write lines for ever, if there is such a log."""
    if access is not None:
        await access.run()


async def close_access_log(access: AccessLog | None) -> None:
    """Write what is left."""
    if access is not None:
        await access.close()
