"""The agent that the options of a command name, as the doctor examines it.

Invariant: credentials go only where those of the client commands go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dragoman.cli.a2a.commands.card import describe_signature
from dragoman.cli.a2a.credentials import AgentCredentials, choose_credentials, secret_values
from dragoman.cli.a2a.failures import Failure
from dragoman.cli.a2a.output import warn
from dragoman.cli.a2a.reference import ResolvedCard, origin_of, resolve_card
from dragoman.cli.a2a.session import (
    choose_interface,
    login_origin,
    make_tls,
    named_agent,
    say_root,
    service_parameters,
)
from dragoman.cli.a2a.settings import Level, Settings
from dragoman.cli.a2a.tokens import stored_token
from dragoman.cli.a2a.wire import DebugLog
from dragoman.cli.endings import Code
from dragoman.client import Interface, interfaces
from dragoman.client.discovery import places
from dragoman.client.errors import NoCard
from dragoman.doctor.look import TIMEOUTS, without_query
from dragoman.doctor.observation import Observations
from dragoman.doctor.observer import observe
from dragoman.doctor.subject import CallerIdentity, CardUnfit, ExaminationFailed, ExchangeLog, SubjectCard
from dragoman.doctor.trial import Wish
from dragoman.net.egress import Egress
from dragoman.net.tls import ClientTls

_CODES = {"timeout": Code.TIMEOUT, "unreachable": Code.UNREACHABLE, "usage": Code.USAGE}


class NamedSubject:
    """The agent that `settings` name. `second_key` is the key of another caller."""

    def __init__(self, settings: Settings, egress: Egress, tls: ClientTls, second_key: str) -> None:
        """Raises Failure if no agent is named, SettingsError for parameters that are no headers."""
        self._settings = settings
        self._reference = named_agent(settings)
        self._second_key = second_key
        self._debug: DebugLog | None = None
        self.agent = without_query(self._reference)
        self.origin = origin_of(self._reference)
        self.egress = egress
        self.tls = tls
        self.headers: Mapping[str, str] = service_parameters(settings, self._reference)
        self.trusted: Sequence[str] = settings["trust-origin"].values
        if settings.flag("debug"):
            self._debug = DebugLog([*self.headers.values(), *secret_values(settings), second_key])
        self.log: ExchangeLog | None = self._debug
        self.secrets = [*self.headers.values(), *secret_values(settings), *filter(None, (second_key,))]
        """The values that no output may have."""

    async def find_card(self) -> SubjectCard:
        """See `Subject`."""
        try:
            resolved = await resolve_card(self._reference, egress=self.egress, headers={})
        except Failure as failure:
            if failure.code != Code.CARD_INVALID or not self.origin:
                raise
            cause = failure.__cause__
            raise CardUnfit(failure.message, cause.tried if isinstance(cause, NoCard) else ()) from failure
        say_root(self._reference, resolved)
        return SubjectCard(
            found=resolved.found, place=resolved.place, vouched=resolved.vouched, at_root=resolved.at_root
        )

    async def identify(self, card: SubjectCard, schemes: Mapping[str, Any]) -> CallerIdentity:
        """See `Subject`."""
        found = card.found
        listed = interfaces(found.card, found.url, places(found.url).base)
        stored = await stored_token(login_origin(_resolved(card), [each.url for each in listed]), self.egress)
        shown = choose_credentials(self._settings, self._reference, dict(schemes), stored)
        self.secrets += shown.secrets
        if self._debug is not None:
            self._debug.add_secrets(shown.secrets)
            self._debug.card(without_query(card.place), card.found.card)
        for warning in shown.warnings:
            warn(warning)
        return _identity(shown)

    def identify_other(self, schemes: Mapping[str, Any]) -> CallerIdentity:
        """Return what another caller shows: the key, where the card wants an API key, else as a bearer token."""
        if not self._second_key or self._settings["agent-card"].level is Level.FOUND_FILE:
            return CallerIdentity()
        agent = self._settings.text("agent-card")
        given = {"agent-card": (agent,), "api-key": (self._second_key,), "bearer": (self._second_key,)}
        return _identity(choose_credentials(Settings(given, {}, ()), agent, dict(schemes), None))

    async def describe_signature(self, card: SubjectCard) -> str:
        """See `Subject`. Raises SettingsError."""
        return await describe_signature(_resolved(card), self._settings, self.egress)

    def prefer(self, card: SubjectCard) -> Interface | None:
        """Return the endpoint that the other client commands would use."""
        try:
            return choose_interface(self._settings, _resolved(card))
        except Failure:
            return None


class Examined(NamedTuple):
    """The observations of an agent, and the values that no output of them may have."""

    seen: Observations
    secrets: Sequence[str]


async def examine_named(settings: Settings, wish: Wish | None = None, second_key: str = "") -> Examined:
    """Look at the agent that the settings name, and with a `wish` send it messages.

    Raises Failure if the agent cannot be reached, or if its card or anything else takes too long; SettingsError.
    """
    tls = await make_tls(settings, named_agent(settings))
    egress = Egress(tls=tls, connect_timeout_s=TIMEOUTS.connect_s)
    try:
        subject = NamedSubject(settings, egress, tls, second_key)
        return Examined(await observe(subject, wish), subject.secrets)
    except ExaminationFailed as failed:
        raise Failure(_CODES[failed.reason], failed.message, hint=failed.hint) from failed
    finally:
        await egress.close()


def _resolved(card: SubjectCard) -> ResolvedCard:
    return ResolvedCard(found=card.found, place=card.place, vouched=card.vouched)


def _identity(shown: AgentCredentials) -> CallerIdentity:
    return CallerIdentity(credentials=shown.credentials, query=shown.query)
