"""The credentials of client commands: which of them an agent may see, and where its card wants them (a2a-cli §10).

Invariant: a credential goes to an agent only if the agent's card declares a scheme that takes it, and only where its
source may send it. No value of a credential is part of a message or a log.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from dragoman.cli.a2a.reference import origin_of, parse_reference
from dragoman.cli.a2a.settings import Settings
from dragoman.client import ApiKey, BearerToken
from dragoman.client.credentials import Credentials

BEARER_KINDS = ("httpAuthSecurityScheme", "oauth2SecurityScheme", "openIdConnectSecurityScheme")
"""Kinds of security schemes that take a bearer token (A2A 1.0 §4.5)."""


class AgentCredentials(Struct, frozen=True, kw_only=True):
    """The credentials that an agent is shown. `query` is appended to its URL, for keys that go there.

    `secrets` are the values that no output may have. `warnings` say what is not sent, and why.
    """

    credentials: Credentials | None = None
    query: str = ""
    secrets: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """Whether anything is shown."""
        return self.credentials is not None or bool(self.query)


def secret_values(settings: Settings) -> list[str]:
    """The credentials among the settings, which no output may have."""
    return [settings.text(name) for name in ("bearer", "api-key", "client-secret") if settings.text(name)]


def permitted(settings: Settings, name: str, agent: str) -> str:
    """Return the credential `name` if the agent that the reference `agent` names may see it, else an empty text."""
    value = settings.text(name)
    if not value:
        return ""
    bound = settings.bound_to(name)
    return value if bound is None or (bound and _same_agent(bound, agent)) else ""


def refusal(settings: Settings, name: str, agent: str) -> str:
    """Return why the agent may not see the credential `name`; empty if it may, or if there is none."""
    if not settings.text(name) or permitted(settings, name, agent):
        return ""
    bound, credential = settings.bound_to(name), settings[name]
    if bound:
        return f"{settings.describe(name)} is not sent: its file is for {bound}"
    if credential.place == settings["agent-card"].place:  # a file without an agent of its own
        return f"{settings.describe(name)} is not sent: its file names no A2ACLI_AGENT_CARD"
    if settings["agent-card"].place not in ("flag", "environment", "default"):
        place = settings["agent-card"].place
        return (
            f"{settings.describe(name)} is not sent to the agent that {place} names, which was only found: "
            f"name the file with --config {place}, or the agent with --agent-card"
        )
    advice = "add A2ACLI_AGENT_CARD to its file, so that it goes to that agent only"
    return f"{settings.describe(name)} is not sent: {advice}"


def choose_credentials(
    settings: Settings, agent: str, schemes: dict[str, Any] | None, stored: BearerToken | None
) -> AgentCredentials:
    """Choose what the agent is shown: a key or a token that was given, else the `stored` token of `auth login`.

    `schemes` are those of its card; None if there is no card, and then anything that was given is sent.
    """
    bearer, key = permitted(settings, "bearer", agent), permitted(settings, "api-key", agent)
    warnings = [text for name in ("bearer", "api-key") if (text := refusal(settings, name, agent))]
    secrets = (*secret_values(settings), *([stored.token] if stored is not None and stored.token else []))
    if key:
        place = _api_key_place(schemes)
        if place is not None:
            where, name = place
            if where == "query":
                return AgentCredentials(query=f"{quote(name)}={quote(key)}", secrets=secrets, warnings=tuple(warnings))
            held = ApiKey(f"{name}={quote(key)}", "Cookie") if where == "cookie" else ApiKey(key, name)
            return AgentCredentials(credentials=held, secrets=secrets, warnings=tuple(warnings))
        warnings.append(_undeclared(settings.describe("api-key"), "an API key"))
    token = BearerToken(bearer) if bearer else stored
    if token is not None:
        if schemes is None or any(_takes_bearer(scheme) for scheme in schemes.values()):
            return AgentCredentials(credentials=token, secrets=secrets, warnings=tuple(warnings))
        if bearer:
            warnings.append(_undeclared(settings.describe("bearer"), "a bearer token"))
    return AgentCredentials(secrets=secrets, warnings=tuple(warnings))


def mutual_tls(settings: Settings, agent: str) -> tuple[str, str]:
    """Return the files of the certificate and key that the agent may see; empty for none."""
    return permitted(settings, "client-cert", agent), permitted(settings, "client-key", agent)


def _takes_bearer(scheme: Any) -> bool:
    match scheme:
        case {"httpAuthSecurityScheme": {"scheme": str(name)}}:
            return name.lower() == "bearer"
        case dict():
            return any(kind in scheme for kind in BEARER_KINDS)
    return False


def _api_key_place(schemes: dict[str, Any] | None) -> tuple[str, str] | None:
    """Return where the card wants an API key: header, query or cookie, and its name there (A2A 1.0 §4.5.2)."""
    if schemes is None:
        return "header", "x-api-key"
    return next(_api_key_places(schemes), None)


def _api_key_places(schemes: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for scheme in schemes.values():
        match scheme:
            case {"apiKeySecurityScheme": {"location": "header" | "query" | "cookie" as where, "name": str(name)}}:
                yield where, name


def _undeclared(name: str, what: str) -> str:
    return (
        f"{name} is not sent: the agent's card declares no scheme that takes {what}; "
        "`card get` shows its schemes, and --svc-param sets any header"
    )


def _same_agent(bound: str, agent: str) -> bool:
    """Whether two references name the same origin, or the same file."""
    if bound == agent:
        return True
    first, second = origin_of(bound), origin_of(agent)
    if first or second:
        return first == second
    return parse_reference(bound).place == parse_reference(agent).place
