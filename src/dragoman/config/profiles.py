"""Profiles: with `profile = "kaos"` the server has the port, the paths and the variables of that system.

Invariant: a profile only changes defaults and reads the system's own variables. Settings of Dragoman itself win.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from dragoman.config.task_store import NULL, TASK_STORE_TYPE, task_store_type


class System(Struct, frozen=True):
    """A system that Dragoman can replace. `defaults` are settings by name; `variables` maps the system's own
    environment variables to settings."""

    defaults: Mapping[str, str]
    variables: Mapping[str, str]


SYSTEMS: Mapping[str, System] = {
    "beeos": System({"port": "8092"}, {}),
    "kaos": System(
        {"port": "8000", "store": "memory:", "telemetry_prefix": "kaos", "push": "false"},
        {"AGENT_PORT": "port", "AGENT_LOG_LEVEL": "log_level", "OTEL_ENABLED": "telemetry"},
    ),
    "evoai": System(
        {"port": "8000"},
        {"HOST": "host", "PORT": "port", "API_URL": "public_url", "CORS_ORIGINS": "cors_origins",
         "API_KEY": "api_key", "EVO_AI_API_KEY": "api_key"},
    ),
    "protoagent": System(
        {"port": "7870"},
        {"PROTOAGENT_HOST": "host", "A2A_PUBLIC_URL": "public_url", "LOG_LEVEL": "log_level",
         "A2A_AUTH_TOKEN": "api_key"},
    ),
}  # fmt: skip
"""The systems by name. If two variables set the same setting, the later one wins."""


EVERYWHERE: Mapping[str, str] = {
    "PUSH_NOTIFICATION_ALLOWED_HOSTS": "push_allowed_hosts",
    "PUSH_NOTIFICATION_ALLOWED_CIDRS": "push_allowed_cidrs",
}
"""Variables of protoAgent that have the same meaning with any profile or none: its guard applies to everybody."""


def variables(profile: str | None, environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Read a system's own variables: by setting, the variable's name and its value. Empty ones are ignored.

    Raises ConfigError if KAOS's `TASK_STORE_TYPE` has an invalid value.
    """
    found = {}
    system = SYSTEMS.get(profile) if profile is not None else None
    for variable, setting in {**EVERYWHERE, **(system.variables if system is not None else {})}.items():
        if value := environ.get(variable):
            found[setting] = (variable, value.lower() if setting == "log_level" else value)
    if profile == "kaos" and environ.get(TASK_STORE_TYPE):
        found["tasks"] = (TASK_STORE_TYPE, "false" if task_store_type(environ) == NULL else "true")
    if profile == "protoagent":
        # Its key is in a variable named after the agent: AGENT_NAME=my-agent, MY_AGENT_API_KEY.
        stem = re.sub(r"[^A-Z0-9]", "_", (environ.get("AGENT_NAME") or "protoagent").upper())
        if value := environ.get(f"{stem}_API_KEY"):
            found["api_key"] = (f"{stem}_API_KEY", value)
    return found
