"""Checks of safety: TLS, authentication that is declared and enforced, and what web pages may do."""

import re
from collections.abc import Iterator

from dragoman.doctor.finding import Check, Color, Verdict
from dragoman.doctor.observation import NO_ERROR, Exchange, HarmlessRequest, Observations

ORIGIN = "https://doctor.invalid"
"""The origin of a web page that nobody has (RFC 6761 §6.4)."""

DAY_S = 24 * 3600.0
EXPIRES_SOON_DAYS = 14
"""Certificates are renewed some weeks before they expire; this late it has failed."""


OWN_AUTHORITY = (
    "serve https with a certificate of a public authority, or trust the authority of your own with --ca-cert"
)
"""The fix where the signer of a certificate is not known."""


def _tls(seen: Observations) -> Iterator[Verdict]:
    if seen.certificate:
        yield Verdict(Color.RED, f"the certificate is not trusted: {seen.certificate}", fix=OWN_AUTHORITY)
    elif seen.tls is not None:
        yield _certificate(seen)
    elif seen.place.startswith("http://"):
        usual = "" if seen.public else ", which is usual in a network of one's own"
        yield Verdict(Color.RED if seen.public else Color.GREY, f"the card is served over http{usual}")
    for endpoint in seen.endpoints:
        if seen.public and endpoint.interface.url.startswith(("http://", "grpc://")):
            yield Verdict(Color.RED, "without TLS", endpoint.name)


def _certificate(seen: Observations) -> Verdict:
    assert seen.tls is not None
    if seen.tls.expires_s is None:
        return Verdict(Color.GREY, f"{seen.tls.version}; the certificate was not verified")
    days = int((seen.tls.expires_s - seen.now_s) // DAY_S)
    color = Color.YELLOW if days < EXPIRES_SOON_DAYS else Color.GREEN
    return Verdict(color, f"{seen.tls.version}; the certificate is valid for {days} more days")


def _declared(seen: Observations) -> Iterator[Verdict]:
    if seen.card is None:
        return
    if seen.asks:
        yield Verdict(Color.GREEN, f"callers must authenticate: {', '.join(seen.schemes) or 'by no named scheme'}")
    elif seen.schemes:
        yield Verdict(Color.GREEN, f"callers may authenticate: {', '.join(seen.schemes)}")
    else:
        color = Color.YELLOW if seen.public else Color.GREY
        yield Verdict(color, "the card declares no authentication: anybody who reaches the agent may call it")


def _enforced(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.NO_CREDENTIALS)
        if came is None or came.failure or came.refused:
            continue
        if came.denied:
            undeclared = not seen.schemes
            color = Color.RED if undeclared else Color.GREEN
            note = ", but the card declares no scheme" if undeclared else ""
            yield Verdict(
                color, f"a call without credentials is refused with {came.words}{note}", endpoint.name, exchange=came
            )
        elif not seen.asks or not _are_declared(seen):
            continue
        elif came.rpc_code == -32001 or came.status == 404 or came.error == "TaskNotFound":
            yield Verdict(Color.RED, "a call without credentials is answered like any other", endpoint.name, "", came)
        else:
            yield Verdict(Color.GREY, f"not clear: without credentials the answer is {came.words}", endpoint.name)


def _are_declared(seen: Observations) -> bool:
    """Whether every scheme that the card requires is in the card."""
    return all(name in seen.schemes for each in seen.requirements for name in each.get("schemes", each))


def _challenge(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.NO_CREDENTIALS)
        if came is None or came.status != 401:
            continue
        challenge = came.headers.get("www-authenticate", "").partition(" ")[0].rstrip(",")
        color = Color.GREEN if challenge else Color.YELLOW
        yield Verdict(
            color, f"a 401 with {'WWW-Authenticate: ' + challenge if challenge else 'no challenge'}", endpoint.name
        )


def _pages(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.PREFLIGHT)
        if came is None or came.failure or came.refused:
            continue
        allowed = came.headers.get("access-control-allow-origin", "")
        with_cookies = came.headers.get("access-control-allow-credentials", "").lower() == "true"
        if allowed == ORIGIN and with_cookies:
            yield Verdict(
                Color.RED, "web pages of any origin may call with the user's cookies", endpoint.name, "", came
            )
        elif allowed in (ORIGIN, "*") and not seen.public and not seen.asks:
            yield Verdict(
                Color.YELLOW, "any web page that somebody here opens may call the agent", endpoint.name, "", came
            )
        elif allowed in (ORIGIN, "*"):
            yield Verdict(Color.GREEN, "web pages of any origin may call, without cookies", endpoint.name)
        else:
            yield Verdict(Color.GREEN, "web pages of other origins may not call", endpoint.name)


def _transport_security(seen: Observations) -> Iterator[Verdict]:
    if seen.card_exchange is None or seen.certificate:
        return
    said = seen.card_exchange.headers.get("strict-transport-security", "")
    if seen.tls is None:
        if said:
            yield Verdict(Color.YELLOW, "Strict-Transport-Security is sent over http, where browsers ignore it")
        return
    age = re.search(r"(?i)(?:^|;)\s*max-age\s*=\s*\"?([0-9]{1,10})", said)
    if not said:
        yield Verdict(Color.GREY, "no Strict-Transport-Security: it is for hosts that browsers visit over https alone")
    elif age is None or int(age[1]) == 0:
        yield Verdict(Color.YELLOW, f"Strict-Transport-Security without a max-age that lasts: {said[:80]}")
    else:
        yield Verdict(Color.GREEN, f"Strict-Transport-Security for {int(age[1]) // int(DAY_S)} days")


def _extended(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.EXTENDED_CARD)
        if came is None or came.failure or came.refused:
            continue
        if _has_card(came) and seen.schemes:
            yield Verdict(Color.RED, "anybody may read the extended card", endpoint.name, "", came)
        elif _has_card(came):
            yield Verdict(
                Color.YELLOW, "there is an extended card, and callers are not authenticated", endpoint.name, "", came
            )
        elif came.denied:
            yield Verdict(Color.GREEN, f"the extended card is refused to strangers with {came.words}", endpoint.name)
        else:
            yield Verdict(Color.GREY, f"not clear: a stranger who asks for it gets {came.words}", endpoint.name)


def _extended_served(seen: Observations) -> Iterator[Verdict]:
    for endpoint in seen.endpoints:
        came = endpoint.answers.get(HarmlessRequest.OWN_EXTENDED_CARD)
        if came is None or came.failure or came.refused or not endpoint.official:
            continue
        if _has_card(came):
            yield Verdict(Color.GREEN, "the extended card is there, as the card says", endpoint.name)
        elif came.denied:
            why = "" if seen.authenticated else ": give credentials"
            yield Verdict(
                Color.GREY, f"not measured: the extended card is answered with {came.words}{why}", endpoint.name
            )
        else:
            told = f"the card says that there is an extended card, and a request for it is answered with {came.words}"
            yield Verdict(Color.RED, told, endpoint.name, exchange=came)


def _has_card(came: Exchange) -> bool:
    """Whether an answer is a card. Over gRPC it is whatever is no error."""
    if came.error == NO_ERROR:
        return True
    match came.document:
        case {"result": {"name": str()}}:
            return True
        case {"name": str()}:
            return came.status == 200
    return False


SAFETY_CHECKS = (
    Check(
        name="tls",
        section="A2A 1.0 §7.1",
        fix="serve https with a certificate of a public authority, and renew it in time",
        judge=_tls,
        must=True,
    ),
    Check(
        name="authentication-declared",
        section="A2A 1.0 §7.3",
        fix="declare securitySchemes and securityRequirements in the card",
        judge=_declared,
    ),
    Check(
        name="authentication-enforced",
        section="A2A 1.0 §7.4",
        fix="refuse calls without credentials with 401, and declare in the card what callers must show",
        judge=_enforced,
        must=True,
    ),
    Check(
        name="authentication-challenge",
        section="A2A 1.0 §7.4",
        fix="send WWW-Authenticate with a 401",
        judge=_challenge,
    ),
    Check(
        name="extended-card",
        section="A2A 1.0 §13.3",
        fix="ask for credentials before the extended card is given, or take it out of the capabilities",
        judge=_extended,
        must=True,
    ),
    Check(
        name="extended-card-served",
        section="A2A 1.0 §3.1.11, §4.4.3",
        fix="configure the extended card, or take it out of the capabilities",
        judge=_extended_served,
        must=True,
        hides=frozenset({"extended-card"}),
    ),
    Check(
        name="transport-security",
        section="RFC 6797 §6.1, §7.2",
        fix="send Strict-Transport-Security over https alone, with a max-age of some months",
        judge=_transport_security,
    ),
    Check(
        name="web-pages",
        section="Fetch standard, CORS protocol",
        fix="name the origins that may call in Access-Control-Allow-Origin",
        judge=_pages,
    ),
)
"""The rows, in the order of the report."""
