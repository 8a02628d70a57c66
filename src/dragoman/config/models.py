"""`run = "openai:https://…"`: a model behind a card, by any endpoint of chat completions.

Invariant: the file holds no secret: a table names the environment variable that holds it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from dragoman.config.errors import ConfigError, check_keys, check_url
from dragoman.config.mcp import McpEntry, tool_entries
from dragoman.config.upstreams import HEADER, VARIABLE, Seconds

OPENAI = "openai:"
"""The prefix of `run` for a model; the base URL of its endpoint follows."""

ONE_OF = 'must be { env = "NAME" } for a bearer token, or { header = "api-key", env = "NAME" }'

OURS = ("messages", "model", "n", "response_format", "stream", "stream_options", "tools")
"""Keys that `extra` may not have, because the agent itself sets them."""

COALESCED_MAX = 4
"""An answer is silent for `coalesce_ms`, and for three times as long on a busy server; this bounds that silence."""

Taken = Literal["image", "image_url", "audio", "file"]

TAKES: tuple[Taken, ...] = ("image", "image_url", "audio", "file")


class ModelCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """`credentials`: `env` names the variable that holds the key, `header` the header for it; None: a bearer token."""

    env: str
    header: str | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent that is a model. `url` is the URL in `run`; see docs/agents/openai.md for all others.

    The contents of `system_file` and `schema_file` have been read into `system` and `schema`.
    """

    url: str = ""
    model: str = ""
    credentials: ModelCredentials | None = None
    system: str | None = None
    system_file: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extra: dict[str, Any] = {}
    schema: dict[str, Any] | None = None
    schema_file: str | None = None
    schema_strict: bool = True
    usage: bool = True
    takes: tuple[Taken, ...] = TAKES
    history_messages: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 20
    history_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    coalesce_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 30.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 2
    retry_wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0
    on_refusal: Literal["reject", "fail", "answer"] = "reject"
    on_length: Literal["complete", "fail"] = "complete"
    tools: tuple[McpEntry, ...] = ()
    tool_rounds: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    pause_s: Seconds = 10.0
    answer_s: Seconds = 120.0
    idle_s: Seconds = 60.0


MODEL_KEYS = tuple(name for name in Model.__struct_fields__ if name != "url")

_SECONDS = "must be a number of seconds from 0.1 to 86400"

_ALLOWED = {
    "credentials": ONE_OF,
    "temperature": "must be a number from 0 to 10",
    "top_p": "must be a number from 0 to 1",
    "max_tokens": "must be a whole number of at least 1",
    "stop": "must be a list of texts",
    "seed": "must be a whole number",
    "frequency_penalty": "must be a number",
    "presence_penalty": "must be a number",
    "extra": "must be a table: its keys are sent as they are",
    "schema": "must be a table, the JSON Schema of the answer",
    "schema_strict": "must be true or false",
    "usage": "must be true or false",
    "takes": f"must be a list of some of {', '.join(TAKES)}",
    "history_messages": "must be a whole number from 0 to 1000",
    "history_tokens": "must be a whole number of at least 0",
    "coalesce_ms": "must be a number of milliseconds from 0 to 10000",
    "retries": "must be a whole number from 0 to 20",
    "retry_wait_s": "must be a number of seconds from 0 to 3600",
    "on_refusal": "must be reject, fail or answer",
    "on_length": "must be complete or fail",
    "tool_rounds": "must be a whole number from 1 to 1000",
    "failures": "must be a whole number from 1 to 1000",
    **dict.fromkeys(("pause_s", "answer_s", "idle_s"), _SECONDS),
}
"""The allowed values of the keys that are not texts."""


def model_entry(source: str, path: str, table: Mapping[str, Any]) -> Model:
    """Read the keys of an agent's table about the model. Raises ConfigError."""
    url = str(table["run"]).removeprefix(OPENAI).strip()
    check_url(source, f"{path}.run", url, f"must be {OPENAI} and the http:// or https:// URL of an API")
    given = {name: table[name] for name in MODEL_KEYS if name in table and name != "tools"}
    if isinstance(credentials := given.get("credentials"), dict):
        check_keys(source, credentials, ModelCredentials.__struct_fields__, f"{path}.credentials.")
    try:
        model = msgspec.convert({**given, "url": url}, Model)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        key = re.split(r"[.\[]", place)[0]
        # the value may be a secret in the wrong place
        raise ConfigError(
            source, f"{path}.{place}", None, _ALLOWED.get(key, "must be text"), shows_value=False
        ) from error
    if not model.model.strip():
        raise ConfigError(source, f"{path}.model", None, "must name the model, as the API does", shows_value=False)
    if model.credentials is not None:
        _check_credentials(source, f"{path}.credentials", model.credentials)
    if model.coalesce_ms > model.idle_s * 1000 / COALESCED_MAX:
        allowed = f"must be at most a quarter of idle_s, which is {model.idle_s:g} s"
        raise ConfigError(source, f"{path}.coalesce_ms", model.coalesce_ms, allowed)
    for name in model.extra:
        if name in OURS:
            raise ConfigError(source, f"{path}.extra.{name}", None, "is said by the agent itself", shows_value=False)
    model = _with_files(source, path, model)
    if "tools" in table:
        model = replace(model, tools=tool_entries(source, f"{path}.tools", table["tools"]))
    return model


def _check_credentials(source: str, path: str, given: ModelCredentials) -> None:
    if not VARIABLE.fullmatch(given.env) or (given.header is not None and not HEADER.fullmatch(given.header)):
        raise ConfigError(source, path, None, ONE_OF, shows_value=False)


def _with_files(source: str, path: str, model: Model) -> Model:
    """Read the model's files. Their paths are relative to the working directory of the server."""
    for name, said in (("system", model.system), ("schema", model.schema)):
        if said is not None and getattr(model, f"{name}_file") is not None:
            raise ConfigError(source, f"{path}.{name}_file", None, f"is there beside {name}", shows_value=False)
    if model.system_file is not None:
        model = replace(model, system=_text(source, f"{path}.system_file", model.system_file))
    if model.schema_file is not None:
        text = _text(source, f"{path}.schema_file", model.schema_file)
        try:
            schema = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            allowed = f"must be a JSON Schema, an object: {error}"
            raise ConfigError(source, f"{path}.schema_file", model.schema_file, allowed) from error
        model = replace(model, schema=schema)
    return model


def _text(source: str, key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(source, key, name, f"must be a file of text: {reason}") from error
