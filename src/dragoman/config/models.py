"""`run = "openai:https://…"`: a model behind a card, by any endpoint of chat completions.

Invariant: no secret is in the file: a table names the environment variable that holds it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.config.errors import ConfigError, check_url

OPENAI = "openai:"
"""How `run` begins for a model; the base URL of its endpoint follows."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent that is a model. `url` is what `run` says."""

    url: str = ""
    model: str = ""


MODEL_KEYS = tuple(name for name in Model.__struct_fields__ if name != "url")


def model_entry(source: str, path: str, table: Mapping[str, Any]) -> Model:
    """What the keys of an agent's table say of the model. Raises ConfigError."""
    url = str(table["run"]).removeprefix(OPENAI).strip()
    check_url(source, f"{path}.run", url, f"must be {OPENAI} and the http:// or https:// URL of an API")
    given = {name: table[name] for name in MODEL_KEYS if name in table}
    try:
        return msgspec.convert({**given, "url": url}, Model)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        raise ConfigError(source, f"{path}.{place}", None, "must be text", shows_value=False) from error
