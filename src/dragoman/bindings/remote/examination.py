"""The doctor's examination of an agent that an operator names by URL.

Invariant: the agent is reached by the ways of the console alone. Findings that are told before the end are of what has
been asked by then; what is not measured is said only in the end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.bindings.remote.failures import audited_url
from dragoman.bindings.remote.values import Examination, RemoteFailure
from dragoman.bindings.remote.ways import RemoteWays
from dragoman.client import Interface, find_card
from dragoman.client.credentials import ApiKey
from dragoman.client.discovery import places
from dragoman.doctor.checks import CHECKS
from dragoman.doctor.checks.behavior import BEHAVIOR_CHECKS
from dragoman.doctor.checks.card import CARD_CHECKS
from dragoman.doctor.finding import Color, judge_all
from dragoman.doctor.fixes import fixes_of
from dragoman.doctor.identity import identify
from dragoman.doctor.observation import Observations
from dragoman.doctor.signature import describe_signature, fetch_served_keys
from dragoman.doctor.subject import CallerIdentity, ExchangeLog, SubjectCard
from dragoman.net.tls import MACHINE_TLS


class PastedSubject:
    """The agent at a URL, and the credential that it is shown, if any."""

    def __init__(self, url: str, ways: RemoteWays, shown: ApiKey | None) -> None:
        """Raises BadUrl."""
        where = places(url)
        self._url = url
        self._shown = shown
        self._at_root = where.names_host
        self.agent = audited_url(url)
        self.origin = "/".join(where.base.split("/", 3)[:3])
        self.egress = ways.to(where.base)
        self.tls = MACHINE_TLS
        self.headers: Mapping[str, str] = {}
        self.trusted: Sequence[str] = ()
        self.log: ExchangeLog | None = None

    async def find_card(self) -> SubjectCard:
        """See `Subject`."""
        found = await find_card(self._url, egress=self.egress)
        return SubjectCard(found=found, place=found.url, at_root=self._at_root)

    async def identify(self, card: SubjectCard, schemes: Mapping[str, Any]) -> CallerIdentity:
        """See `Subject`."""
        return CallerIdentity(credentials=self._shown)

    def identify_other(self, schemes: Mapping[str, Any]) -> CallerIdentity:
        """See `Subject`."""
        return CallerIdentity()

    async def describe_signature(self, card: SubjectCard) -> str:
        """See `Subject`."""
        return await describe_signature(card.found, await fetch_served_keys(card.found, self.egress))

    def prefer(self, card: SubjectCard) -> Interface | None:
        """See `Subject`."""
        return None


def judge_part(seen: Observations, secrets: Sequence[str]) -> Examination:
    """The findings of what has been asked so far, without those that are not measured. No text has the `secrets`."""
    asked = CARD_CHECKS if not seen.endpoints else CHECKS
    checks = [check for check in asked if seen.attempts or check not in BEHAVIOR_CHECKS]
    found = [
        finding
        for finding in judge_all(checks, seen, fixes_of(identify(seen)), secrets)
        if finding.color is not Color.GREY
    ]
    return Examination(
        agent=seen.agent, card_url=seen.place, server="", evidence="", findings=tuple(found), failure=None
    )


def judge_whole(seen: Observations, failure: RemoteFailure | None, secrets: Sequence[str]) -> Examination:
    """The findings in the end; none if the agent could not be examined. No text has the `secrets`."""
    known = identify(seen)
    return Examination(
        agent=seen.agent,
        card_url=seen.place,
        server="" if failure is not None else known.name,
        evidence="" if failure is not None else known.evidence,
        findings=() if failure is not None else tuple(judge_all(CHECKS, seen, fixes_of(known), secrets)),
        failure=failure,
    )
