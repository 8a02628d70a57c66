"""The endpoints of conversations. A conversation is a context of the caller's tasks, under its id.

Invariant: nothing is kept of a conversation but its tasks. One without tasks exists under every id that the server
gives out, so that another caller's and none look the same.
"""

from uuid import UUID

import msgspec

from dragoman.bindings.http import HttpRequest, HttpResponse, json_response, read_json
from dragoman.bindings.responses.pages import answer_page
from dragoman.bindings.responses.turns import ResponseTurns
from dragoman.dialects.responses.decode import decode_conversation, decode_page
from dragoman.dialects.responses.objects import CONVERSATION, ConversationItem, Json, encode_conversation
from dragoman.dialects.responses.turn import first_turn
from dragoman.model.errors import AgentNotFound, NotFound, TaskNotEnded
from dragoman.model.ids import new_id, timestamp_ms
from dragoman.model.operations import ListTasks, TaskPage
from dragoman.model.task import INTERRUPTED, Record

LOOKED_AT = 20
"""How many of a conversation's tasks, the newest first, are looked at for one that waits for an answer."""


class Conversations:
    """Conversations of callers."""

    def __init__(self, turns: ResponseTurns) -> None:
        self._turns = turns

    async def answer_new(self, request: HttpRequest) -> HttpResponse:
        """Answer `POST /v1/conversations`. Raises A2AError."""
        self._turns.reception.callers.admit_any(request)
        decode_conversation(await read_json(request, self._turns.reception.limits, empty_allowed=True))
        context_id = new_id()
        return _answer(encode_conversation(context_id, _made_ms(context_id) or 0))

    async def answer_one(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET` and `DELETE /v1/conversations/{id}`. Raises A2AError."""
        text = request.route.ids["id"]
        context_id = _context_id(text)
        records = await self._records(request, context_id, own=request.method == "DELETE")
        if request.method == "DELETE":
            if any(not record.terminal for record in records):
                raise TaskNotEnded(
                    "a task of the conversation has not ended: wait for it, answer its question, or cancel the task"
                )
            for record in records:
                await self._turns.delete(request, record.head.id, record.head.agent)
            return _answer({"id": text, "object": "conversation.deleted", "deleted": True})
        made_ms = _made_ms(context_id)
        if records:
            made_ms = min(timestamp_ms(record.head.created_at) for record in records) if made_ms is None else made_ms
        if made_ms is None:
            raise _absent(text)
        return _answer(encode_conversation(context_id, made_ms))

    async def answer_items(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /v1/conversations/{id}/items`. Raises A2AError."""
        text, page = request.route.ids["id"], decode_page(request.query_fields())
        context_id = _context_id(text)
        records = await self._records(request, context_id)
        if not records and _made_ms(context_id) is None:
            raise _absent(text)
        items: list[ConversationItem] = []
        for record in sorted(records, key=lambda record: record.head.id):
            items += await self._items(request, record)
        return answer_page(page, items)

    async def find_waiting(self, request: HttpRequest, context_id: str, agent: str) -> str | None:
        """The task of a conversation that waits for an answer: of several, the one whose status is the newest."""
        listing = ListTasks(context_id=context_id, page_size=LOOKED_AT, history_length=0, own=True, tenant=agent)
        page = await self._turns.handler.call(await self._turns.make_call(request, listing))
        assert isinstance(page, TaskPage)
        return next((record.head.id for record in page.records if record.state in INTERRUPTED), None)

    async def _records(self, request: HttpRequest, context_id: str, *, own: bool = False) -> list[Record]:
        """The tasks of a context with all agents that the caller may use, or its own alone. Raises A2AError."""
        reception, turns = self._turns.reception, self._turns
        reception.callers.admit_any(request)
        agents = [name for name in reception.agents if reception.callers.admits(request, name)]
        if not agents:
            raise AgentNotFound("")
        found: list[Record] = []
        token = ""
        while True:
            listing = ListTasks(
                context_id=context_id,
                page_size=100,
                page_token=token,
                include_artifacts=True,
                every_agent=True,
                own=own,
                tenant=agents[0],
            )
            page = await turns.handler.call(await turns.make_call(request, listing))
            assert isinstance(page, TaskPage)
            found += [record for record in page.records if record.head.agent in agents]
            token = page.next_page_token
            if not token:
                return found

    async def _items(self, request: HttpRequest, record: Record) -> list[ConversationItem]:
        """The items of all turns of a task, as its responses have them; of its first turn, if its log is gone."""
        head = record.head
        first = first_turn(record)
        if first is not None:
            return first.encode_items()
        return await self._turns.read_items(request, head.id, head.agent)


def _answer(body: Json) -> HttpResponse:
    return json_response(200, msgspec.json.encode(body))


def _context_id(text: str) -> str:
    """The context of the conversation with an id. Raises NotFound."""
    if not text.startswith(CONVERSATION) or text == CONVERSATION:
        raise _absent(text)
    return text.removeprefix(CONVERSATION)


def _absent(text: str) -> NotFound:
    return NotFound(f"no conversation {text[:200]!r}: use the `id` of one")


def _made_ms(context_id: str) -> int | None:
    """When the server made an id, in milliseconds since the epoch (RFC 9562 §5.7); None for another's id."""
    try:
        uuid = UUID(context_id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == 7 and str(uuid) == context_id else None
