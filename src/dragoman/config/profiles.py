"""Profiles: with `profile = "kaos"` the server has the port, the paths and the variables of that system.

Invariant: a profile only changes defaults and reads the system's own variables. Settings of Dragoman itself win.
"""

from collections.abc import Mapping

from dragoman.config.errors import ConfigError
from dragoman.dialects.system import Variable
from dragoman.dialects.systems import load_profile

EVERYWHERE: Mapping[str, Variable] = {
    "PUSH_NOTIFICATION_ALLOWED_HOSTS": Variable("push_allowed_hosts"),
    "PUSH_NOTIFICATION_ALLOWED_CIDRS": Variable("push_allowed_cidrs"),
}
"""Variables of protoAgent that have the same meaning with any profile or none: its guard applies to everybody."""


def read_variables(profile: str | None, environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Read a system's own variables: by setting, the variable's name and its value. Empty ones are ignored.

    Raises ConfigError if a variable has a value that it cannot have.
    """
    known = dict(EVERYWHERE)
    if profile is not None:
        system = load_profile(profile)
        known |= {**system.variables, **system.named_variables(environ)}
    return {
        variable.setting: (name, translate(name, variable, value))
        for name, variable in known.items()
        if (value := environ.get(name, "").strip())
    }


def translate(name: str, variable: Variable, value: str) -> str:
    """Return the setting's value for a variable's. Raises ConfigError if the variable cannot have it."""
    if variable.values is None:
        return value.lower() if variable.setting == "log_level" else value
    if value.lower() not in variable.values:
        raise ConfigError("environment", name, value, variable.allowed)
    return variable.values[value.lower()]
