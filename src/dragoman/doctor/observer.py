"""Looks at an agent: fetches its card, and asks each endpoint what changes nothing there.

Invariant: without a Wish no message is sent, and nothing is stored at the agent. Every wait ends: what has not answered
in time is recorded as such.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.client import (
    CallTimedOut,
    Interface,
    NoCard,
    NotReached,
    interfaces,
)
from dragoman.client.card import binding_of, dialect_of
from dragoman.client.decode import tongue
from dragoman.client.discovery import ACCEPT, places
from dragoman.client.doors import Doors
from dragoman.client.errors import Tried
from dragoman.dialects.cards import JSONRPC
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.doctor.look import (
    PROBE_S,
    TIMEOUTS,
    EndpointLook,
    certificate_fault,
    now_s,
    send_request,
    without_query,
)
from dragoman.doctor.observation import (
    Endpoint,
    EndpointTrial,
    Exchange,
    Observations,
)
from dragoman.doctor.subject import CallerIdentity, CardUnfit, ExaminationFailed, ExchangeLog, Subject, SubjectCard
from dragoman.doctor.trial import EVERY, Trial, Wish
from dragoman.doctor.webhook import Listen, open_webhook
from dragoman.net.address import fault
from dragoman.net.dialer import find_addresses
from dragoman.net.egress import Egress

LOOK_S = 25.0
"""How long all endpoints may take together. They are asked at the same time."""

LOOK_BEFORE_TRIAL_S = 10.0
"""The same, if messages are sent after that."""

ALL_S = 24.0
"""When the last attempt ends, counted from the beginning."""

END_S = 4.0
"""How long it may take to cancel what was begun."""

LIMIT_S = ALL_S + END_S + 1.5
"""How long everything may take."""

CARD_S = 12.0
"""How long it may take to find the card."""

ENDPOINTS_MAX = 8
"""How many endpoints of a card are asked; further ones are counted as not tried."""


Progress = Callable[[Observations], None]
"""Is told what has been observed so far."""


def _tell_nobody(seen: Observations) -> None:
    pass


async def observe(
    subject: Subject, wish: Wish | None = None, progress: Progress = _tell_nobody, listen: Listen = open_webhook
) -> Observations:
    """Look at an agent, and with a `wish` send it messages; `listen` opens a webhook that the agent can call.

    Raises ExaminationFailed, or what the subject raises, if the agent cannot be reached, or if its card or anything
    else takes too long.
    """
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _observe(subject, wish, progress, listen)
    except TimeoutError as error:
        told = f"the examination took longer than {LIMIT_S:g} s"
        raise ExaminationFailed("timeout", told, "try again later") from error


async def _observe(subject: Subject, wish: Wish | None, progress: Progress, listen: Listen) -> Observations:
    began_s = now_s()
    agent, origin = subject.agent, subject.origin
    try:
        async with asyncio.timeout(CARD_S):
            card = await subject.find_card()
    except TimeoutError as error:
        raise ExaminationFailed("unreachable", f"{agent} shows no card within {CARD_S:g} s") from error
    except CardUnfit as unfit:
        return await _observe_none(subject, unfit.tried or (Tried(origin, str(unfit)),))
    except NoCard as error:
        return await _observe_none(subject, error.tried)
    except (NotReached, CallTimedOut) as error:
        if not (reason := certificate_fault(error)):
            raise
        return Observations(agent=agent, place=origin, certificate=reason, now_s=time.time())
    return await _observe_card(subject, card, wish, progress, listen, began_s)


async def _observe_none(subject: Subject, tried: Sequence[Tried]) -> Observations:
    """Return what was served in the place of a card. The most telling answer is asked for again, to keep its bytes."""
    telling = next((each.url for each in tried if not each.other and each.answer != "HTTP status 404"), "")
    telling = telling if telling.startswith(("http://", "https://")) else ""
    return Observations(
        agent=subject.agent,
        place=subject.origin,
        tried=tuple((without_query(each.url), each.answer) for each in tried),
        card_exchange=await _fetch(subject.egress, telling, subject.log) if telling else None,
        public=await _is_public(subject.origin),
    )


async def _observe_card(
    subject: Subject, card: SubjectCard, wish: Wish | None, progress: Progress, listen: Listen, began_s: float
) -> Observations:
    """Look at the endpoints of a card, and with a `wish` send messages. `began_s` is when the examination began."""
    agent, egress, url = subject.agent, subject.egress, card.found.url
    read = _read_card(card)
    schemes = read.security_schemes or {} if read else {}
    shown = await subject.identify(card, schemes)
    listed = interfaces(card.found.card, url, places(url).base, as_listed=True)
    if wish is not None:
        _check_named(wish.interface, listed)
        wanted = wish.interface
        listed = tuple(sorted(listed, key=lambda each: not _is_named(each, wanted)))  # it is asked in any case
    named = [*subject.trusted, *(each.url for each in listed if card.vouched)]
    trusted = (url, *named)
    bare = Doors(egress, trusted, None, TIMEOUTS, subject.tls)
    shows = Doors(egress, trusted, shown.credentials, TIMEOUTS, subject.tls)
    try:
        seen = Observations(
            agent=agent,
            place=without_query(card.place),
            at_root=card.at_root,
            card=card.found.card,
            card_exchange=None if card.vouched else await _fetch(egress, url, subject.log),
            signature=await subject.describe_signature(card),
            public=await _is_public(url),
            tls=await egress.reach(url, timeout_s=PROBE_S) if url.startswith("https://") else None,
            unspoken=tuple(_unspoken(card.found.card)),
            untried=max(len(listed) - ENDPOINTS_MAX, 0),
            schemes=schemes,
            requirements=read.security_requirements if read else (),
            authenticated=shown.given,
            now_s=time.time(),
        )
        progress(seen)
        until_s = began_s + ALL_S
        left_s = (LOOK_S if wish is None else LOOK_BEFORE_TRIAL_S) - (now_s() - began_s)
        looks = [
            EndpointLook(
                each,
                card,
                bare,
                shows,
                shown,
                subject.headers,
                egress,
                named,
                asks_extended=seen.extends,
                asks_webhooks=seen.pushes,
                debug=None if subject.log is None else subject.log.branch(),
            )
            for each in listed[:ENDPOINTS_MAX]
        ]
        seen = replace(seen, endpoints=await _look_at_all(looks, max(left_s, 1.0), seen, progress))
        if wish is None:
            return seen
        second = subject.identify_other(seen.schemes)
        trials: list[EndpointTrial] = []
        for look in _choose_endpoints(subject, card, looks, wish.interface):
            trials.append(await _try(look, wish, second, listen, until_s, streams=seen.streams))
            first, *others = trials
            seen = replace(seen, tried_at=first.endpoint, attempts=first.attempts, further=tuple(others))
            progress(seen)
        return seen
    finally:
        await bare.close()
        await shows.close()


def _check_named(named: str, listed: Sequence[Interface]) -> None:
    """Raise ExaminationFailed if `named` is no interface of the card."""
    if named and named != EVERY and not any(_is_named(each, named) for each in listed):
        there = ", ".join(f"{each.binding}/{each.dialect} at {without_query(each.url)}" for each in listed) or "none"
        told = f"--interface {named!r} is not in the card, which has {there}"
        raise ExaminationFailed("usage", told, f"or {EVERY}")


def _is_named(interface: Interface, named: str) -> bool:
    """Whether `named` is the interface's URL, or its binding, with or without its version."""
    if "://" in named:
        return without_query(interface.url).rstrip("/") == without_query(named).rstrip("/")
    binding, _, version = named.partition("/")
    return binding_of(binding) == interface.binding and version in ("", interface.dialect)


def _choose_endpoints(subject: Subject, card: SubjectCard, looks: list[EndpointLook], named: str) -> list[EndpointLook]:
    """Choose the endpoint that is `named`, or that the subject prefers, or the first one that answers.

    For `EVERY` all that answer.
    """
    answering = [look for look in looks if look.answers]
    if named == EVERY:
        return answering
    if named:
        return [look for look in looks if _is_named(look.interface, named)][:1]
    preferred = subject.prefer(card)
    return [look for look in answering if look.interface == preferred][:1] or answering[:1]


async def _try(
    look: EndpointLook, wish: Wish, second: CallerIdentity, listen: Listen, until_s: float, *, streams: bool
) -> EndpointTrial:
    """Make the attempts at one endpoint, as far as the time allows; none at one that may not be dialled.

    What was begun is canceled, also if the examination is interrupted.
    """
    if look.endpoint.refused:
        return EndpointTrial(endpoint=look.endpoint)
    tape = look.tape()
    async with AsyncExitStack() as open_:
        connection = await open_.enter_async_context(look.connect(look.shown, tape))
        other = await open_.enter_async_context(look.connect(second)) if second.given else None
        host = urlsplit(look.interface.url).hostname or ""
        webhook = await open_.enter_async_context(listen(host)) if wish.webhooks else None
        spoken = tongue(look.interface.dialect)
        trial = Trial(
            connection,
            other,
            tape,
            wish,
            streams=streams and spoken.streams,
            subscribes=spoken.subscribes,
            official=look.endpoint.official,
            webhook=webhook,
        )
        try:
            async with asyncio.timeout_at(until_s):
                await trial.run()
        except TimeoutError:
            pass  # what has come is recorded; the rest is not measured
        finally:
            try:
                async with asyncio.timeout(END_S):
                    await trial.end()
            except TimeoutError:
                pass
    return EndpointTrial(endpoint=look.endpoint, attempts=dict(trial.outcomes))


async def _look_at_all(
    looks: list[EndpointLook], within_s: float, seen: Observations, progress: Progress
) -> tuple[Endpoint, ...]:
    done: list[EndpointLook] = []

    async def look_at(one: EndpointLook) -> None:
        await one.run()
        done.append(one)
        progress(replace(seen, endpoints=tuple(each.endpoint for each in looks if each in done)))

    try:
        async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
            for look in looks:
                group.create_task(look_at(look))
    except TimeoutError:
        pass  # what has come is recorded; the rest is not measured
    return tuple(look.endpoint for look in looks)


async def _fetch(egress: Egress, url: str, debug: ExchangeLog | None) -> Exchange:
    return await send_request(egress, "GET", url, {"Accept": ACCEPT, "A2A-Version": "1.0"}, None, debug)


async def _is_public(url: str) -> bool:
    """Whether every address of a URL's host is on the public internet."""
    host = urlsplit(url).hostname or ""
    try:
        return all(fault(address) is None for address in await find_addresses(host, None)) if host else False
    except OSError:
        return False


def _read_card(card: SubjectCard) -> Any:
    try:
        return decode_card(card.found.card)
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
