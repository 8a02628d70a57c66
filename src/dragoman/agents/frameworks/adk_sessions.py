"""StoredSessionService: sessions of Google's Agent Development Kit in the store.

The conversation has the sessions and their events, the caller has the state of keys that begin with `user:`, and all
callers of the agent together have that of `app:`:

    h/app/user/session   a session as it was made (its events are `sessions.SessionItems`)
    u/app/user/key       a value of `user:`
    a/app/key            a value of `app:`

Invariant: the state of a session is that with which it was made, and what its events changed, in their order. A task
sees the events of tasks that had finished when it first looked, and its own.
"""

import json
import time
import uuid
from secrets import token_hex
from typing import Any

import msgspec
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from msgspec import Struct
from pydantic_core import to_jsonable_python

from dragoman.agents.frameworks.sessions import SessionItems
from dragoman.engine.state_space import StateSpace, read_below
from dragoman.store.api import StateChanged
from dragoman.store.state import StatePut, key_segment


class SessionHead(Struct, frozen=True):
    """A session as it was made, at `made_s`. `token` tells who made it."""

    app: str
    user: str
    id: str
    state: dict[str, Any]
    made_s: float
    token: str


_decode_head = msgspec.json.Decoder(SessionHead).decode


class StoredSessionService(BaseSessionService):  # type: ignore[misc]  # ADK is not installed where types are checked
    """The sessions of one conversation, for the run of a task.

    `conversation`, `caller` and `everyone` are where its events, the values of `user:` and those of `app:` are. Values
    are kept as JSON; one that has no such form becomes text, as in the kit's own services.
    """

    def __init__(self, task: str, conversation: StateSpace, caller: StateSpace, everyone: StateSpace) -> None:
        self._task = task
        self._conversation = conversation
        self._caller = caller
        self._everyone = everyone
        self._items: dict[str, SessionItems] = {}

    async def items_of(self, app_name: str, user_id: str, session_id: str) -> SessionItems:
        """The events of a session. They are loaded once."""
        name = _head_key(app_name, user_id, session_id)
        if name not in self._items:
            items = SessionItems(self._conversation, self._task, name)
            await items.load()
            self._items.setdefault(name, items)
        return self._items[name]

    async def finish(self) -> None:
        """Let the tasks that begin from now on have the events of this one."""
        for items in self._items.values():
            if items.own:
                await items.finish()

    # -- google.adk.sessions.BaseSessionService ------------------------------------------------------------------------

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Make a session. Raises AlreadyExistsError if there is one of this id."""
        given = (session_id or "").strip() or str(uuid.uuid4())
        deltas = _deltas(state or {})
        head = SessionHead(app_name, user_id, given, deltas[""], time.time(), token_hex(8))
        key = _head_key(app_name, user_id, given)
        try:
            await self._conversation.write_entries(
                puts=[StatePut(key, msgspec.json.encode(head))], if_versions={key: 0}
            )
        except StateChanged as changed:
            kept = await self._head(app_name, user_id, given)
            if kept is None or kept.token != head.token:  # else it is this one, and nobody had heard of it
                raise AlreadyExistsError(f"Session with id {given} already exists.") from changed
        await self._keep(app_name, user_id, deltas)
        return await self._session(head, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session with its events, or those that the config asks for; None if there is none."""
        head = await self._head(app_name, user_id, session_id.strip())
        if head is None:
            return None
        session = await self._session(head, await self._events(head))
        if config is not None and config.num_recent_events is not None:
            session.events = session.events[-config.num_recent_events :] if config.num_recent_events else []
        if config is not None and config.after_timestamp is not None:
            before = [place for place, each in enumerate(session.events) if each.timestamp < config.after_timestamp]
            session.events = session.events[before[-1] + 1 :] if before else session.events
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of this conversation without their events, the one that was changed last at the end."""
        below = f"h/{key_segment(app_name)}/" + ("" if user_id is None else f"{key_segment(user_id)}/")
        heads = [_decode_head(entry.value) async for entry in read_below(self._conversation, below)]
        sessions = [await self._session(head, await self._events(head)) for head in heads]
        for session in sessions:
            session.events = []
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session and its events, also those of other tasks."""
        key = _head_key(app_name, user_id, session_id.strip())
        await (await self.items_of(app_name, user_id, session_id.strip())).clear()
        await self._conversation.write_entries(deletes=[key])

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The values of `user:`, by their names without it."""
        return await _values(self._caller, _user_prefix(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event. The same event again changes nothing. Raises SessionNotFoundError if there is no session."""
        if event.partial:
            return event
        if await self._head(session.app_name, session.user_id, session.id) is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        items = await self.items_of(session.app_name, session.user_id, session.id)
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        value = _encode_event(event)
        if not any(value == item.value for item in items.own):
            await self._keep(session.app_name, session.user_id, _deltas(event.actions.state_delta))
            await items.append([value])
            session.last_update_time = event.timestamp
            self._commit_event_to_session(session, event)
        return event

    # -- its parts -----------------------------------------------------------------------------------------------------

    async def _head(self, app_name: str, user_id: str, session_id: str) -> SessionHead | None:
        found = await self._conversation.get_entries([_head_key(app_name, user_id, session_id)])
        return _decode_head(found[0].value) if found else None

    async def _events(self, head: SessionHead) -> list[Event]:
        items = await self.items_of(head.app, head.user, head.id)
        return [Event.model_validate_json(value) for value in items.values]

    async def _session(self, head: SessionHead, events: list[Event]) -> Session:
        state = dict(head.state)
        for event in events:
            state |= _deltas(event.actions.state_delta)[""]
        for prefix, space, below in (
            (State.APP_PREFIX, self._everyone, _app_prefix(head.app)),
            (State.USER_PREFIX, self._caller, _user_prefix(head.app, head.user)),
        ):
            state |= {f"{prefix}{key}": value for key, value in (await _values(space, below)).items()}
        changed_s = events[-1].timestamp if events else head.made_s
        return Session(
            id=head.id,
            app_name=head.app,
            user_id=head.user,
            state=state,
            events=events,
            last_update_time=changed_s,
        )

    async def _keep(self, app_name: str, user_id: str, deltas: dict[str, dict[str, Any]]) -> None:
        """Keep values of `app:` and `user:`."""
        for prefix, space, below in (
            (State.APP_PREFIX, self._everyone, _app_prefix(app_name)),
            (State.USER_PREFIX, self._caller, _user_prefix(app_name, user_id)),
        ):
            puts = [
                StatePut(f"{below}{key_segment(key)}", json.dumps([key, value]).encode())
                for key, value in deltas[prefix].items()
            ]
            if puts:
                await space.write_entries(puts=puts)


def _encode_event(event: Event) -> bytes:
    """The event as JSON. Values of its state without such a form become text."""
    if event.actions.state_delta:
        actions = event.actions.model_copy(update={"state_delta": _plain(event.actions.state_delta)})
        event = event.model_copy(update={"actions": actions})
    return bytes(event.model_dump_json(exclude_none=True).encode())


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = to_jsonable_python(values, fallback=str)
    return plain


def _deltas(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The values by the prefix of their names, without it; empty for the session's own.

    Those of `temp:` are left out.
    """
    deltas: dict[str, dict[str, Any]] = {State.APP_PREFIX: {}, State.USER_PREFIX: {}, "": {}}
    for key, value in _plain(state).items():
        if not key.startswith(State.TEMP_PREFIX):
            prefix = next(prefix for prefix in deltas if key.startswith(prefix))
            deltas[prefix][key.removeprefix(prefix)] = value
    return deltas


async def _values(space: StateSpace, below: str) -> dict[str, Any]:
    pairs = [json.loads(entry.value) async for entry in read_below(space, below)]
    return dict(pairs)


def _head_key(app_name: str, user_id: str, session_id: str) -> str:
    return "/".join(("h", key_segment(app_name), key_segment(user_id), key_segment(session_id)))


def _app_prefix(app_name: str) -> str:
    return f"a/{key_segment(app_name)}/"


def _user_prefix(app_name: str, user_id: str) -> str:
    return f"u/{key_segment(app_name)}/{key_segment(user_id)}/"
