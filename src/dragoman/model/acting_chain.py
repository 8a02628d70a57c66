"""The acting chain of a task: who did it for whom, at which audience, as far as tokens are exchanged (RFC 8693).

Invariant: pure. A link holds names, and never a token. A chain from another server is cut to a bounded size.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

NOTE = "acting"
"""The name of the note of a task that holds its chain."""

LINKS_MAX = 8
"""Most links of a chain: as many as agents that a task may come through. A task keeps its oldest ones."""

ACTORS_MAX = 8
"""Most actors that a link names."""

NAME_CHARACTERS = 300
"""Most characters of a name. Subjects, issuers and audiences are often URLs."""


class ActingLink(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token was exchanged for another one, with which a server acts for its caller.

    `subject` is the party for whom it acts, as `issuer` names it. `actors` are those who act, the present one first
    (RFC 8693 §4.1): as the new token names them, else the `client` that exchanged and the actors of the caller's token.
    The token is for `audience`, and has the `scope`. `at` is when it was issued first.
    """

    subject: str
    actors: tuple[str, ...] = ()
    client: str = ""
    issuer: str = ""
    audience: str = ""
    scope: str = ""
    at: str = ""

    def says_same(self, other: "ActingLink") -> bool:
        """Whether the other link differs in nothing but its time."""
        return replace(self, at="") == replace(other, at="")


Chain = tuple[ActingLink, ...]


def with_link(chain: Chain, link: ActingLink) -> Chain:
    """The chain with one more link; the same chain if it says the same already, or is full."""
    if len(chain) >= LINKS_MAX or any(link.says_same(known) for known in chain):
        return chain
    return (*chain, link)


def joined_chain(told: Chain, own: Chain) -> Chain:
    """The chain of a task: as the message that made it tells, and its own links after that.

    If there are too many, the newest stay, since anybody may have made up the older ones.
    """
    return (*told, *own)[-LINKS_MAX:]


def spell_chain(chain: Chain) -> str:
    """The chain as text, for a note of a task."""
    return msgspec.json.encode(chain).decode()


def spelled_chain(text: str) -> Chain:
    """Read a chain that `spell_chain` has spelled; empty for another text, such as a note of somebody's own runner."""
    try:
        return msgspec.json.decode(text, type=Chain) if text else ()
    except msgspec.MsgspecError:
        return ()


def read_chain(told: Any) -> Chain:
    """Read a chain from the metadata of a message, which anybody may have written: what is no link is left out."""
    links: list[ActingLink] = []
    for each in (told if isinstance(told, list) else [])[-LINKS_MAX:]:
        try:
            links.append(_cut(msgspec.convert(each, ActingLink)))
        except msgspec.ValidationError:
            continue
    return tuple(links)


def metadata_of(chain: Chain) -> list[dict[str, Any]]:
    """The chain as a value of metadata."""
    told: list[dict[str, Any]] = msgspec.to_builtins(chain)
    return told


def _cut(link: ActingLink) -> ActingLink:
    texts = {name: cut_name(getattr(link, name)) for name in ("subject", "client", "issuer", "audience", "scope", "at")}
    return replace(link, actors=cut_names(link.actors), **texts)


def cut_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of actors, as many and as long as a link may have."""
    return tuple(map(cut_name, names[:ACTORS_MAX]))


def cut_name(name: str) -> str:
    """A name of another party on one line, as long as a link may have."""
    return "".join(sign for sign in name[:NAME_CHARACTERS] if sign.isprintable())
