"""The inputs of a crew: the message, in the places that the crew's tasks and agents have.

Invariant: whatever places a crew has, the message reaches it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragoman.agents.frameworks.conversation import Said

MESSAGE = "message"
HISTORY = "history"

UNPLACED = "crewai_trigger_payload"
"""The input that CrewAI itself puts below the first task."""


def inputs_of(places: Iterable[str], words: Said, data: Any, past: Sequence[Said]) -> dict[str, Any]:
    """The inputs. `{message}` and `{history}` have their literal meaning; fields of data fill the places they name.

    If a single place is left, the text fills it. Without any place, the text, with the earlier conversation, is the
    payload of a trigger.
    """
    wanted = set(places)
    given: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {}
    given.setdefault(MESSAGE, words.text)
    given.setdefault(HISTORY, told(past))
    if not wanted:
        before = f"{told(past)}\nuser: " if past else ""
        return given | {UNPLACED: before + words.text}
    left = missing(wanted, given)
    return given | {left[0]: words.text} if len(left) == 1 else given


def missing(places: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    """The places that have no input."""
    return sorted(set(places) - set(given))


def told(past: Sequence[Said]) -> str:
    """A conversation as one text."""
    return "\n".join(f"{'agent' if words.agent else 'user'}: {words.text}" for words in past)
