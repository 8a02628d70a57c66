"""ResponseTurn: one turn of a task as the events of a stream, and as the response that they add up to.

    before ── Submitted, or what follows a question ──► under way ── a question, or the end ──► over

A turn begins with a message of the caller, and with whatever else follows a question, such as an operator's answer. The
number of an event is its place among the events of the turn.

Text is sent as it comes, all of it in one item. An artifact may be replaced (`append: false`), as by the second attempt
of a run: while its new text repeats what was sent, nothing is sent; where it goes on, only the rest. Where it differs,
the open item is closed as `incomplete`, and a new one begins with all that the artifacts say now.

Invariant: a pure function of the log's events, from the first one on. Nothing that was sent is taken back: the response
that ends the stream has exactly the items of its events.
"""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects.openai.encode import BETWEEN, CUT_OFF, text_of
from dragoman.dialects.responses.objects import (
    RESPONSE,
    TASK_STATE,
    ConversationItem,
    EchoedParameters,
    ImageItem,
    Json,
    MessageItem,
    OutputItem,
    ResponseBody,
    TextContent,
    count_usage,
    encode_input,
    facts_of,
    is_image,
    make_response,
    seconds_of,
)
from dragoman.model.events import ArtifactChunk, Event, MessageReceived, StatusChanged, Stepped, Submitted
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead, TaskState, Usage

OF_THE_TASK = "\0"
"""Stands for the artifact in text that is not of one: a question, and last words."""

FAILED = "The agent failed."
CANCELED = "The task was canceled."


class ArtifactText:
    """The text of one artifact: `base` was there before the turn, `sent` was sent in the present item.

    `behind` is how much of both its new text has repeated so far; -1 once it has caught up.
    """

    __slots__ = ("base", "behind", "known", "sent")

    def __init__(self, base: str = "") -> None:
        self.base = base
        self.sent: list[str] = []
        self.behind = -1
        self.known = ""

    def begin_anew(self) -> None:
        """The artifact is about to be replaced."""
        self.known = self.base + "".join(self.sent)
        self.behind = 0 if self.known else -1

    def compare(self, text: str) -> str | None:
        """Add a piece of the new text. Returns what goes beyond what is known, or None if it differs from that."""
        known, at = self.known, self.behind
        if known.startswith(text, at):
            at += len(text)
            self.behind = -1 if at == len(known) else at
            return ""
        if text.startswith(known[at:]):
            self.behind = -1
            return text[len(known) - at :]
        whole = known[:at] + text
        if whole.startswith(self.base):
            whole = whole[len(self.base) :]
        else:
            self.base = ""
        self.sent, self.behind = [whole], -1
        return None

    def settle(self) -> bool:
        """Take the new text as it is. Returns whether it is another one than was sent in the turn."""
        if self.behind < 0:
            return False
        now = self.known[len(self.base) : self.behind]
        differs = now != "".join(self.sent)
        self.sent, self.behind = [now], -1
        return differs

    def whole(self) -> str:
        """All of its text as it stands."""
        return self.base + "".join(self.sent) if self.behind < 0 else self.known[: self.behind]


class OpenItem:
    """The message that is being written: its id, its place in the output, and its text so far.

    `opening` is how each of its deltas begins.
    """

    __slots__ = ("index", "item_id", "opening", "pieces")

    def __init__(self, item_id: str, index: int, opening: bytes) -> None:
        self.item_id = item_id
        self.index = index
        self.opening = opening
        self.pieces: list[str] = []


class ResponseTurn:
    """Turn `number` of a task, as its log tells it. `quiet`: only the response is wanted, and no events are encoded.

    `begun` and `over` say how far the log has come. `asks`: the task waits with the question that ended a turn;
    with that of this turn, if it is over. `question` is the id of that question. `state` is that of the task.
    `sequence` is the number of events so far, unless the turn is quiet.
    """

    def __init__(self, head: TaskHead, number: int, *, quiet: bool = False) -> None:
        self.head = head
        self.number = number
        self.id = f"{RESPONSE}{head.id}_{number}"
        self.begun = self.over = self.asks = False
        self.question = ""
        self.sequence = 0
        self.state: TaskState | None = None
        self.facts: EchoedParameters = facts_of(None)
        self.inputs: list[Message] = []
        """The messages of the turn, in order."""
        self._quiet = quiet
        self._reached = 0
        self._texts: dict[str, ArtifactText] = {}
        self._images: set[bytes] = set()
        self._spoke = False
        self._writer = OF_THE_TASK
        self._item: OpenItem | None = None
        self._items: list[OutputItem | OpenItem] = []
        self._created = head.created_at
        self._usage: Usage | None = None
        self._usage_before: Usage | None = None
        self._status = "in_progress"
        self._ended: dict[str, Any] = {}

    def following(self, *, quiet: bool = False) -> "ResponseTurn":
        """The turn that begins with the next event of the log. The task waits with a question."""
        after = ResponseTurn(self.head, self._reached + 1, quiet=quiet)
        after._reached, after.asks = self._reached, self.asks
        after._usage = self._usage
        after._texts = {key: ArtifactText(text.whole()) for key, text in self._texts.items()}
        return after

    def add_event(self, event: Event) -> list[bytes]:
        """Add the next event of the log. Returns the frames of the turn's events that it makes."""
        if self.over:
            self._look_beyond(event)
            return []
        match event:
            case ArtifactChunk(artifact, append):
                return self._add_chunk(artifact.artifact_id, artifact.parts, append=append)
            case StatusChanged():
                return self._add_status(event)
            case Submitted(message, at):
                return self._begin_turn(at, message, self.head.metadata)
            case MessageReceived(message, at, metadata):
                if self.asks:
                    return self._begin_turn(at, message, metadata)
                if self.begun:
                    self.inputs.append(message)
            case Stepped():
                self._usage = event.usage or self._usage
            case _:
                pass
        return []

    def continue_to(self, message_id: str) -> "ResponseTurn":
        """The turn for the next event on the way to a message: the next one, if this one is over without it."""
        missed = self.over and all(message.message_id != message_id for message in self.inputs)
        return self.following(quiet=self._quiet) if missed else self

    def encode_inputs(self) -> list[ConversationItem]:
        """Encode the messages of the turn as items, oldest first."""
        return [
            encode_input(message, f"msg_{self.head.id}_{self.number}_in{at}") for at, message in enumerate(self.inputs)
        ]

    def encode_items(self) -> list[ConversationItem]:
        """Encode the messages of the turn, and what it has given out, as items."""
        return [*self.encode_inputs(), *self.response().output] if self.begun else []

    @property
    def weight(self) -> int:
        """About how many bytes the response has."""
        weight = 0
        for each in self._items:
            match each:
                case OpenItem(pieces=pieces):
                    weight += sum(map(len, pieces))
                case MessageItem(content=(TextContent(text=text),)):
                    weight += len(text)
                case ImageItem(result=result):
                    weight += len(result or "")
                case _:
                    pass
        return weight

    def response(self) -> ResponseBody:
        """The response as it stands."""
        queued = self.state is TaskState.SUBMITTED and not self.over
        items = [self._whole_item(each, "in_progress") if isinstance(each, OpenItem) else each for each in self._items]
        response = self._make("queued" if queued else self._status, items)
        return replace(response, **self._ended) if self._ended else response

    # -- the log -------------------------------------------------------------------------------------------------------

    def _look_beyond(self, event: Event) -> None:
        """Follow the log behind the turn: does the task still wait with the question of this turn, or has it ended?"""
        if isinstance(event, StatusChanged | MessageReceived):
            self.asks = False
        if isinstance(event, StatusChanged):
            self.state = event.state

    def _begin_turn(self, at: str, message: Message | None, metadata: dict[str, Any] | None) -> list[bytes]:
        self.asks = False
        self._reached += 1
        self.state = TaskState.SUBMITTED if self._reached == 1 else TaskState.WORKING
        if self._reached != self.number:
            return []
        self.begun = True
        self.facts, self._usage_before = facts_of(metadata), self._usage
        if self.number > 1:
            self._created = at
        for text in self._texts.values():
            text.base, text.sent, text.behind = text.whole(), [], -1
        if message is not None:
            self.inputs += (*self.head.earlier, message) if self.number == 1 else (message,)
        if self._quiet:
            return []
        response = self._make("in_progress", [])
        return [
            self._frame("response.created", {"response": response}),
            self._frame("response.in_progress", {"response": response}),
        ]

    def _add_status(self, status: StatusChanged) -> list[bytes]:
        frames: list[bytes] = []
        state = status.state
        if self.asks:
            if state in TERMINAL:  # the task ended without an answer: the turn that asked stays as it is
                self.asks = False
                self.state = state
                return []
            frames = self._begin_turn(status.timestamp, None, None)
        self.state = state
        self._usage = status.usage or self._usage
        asks = state in INTERRUPTED
        if self.begun and (asks or state in TERMINAL):
            frames += self._end_turn(status, asks=asks)
        if asks:
            self.asks, self.question = True, "" if status.message is None else status.message.message_id
        return frames

    # -- text ----------------------------------------------------------------------------------------------------------

    def _add_chunk(self, artifact_id: str, parts: tuple[Part, ...], *, append: bool) -> list[bytes]:
        text = parts[0].text if len(parts) == 1 else None
        if text is not None:
            return self._add_text(artifact_id, text, append=append)
        images = [(at, part) for at, part in enumerate(parts) if is_image(part)]
        first = next((at for at, part in enumerate(parts) if text_of((part,))), len(parts))
        frames = self._add_images(part for at, part in images if at < first)
        frames += self._add_text(artifact_id, text_of(parts), append=append)
        return frames + self._add_images(part for at, part in images if at > first)

    def _add_text(self, artifact_id: str, text: str, *, append: bool) -> list[bytes]:
        known = self._texts.get(artifact_id)
        if known is None:
            known = self._texts[artifact_id] = ArtifactText()
        elif not append:
            if not self.begun:
                known.sent = [text]
                return []
            known.begin_anew()
        if known.behind >= 0:
            rest = known.compare(text)
            if rest is None:
                return self._begin_item_anew(artifact_id)
            text = rest
        if not text:
            return []
        known.sent.append(text)
        return self._send(artifact_id, text) if self.begun else []

    def _begin_item_anew(self, artifact_id: str = "") -> list[bytes]:
        """Close the open item, because it no longer is what the artifacts say, and begin one that is.

        The artifact that is being written comes last, so that its next text follows.
        """
        frames = self._close_item("incomplete")
        for key, each in sorted(self._texts.items(), key=lambda item: item[0] == artifact_id):
            each.settle()
            if text := "".join(each.sent):
                frames += self._send(key, text)
        return frames

    def _send(self, artifact_id: str, text: str) -> list[bytes]:
        frames: list[bytes] = []
        item = self._item
        if item is None:
            item = self._item = OpenItem(self._item_id("msg"), len(self._items), b"")
            self._items.append(item)
            if not self._quiet:
                place = {"item_id": item.item_id, "output_index": item.index, "content_index": 0}
                # Cast once for each item: most events of a stream are its deltas.
                delta = msgspec.json.encode({"type": "response.output_text.delta", **place, "logprobs": []})
                item.opening = b"event: response.output_text.delta\ndata: %s" % delta[:-1]
                empty = MessageItem(item.item_id, "in_progress", ())
                added = {"output_index": item.index, "item": empty}
                frames.append(self._frame("response.output_item.added", added))
                frames.append(self._frame("response.content_part.added", {**place, "part": TextContent("")}))
        elif artifact_id != self._writer:
            text = BETWEEN + text
        self._writer, self._spoke = artifact_id, True
        item.pieces.append(text)
        if not self._quiet:
            piece = msgspec.json.encode(text)
            frames.append(b'%s,"delta":%s,"sequence_number":%d}\n\n' % (item.opening, piece, self.sequence))
            self.sequence += 1
        return frames

    def _close_item(self, status: str) -> list[bytes]:
        item, self._item = self._item, None
        if item is None:
            return []
        whole = self._items[item.index] = self._whole_item(item, status)
        if self._quiet:
            return []
        (content,) = whole.content
        place = {"item_id": item.item_id, "output_index": item.index, "content_index": 0}
        return [
            self._frame("response.output_text.done", {**place, "text": content.text, "logprobs": []}),
            self._frame("response.content_part.done", {**place, "part": content}),
            self._frame("response.output_item.done", {"output_index": item.index, "item": whole}),
        ]

    def _add_images(self, images: Iterable[Part]) -> list[bytes]:
        """Add images as items of their own, each once: an attempt that is repeated brings the same ones."""
        frames: list[bytes] = []
        for image in images:
            digest = blake2b(image.raw or b"", digest_size=16).digest()
            if digest in self._images:
                continue
            self._images.add(digest)
            if not self.begun:
                continue
            index, item_id = len(self._items), self._item_id("ig")
            item = ImageItem(item_id, "completed", b64encode(image.raw or b"").decode())
            self._items.append(item)
            if not self._quiet:
                for name, each in (("added", ImageItem(item_id, "in_progress", None)), ("done", item)):
                    frames.append(self._frame(f"response.output_item.{name}", {"output_index": index, "item": each}))
        return frames

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end_turn(self, status: StatusChanged, *, asks: bool) -> list[bytes]:
        """End the turn, as the task's state says: with the output, a question, or the reason why there is none."""
        frames: list[bytes] = []
        state, message = status.state, status.message
        words = "" if message is None else text_of(message.parts)
        ended: dict[str, Any] = {"usage": count_usage(self._usage_before, self._usage)}
        name, cut_off = "incomplete", False
        self._status = ""
        if state is TaskState.COMPLETED or asks:
            cut_off = message is not None and (message.metadata or {}).get("reason") == CUT_OFF
            differs = [each.settle() for each in self._texts.values()]  # each, not only the first one that differs
            if any(differs):
                frames += self._begin_item_anew()
            if words and (asks or not (cut_off or self._spoke)):
                frames += self._send(OF_THE_TASK, words)
            if not cut_off:
                name = "completed"
                ended["completed_at"] = seconds_of(status.timestamp)
            else:
                ended["incomplete_details"] = {"reason": "max_output_tokens"}
            if asks:
                ended["metadata"] = {**self.facts.labels, TASK_STATE: SPELLED[state]}
        elif state is TaskState.CANCELED:
            self._status = "cancelled"
        else:
            name = "failed"
            code = "invalid_prompt" if state is TaskState.REJECTED else "server_error"
            ended["error"] = {"code": code, "message": words or FAILED}
        frames += self._close_item("completed" if name == "completed" else "incomplete")
        self._status, self._ended = self._status or name, ended
        self.over = True
        if not self._quiet:
            frames.append(self._frame(f"response.{name}", {"response": self.response()}))
        return frames

    # -- JSON ----------------------------------------------------------------------------------------------------------

    def _item_id(self, kind: str) -> str:
        return f"{kind}_{self.head.id}_{self.number}_{len(self._items)}"

    def _whole_item(self, item: OpenItem, status: str) -> MessageItem:
        text = "".join(item.pieces)
        item.pieces = [text]
        return MessageItem(item.item_id, status, (TextContent(text),))

    def _make(self, status: str, output: list[OutputItem]) -> ResponseBody:
        return make_response(self.id, self.head, self.facts, self._created, status, output)

    def _frame(self, name: str, fields: Json) -> bytes:
        number = self.sequence
        self.sequence = number + 1
        event = {"type": name, **fields, "sequence_number": number}
        return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(event))


def first_turn(record: Record) -> ResponseTurn | None:
    """The first turn of a task, by its record; None if the record does not say all that the log has said of it."""
    chunked = bool(record.chunked_artifacts) and len(record.artifacts) > 1  # one may have been written between others
    # An earlier program has not kept `revised`, but a question that was answered.
    revised = record.revised or any(said.role is Role.AGENT for said in record.history)
    if revised or chunked or record.unreadable or not record.history:
        return None
    turn = ResponseTurn(record.head, 1, quiet=True)
    status = record.status
    turn.add_event(Submitted(record.history[0], record.head.created_at))
    turn.inputs += record.history[1:]
    for artifact in record.artifacts:
        turn.add_event(ArtifactChunk(artifact))
    turn.add_event(StatusChanged(status.state, status.timestamp, status.message, usage=record.usage))
    return turn
