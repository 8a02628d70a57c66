"""Looks at an agent: fetches its card, and asks each endpoint what changes nothing there.

Invariant: without a Wish no message is sent, and nothing is stored at the agent. Every wait ends: what has not answered
in time is recorded as such.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.cli.a2a.card import describe_signature
from dragoman.cli.a2a.credentials import AgentCredentials, choose_credentials
from dragoman.cli.a2a.failures import Code, Failure
from dragoman.cli.a2a.output import warn
from dragoman.cli.a2a.reference import ResolvedCard, origin_of, resolve_card
from dragoman.cli.a2a.session import choose_interface, make_tls, named_agent, secret_values, service_parameters
from dragoman.cli.a2a.settings import Settings
from dragoman.cli.a2a.tokens import stored_token
from dragoman.cli.a2a.wire import DebugLog
from dragoman.cli.doctor.look import (
    PROBE_S,
    TIMEOUTS,
    EndpointLook,
    certificate_fault,
    send_request,
    without_query,
)
from dragoman.cli.doctor.observation import (
    Endpoint,
    EndpointTrial,
    Exchange,
    Observations,
)
from dragoman.cli.doctor.trial import EVERY, Trial, Wish
from dragoman.client import (
    CallTimedOut,
    Interface,
    NoCard,
    NotReached,
    interfaces,
)
from dragoman.client.card import binding_of, dialect_of
from dragoman.client.discovery import ACCEPT, places
from dragoman.client.endpoint import Doors
from dragoman.dialects.cards import JSONRPC
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.net.address import fault
from dragoman.net.dialer import find_addresses
from dragoman.net.egress import Egress

LOOK_S = 25.0
"""How long all endpoints may take together. They are asked at the same time."""

LOOK_BEFORE_TRIAL_S = 10.0
"""The same, if messages are sent after that."""

ALL_S = 28.0
"""When the last attempt ends, counted from the beginning."""

LIMIT_S = 29.5
"""How long everything may take."""

CARD_S = 12.0
"""How long it may take to find the card."""

ENDPOINTS_MAX = 8
"""How many endpoints of a card are asked; further ones are named as not tried."""


async def observe(settings: Settings, wish: Wish | None = None, second_key: str = "") -> Observations:
    """Look at the agent that the settings name, and with a `wish` send it messages.

    `second_key` is a key of another caller. Raises Failure if the agent cannot be reached, or if its card or anything
    else takes too long; SettingsError.
    """
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _observe(settings, wish, second_key)
    except TimeoutError as error:
        raise Failure(
            Code.TIMEOUT, f"the examination took longer than {LIMIT_S:g} s", hint="try again later"
        ) from error


async def _observe(settings: Settings, wish: Wish | None, second_key: str) -> Observations:
    agent = named_agent(settings)
    headers = service_parameters(settings)
    debug = DebugLog([*headers.values(), *secret_values(settings), second_key]) if settings.flag("debug") else None
    tls = await make_tls(settings, agent)
    egress = Egress(tls=tls, connect_timeout_s=TIMEOUTS.connect_s)
    try:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(CARD_S):
                resolved = await resolve_card(agent, egress=egress, headers={})
        except TimeoutError as error:
            raise Failure(Code.UNREACHABLE, f"{without_query(agent)} shows no card within {CARD_S:g} s") from error
        except Failure as failure:
            if failure.code != Code.CARD_INVALID or not (origin := origin_of(agent)):
                raise
            instead = ((origin, failure.message),)
            return Observations(agent=without_query(agent), place=origin, tried=instead, public=await _is_public(agent))
        except NoCard as error:
            tried = tuple((without_query(each.url), each.answer) for each in error.tried)
            return Observations(
                agent=without_query(agent), place=origin_of(agent), tried=tried, public=await _is_public(agent)
            )
        except (NotReached, CallTimedOut) as error:
            if not (reason := certificate_fault(error)):
                raise
            return Observations(
                agent=without_query(agent), place=origin_of(agent), certificate=reason, now_s=time.time()
            )
        url = resolved.found.url
        stored = await stored_token(origin_of(url), egress)
        card = _read_card(resolved)
        shown = choose_credentials(settings, agent, card.security_schemes or {} if card else {}, stored)
        if debug is not None:
            debug.add_secrets(shown.secrets)
            debug.card(without_query(resolved.place), resolved.found.card)
        listed = interfaces(resolved.found.card, url, places(url).base, as_listed=True)
        if wish is not None:
            _check_named(wish.interface, listed)
        for warning in shown.warnings:
            warn(warning)
        trusted = (url, *settings["trust-origin"].values)
        bare = Doors(egress, trusted, None, TIMEOUTS, tls)
        shows = Doors(egress, trusted, shown.credentials, TIMEOUTS, tls)
        try:
            seen = Observations(
                agent=without_query(agent),
                place=without_query(resolved.place),
                card=resolved.found.card,
                card_exchange=None if resolved.vouched else await _fetch(egress, url, debug),
                signature=await describe_signature(resolved, settings, egress),
                public=await _is_public(url),
                tls=await egress.reach(url, timeout_s=PROBE_S) if url.startswith("https://") else None,
                unspoken=tuple(_unspoken(resolved.found.card)),
                schemes=card.security_schemes or {} if card else {},
                requirements=card.security_requirements if card else (),
                authenticated=shown.given,
                now_s=time.time(),
            )
            until_s = began_s + ALL_S
            left_s = (LOOK_S if wish is None else LOOK_BEFORE_TRIAL_S) - (time.monotonic() - began_s)
            trust = settings["trust-origin"].values
            asks_extended = seen.extends
            looks = [
                EndpointLook(
                    each,
                    resolved,
                    bare,
                    shows,
                    shown,
                    headers,
                    egress,
                    trust,
                    asks_extended=asks_extended,
                    debug=None if debug is None else debug.branch(),
                )
                for each in listed[:ENDPOINTS_MAX]
            ]
            seen = replace(seen, endpoints=await _look_at_all(looks, max(left_s, 1.0)))
            if wish is None:
                return seen
            second = _second_caller(settings, second_key, seen.schemes)
            trials = [
                await _try(look, wish, second, until_s, streams=seen.streams)
                for look in _choose_endpoints(settings, resolved, looks, wish.interface)
            ]
            if not trials:
                return seen
            first, *others = trials
            return replace(seen, tried_at=first.endpoint, attempts=first.attempts, further=tuple(others))
        finally:
            await bare.close()
            await shows.close()
    finally:
        await egress.close()


def _check_named(named: str, listed: Sequence[Interface]) -> None:
    """Raise Failure if `named` is no interface of the card."""
    if named and named != EVERY and not any(_is_named(each, named) for each in listed):
        there = ", ".join(f"{each.binding}/{each.dialect} at {without_query(each.url)}" for each in listed) or "none"
        raise Failure(Code.USAGE, f"--interface {named!r} is not in the card, which has {there}", hint=f"or {EVERY}")


def _is_named(interface: Interface, named: str) -> bool:
    """Whether `named` is the interface's URL, or its binding, with or without its version."""
    if "://" in named:
        return without_query(interface.url).rstrip("/") == without_query(named).rstrip("/")
    binding, _, version = named.partition("/")
    return binding_of(binding) == interface.binding and version in ("", interface.dialect)


def _choose_endpoints(
    settings: Settings, resolved: ResolvedCard, looks: list[EndpointLook], named: str
) -> list[EndpointLook]:
    """Choose the endpoint that is `named`, or that the client commands would use, or the first one that answers.

    For `EVERY` all that answer.
    """
    answering = [look for look in looks if look.answers]
    if named == EVERY:
        return answering
    if named:
        return [look for look in looks if _is_named(look.interface, named)][:1]
    try:
        preferred = choose_interface(settings, resolved)
    except Failure:
        preferred = None
    return [look for look in answering if look.interface == preferred][:1] or answering[:1]


def _second_caller(settings: Settings, key: str, schemes: Mapping[str, Any]) -> AgentCredentials:
    """Return what another caller shows: the key, where the card wants an API key, else as a bearer token."""
    if not key:
        return AgentCredentials()
    agent = settings.text("agent-card")
    given = {"agent-card": (agent,), "api-key": (key,), "bearer": (key,)}
    return choose_credentials(Settings(given, {}, ()), agent, dict(schemes), None)


async def _try(
    look: EndpointLook, wish: Wish, second: AgentCredentials, until_s: float, *, streams: bool
) -> EndpointTrial:
    """Make the attempts at one endpoint, as far as the time allows."""
    async with AsyncExitStack() as open_:
        connection = await open_.enter_async_context(look.connect(look.shown))
        other = await open_.enter_async_context(look.connect(second)) if second.given else None
        trial = Trial(connection, other, wish, streams=streams)
        try:
            async with asyncio.timeout(until_s - time.monotonic()):
                await trial.run()
        except TimeoutError:
            pass  # what has come is recorded; the rest is not measured
    return EndpointTrial(endpoint=look.endpoint, attempts=dict(trial.outcomes))


async def _look_at_all(looks: list[EndpointLook], within_s: float) -> tuple[Endpoint, ...]:
    try:
        async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
            for look in looks:
                group.create_task(look.run())
    except TimeoutError:
        pass  # what has come is recorded; the rest is not measured
    return tuple(look.endpoint for look in looks)


async def _fetch(egress: Egress, url: str, debug: DebugLog | None) -> Exchange:
    return await send_request(egress, "GET", url, {"Accept": ACCEPT, "A2A-Version": "1.0"}, None, debug)


async def _is_public(url: str) -> bool:
    """Whether every address of a URL's host is on the public internet."""
    host = urlsplit(origin_of(url)).hostname or ""
    try:
        return all(fault(address) is None for address in await find_addresses(host, None)) if host else False
    except OSError:
        return False


def _read_card(resolved: ResolvedCard) -> Any:
    try:
        return decode_card(resolved.found.card)
    except Unfit:
        return None


def _unspoken(card: Mapping[str, Any]) -> list[str]:
    """Name the endpoints of a list whose binding or version this tool does not speak."""
    listed = card.get("supportedInterfaces")
    named = []
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict):
            continue
        binding = each.get("protocolBinding") or each.get("transport") or JSONRPC
        version = each.get("protocolVersion") or card.get("protocolVersion") or "1.0"
        if not isinstance(binding, str) or not isinstance(version, str):
            continue
        if binding_of(binding) is None or dialect_of(version) is None:
            named.append(f"{binding} {version} {each.get('url')}")
    return named
