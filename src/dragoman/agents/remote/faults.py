"""Why an upstream cannot be called, in words for its operator, and what to do about it.

Invariant: pure. A setting to change is named by its key in the configuration.
"""

from dragoman.agents.remote.card_keys import NoKeys
from dragoman.auth.signatures import CardNotVerified
from dragoman.client.errors import NoAnswer, NoCard, NoToken, PeerError

NOT_READ = "its card has not been read yet"
LATE = "its card did not come in time"
NO_CARD = "it has no card where one is expected"
NO_TOKEN = "there is no token for it"
NO_KEYS = "the keys that must have signed its card cannot be read"
NOT_SIGNED = "its card is not signed by a key of `card_keys`"
NOT_HAD = "its card cannot be read"
NOT_CALLED = "its card names an address that is not called from here"
NOT_REACHED = "its endpoint does not answer"
NOT_LET_IN = "it does not let this server in"
NOT_THERE = "there is no agent where it is called"
BUSY = "it takes no tasks at present"
NOT_WELL = "its endpoint does not answer as an agent does"

FIXES = {
    LATE: "see whether it runs, and whether a firewall is in between",
    NO_CARD: "see whether the URL in `run` is right; `card` says where the card is, `dialect` does without one",
    NO_TOKEN: "see whether `credentials` are right: `token_url`, `client_id`, and the secret in the environment",
    NO_KEYS: "see whether `card_keys` names the file, or the URL, of a JWK Set",
    NOT_SIGNED: "see who signed it, and which keys its server publishes",
    NOT_CALLED: "add that server to `origins` if it may be called, or have its operator correct the card",
    NOT_REACHED: "see whether it runs where its card says, and whether a firewall is in between",
    NOT_LET_IN: "see whether `credentials` are right: the variable of the environment, and the `header`",
    NOT_THERE: "see whether the URL in `run` is right, and the one that its card names",
    BUSY: "try again later; if it stays so, ask its operator",
    NOT_WELL: "see what is there: a proxy, a page, or an agent that is starting",
    NOT_HAD: "see whether it runs and the URL in `run` is right, and whether it wants `credentials`",
}
"""The fix for each of the faults."""

Unfound = NoAnswer | PeerError | CardNotVerified | NoKeys
UNFOUND = (NoAnswer, PeerError, CardNotVerified, NoKeys)
"""The errors of a search for a card that finds no usable one."""

_KEYS = {
    "`path=`": "`card`",
    "`dialect=`": "`dialect`",
    "`origins=`": "`origins`",
    "Retries(dedupes=True)": "`dedupes = true`",
}
"""Arguments in the client's error texts, and the configuration keys that replace them."""


def fault_of(error: Unfound) -> str:
    """Return the fault that an error stands for."""
    match error:
        case NoCard():
            return NO_CARD
        case NoToken():
            return NO_TOKEN
        case NoKeys():
            return NO_KEYS
        case CardNotVerified():
            return NOT_SIGNED
        case _:
            return NOT_HAD


def in_words(error: Exception) -> str:
    """An error's text on one line, with configuration keys in place of the client's arguments."""
    head, *tried = str(error).split("\n  ")  # the places where a card was looked for, one a line
    text = f"{head} {'; '.join(tried)}" if tried else head
    for argument, key in _KEYS.items():
        text = text.replace(argument, key)
    return text
