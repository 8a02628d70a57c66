"""What is wrong with an upstream that cannot be called, in words for its operator, and what to do about it.

Invariant: pure. What is to be changed is named by its key in the configuration.
"""

from dragoman.agents.remote.card_keys import NoKeys
from dragoman.auth.signatures import CardNotVerified
from dragoman.client.errors import NoAnswer, NoCard, NoToken, PeerError

NOT_READ = "its card has not been read yet"
LATE = "its card did not come in time"
NO_CARD = "it has no card where one may be"
NO_TOKEN = "there is no token for it"
NO_KEYS = "the keys that its card is to be signed with cannot be had"
NOT_SIGNED = "its card is not signed by a key of `card_keys`"
NOT_HAD = "its card cannot be had"
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
    NOT_CALLED: "add that server to `origins` if it may be called, or have its operator mend the card",
    NOT_REACHED: "see whether it runs where its card says, and whether a firewall is in between",
    NOT_LET_IN: "see whether `credentials` are right: the variable of the environment, and the `header`",
    NOT_THERE: "see whether the URL in `run` is right, and the one that its card names",
    BUSY: "try again later; if it stays so, ask its operator",
    NOT_WELL: "see what is there: a proxy, a page, or an agent that is starting",
    NOT_HAD: "see whether it runs and the URL in `run` is right, and whether it wants `credentials`",
}
"""What to do about each of the faults."""

Unfound = NoAnswer | PeerError | CardNotVerified | NoKeys
UNFOUND = (NoAnswer, PeerError, CardNotVerified, NoKeys)
"""What comes of looking for a card that cannot be used."""

_KEYS = {
    "`path=`": "`card`",
    "`dialect=`": "`dialect`",
    "`origins=`": "`origins`",
    "Retries(dedupes=True)": "`dedupes = true`",
}
"""What errors of the client call what the configuration has, too."""


def fault_of(error: Unfound) -> str:
    """Which of the faults it is."""
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
    """What an error says, on one line, with the keys of the configuration in place of the client's arguments."""
    head, *tried = str(error).split("\n  ")  # where a card was looked for, a line each
    text = f"{head} {'; '.join(tried)}" if tried else head
    for argument, key in _KEYS.items():
        text = text.replace(argument, key)
    return text
