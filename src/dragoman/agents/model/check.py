"""Checks a model's endpoint without calling the model.

Invariant: no request costs a token, and no finding shows the key.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.agents.lifecycle import Finding
from dragoman.agents.model.endpoint import Endpoint, models_url
from dragoman.net.egress import HttpReply
from dragoman.net.errors import EgressError

NAMED_MAX = 8
"""The most model names listed as alternatives."""


class _Named(Struct):
    id: str = ""
    name: str = ""


class _List(Struct):
    data: list[_Named] | None = None
    models: list[_Named] | None = None


async def looked(endpoint: Endpoint, model: str) -> AsyncIterator[Finding]:
    """Yield the findings one after the other, until something is wrong."""
    where = endpoint.place
    try:
        reply = await endpoint.models()
        let_in = reply.status not in (401, 403) and not _refuses(await endpoint.look())
    except EgressError as error:
        yield Finding(False, str(error), f"is the endpoint running, and is {where} the right address?")
        return
    if not let_in:
        said = "does not take the key" if endpoint.key else "asks for a key"
        fix = (
            "look at the variable that `credentials` names, and at its `header`"
            if endpoint.key
            else 'set credentials = { env = "NAME" }, where the variable NAME holds the key'
        )
        yield Finding(False, f"{where} {said} (status {reply.status if reply.status in (401, 403) else 401})", fix)
        return
    if reply.status == 429 or reply.status >= 500:
        fix = "try again later; if it stays so, ask its operator"
        yield Finding(False, f"{where} takes no requests at present (status {reply.status})", fix)
        return
    yield Finding(True, f"{where} answers")
    listed = _model_names(reply.body) if reply.ok else None
    if listed is None:
        if reply.ok and reply.body.lstrip().startswith(b"<"):
            yield Finding(False, f"{models_url(where)} is a page, not a list of models", endpoint.hint)
        elif reply.status == 404 and "/v1" not in where:
            fix = f"is the base URL right? Most end in /v1: try openai:{where}/v1"
            yield Finding(False, f"{models_url(where)} is not there (status 404)", fix)
        else:
            yield Finding(True, f"it does not list its models (status {reply.status}): {model} was not looked for")
        return
    if model in listed or f"{model}:latest" in listed or f"models/{model}" in listed:
        yield Finding(True, f"it has {model}")
        return
    named = ", ".join(sorted(listed, key=lambda name: (name[:3] != model[:3], name))[:NAMED_MAX])
    yield Finding(False, f"it has no model {model}", f"set model to one of {named or 'those it has: it has none yet'}")


def _refuses(reply: HttpReply) -> bool:
    """Whether the endpoint refuses completions to this caller. Many endpoints list their models for everybody.

    A key that may call completions and nothing else gets a 401 for this request, too, but one that names what it lacks
    (OpenAI: "Missing scopes").
    """
    return reply.status == 401 and b"scope" not in reply.body.lower()


def _model_names(body: bytes) -> set[str] | None:
    """The names of the models; None if the body is not a list of models."""
    try:
        found: Any = msgspec.json.decode(body, type=_List | list[_Named])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    models = found if isinstance(found, list) else found.data if found.data is not None else found.models
    return None if models is None else {model.id or model.name for model in models}
