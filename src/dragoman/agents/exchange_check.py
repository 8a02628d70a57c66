"""The check of a token exchange: whether the issuer would exchange callers' tokens, as far as can be seen without one.

Invariant: no caller's token is needed, and none is issued by an issuer that looks at what it is given: the one that is
sent is signed by nobody.
"""

from collections.abc import AsyncIterator

from dragoman.client.errors import NoToken, TokenRefused
from dragoman.client.token_exchange import TokenExchange
from dragoman.engine.api import CheckResult

LOOK_AT = "look at client_id, method, and the variable that `credentials` names"

SEE_WHETHER = "see whether token_url is right, and its server runs"

FIXES = {
    "invalid_client": ("does not know this server as a client", LOOK_AT),
    "unauthorized_client": (
        "does not let this server exchange tokens",
        "allow the client token exchange at the issuer, for this audience",
    ),
    "unsupported_grant_type": (
        "does not exchange tokens",
        "turn token exchange (RFC 8693) on at the issuer, or use another kind of `credentials`",
    ),
    "invalid_target": ("does not know the audience or the resource", "name it as the issuer does"),
    "invalid_scope": ("does not know the scope", "name scopes of the audience, as the issuer does"),
}
"""The faults that an error code of the issuer stands for, and their fixes. Any other code is about the token itself."""


async def check_exchange(exchange: TokenExchange) -> AsyncIterator[CheckResult]:
    """Yield the findings about an exchange."""
    where = exchange.place
    if not exchange.safe:
        yield CheckResult(
            False,
            f"{where} is sent callers' tokens without TLS",
            "give the https:// URL of the issuer's token endpoint",
        )
    try:
        refused = await exchange.probe()
    except NoToken as error:
        words = str(error).removeprefix(f"{error.url}: ")
        yield CheckResult(False, f"{where} gives no answer: {words}", SEE_WHETHER)
        return
    if refused is None:
        fix = "do not use this issuer before it verifies the tokens that it exchanges"
        yield CheckResult(False, f"{where} exchanged a token that nobody has signed", fix)
        return
    fault, fix = _find_fault(refused)
    if fault:
        yield CheckResult(False, f"{where} {fault}{f' ({refused.code})' if refused.code else ''}", fix)
        return
    target = exchange.terms.target
    yield CheckResult(True, f"{where} exchanges tokens for {target}: whether it takes those of callers was not tried")


def _find_fault(refused: TokenRefused) -> tuple[str, str]:
    """The fault that a refusal stands for, and its fix; both empty if it is about the token itself."""
    code, status = refused.code, refused.status
    if code in FIXES:
        return FIXES[code]
    if status == 401:
        return FIXES["invalid_client"]
    if status in (404, 405) or status >= 500:
        return f"is no token endpoint (status {status})", SEE_WHETHER
    return "", ""
