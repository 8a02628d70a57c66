"""Requests that chat interfaces make for themselves: titles, tags, suggestions.

They look like messages of a user in a conversation of their own, and nobody would ever answer a question about them.

Invariant: a request is taken for a chore only if it is one message without turns before it that has every sign of a row
of the table, so that what a person writes into a chat is none.
"""

from collections.abc import Sequence

from msgspec import Struct

from dragoman.model.message import Message


class Chore(Struct, frozen=True):
    """The signs of the prompts of one interface: how they begin, and the words that they hold."""

    interface: str
    begins: str
    holds: tuple[str, ...] = ()


CHORES = (
    # Open WebUI 0.12.4, open_webui/config.py: DEFAULT_…_PROMPT_TEMPLATE for titles, tags, follow-ups, search queries,
    # images. That of retrieval begins likewise, and holds no history of the chat.
    Chore("Open WebUI", "### Task:\n", ("<chat_history>\n", "</chat_history>")),
    Chore("Open WebUI", "### Task:\nYou are an autocompletion system.", ("<text>", "</text>")),
    Chore("Open WebUI", "Your task is to reflect the speaker's likely facial expression through a fitting emoji."),
    # LibreChat, @librechat/agents src/utils/title.ts, and its older prompts in api/app/clients/prompts.
    Chore("LibreChat", "Provide a concise, 5-word-or-less title for the conversation", ("Conversation:",)),
    Chore(
        "LibreChat",
        "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title",
    ),
    Chore("LibreChat", "Please generate a concise, 5-word-or-less title for the conversation"),
)
"""The prompts as their interfaces have them by default. Operators of an interface can write others."""


def is_chore(message: Message, others: Sequence[Message]) -> bool:
    """Whether a request with these messages asks for something that the interface itself wants."""
    if any(other.metadata is None or "role" not in other.metadata for other in others):
        return False
    texts = [part.text for said in (*others, message) for part in said.parts if part.text is not None]
    return any(
        text.startswith(chore.begins) and all(sign in text for sign in chore.holds)
        for text in texts
        for chore in CHORES
    )
