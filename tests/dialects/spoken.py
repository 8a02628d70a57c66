"""Operations and answers made up by hypothesis, and the server's way of reading them."""

from typing import Any
from urllib.parse import parse_qsl

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.bindings.routes import Routes
from dragoman.dialects.api import Answer, Dialect, RestCall, RestRequest
from dragoman.dialects.extensions import USAGE, usage_metadata
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    Result,
    SendMessage,
    StreamMessage,
    Subscribe,
    TaskPage,
)
from dragoman.model.task import STATES, Progress, Record, Task, TaskHead, TaskState, TaskStatus, Usage
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update

WHEN = "2026-11-20T07:00:00.000Z"
ROUTES = Routes(["echo"], "echo")

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
words = texts.filter(bool)
ids = words.filter(lambda text: text not in (".", "..") and ":" not in text)
some_ids = st.none() | ids
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words.filter(lambda name: name != "skill"), values, min_size=1, max_size=3)
metadata = st.none() | objects
lists = st.lists(words, max_size=2).map(tuple)
files = st.fixed_dictionaries({}, optional={"filename": words, "media_type": words, "metadata": objects})
parts = st.one_of(
    st.builds(Part, text=texts, metadata=metadata),
    st.builds(lambda raw, rest: Part(raw=raw, **rest), st.binary(max_size=20), files),
    st.builds(lambda url, rest: Part(url=url, **rest), words, files),
    st.builds(Part, data=values, metadata=metadata),
)
some_parts = st.lists(parts, min_size=1, max_size=3).map(tuple)
messages = st.builds(
    Message,
    message_id=ids,
    role=st.sampled_from(Role),
    parts=some_parts,
    context_id=some_ids,
    task_id=some_ids,
    metadata=metadata,
    extensions=lists,
    reference_task_ids=lists,
)
artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    parts=some_parts,
    name=st.none() | words,
    description=st.none() | words,
    metadata=metadata,
    extensions=lists,
)
tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
webhooks = st.builds(
    lambda scheme, config: replace(config, scheme=scheme, credentials=config.credentials if scheme else None),
    st.none() | st.just("Bearer") | st.just("Basic"),
    st.builds(
        PushConfig,
        url=words,
        id=st.just("") | ids,
        token=st.none() | tokens,
        credentials=st.none() | tokens,
        secret=st.none() | st.text("abc", min_size=16, max_size=20),
        events=st.sampled_from([(), ("completed",), ("artifact", "input-required")]),
    ),
)
lengths = st.none() | st.integers(0, 2**31 - 1)


def sends(kind: type[SendMessage]) -> st.SearchStrategy[SendMessage]:
    return st.builds(
        kind,
        message=messages,
        return_immediately=st.booleans(),
        history_length=lengths,
        accepted_output_modes=lists,
        metadata=metadata,
        skill=st.none() | words,
        push_config=st.none() | webhooks,
    )


operations: st.SearchStrategy[Operation] = st.one_of(
    sends(SendMessage),
    sends(StreamMessage),
    st.builds(GetTask, id=ids, history_length=lengths),
    st.builds(
        ListTasks,
        context_id=st.none() | words,
        state=st.none() | st.sampled_from(STATES),
        page_size=st.integers(1, 100),
        page_token=texts,
        history_length=lengths,
        status_after_ms=st.none() | st.integers(0, 4 * 10**12),
        include_artifacts=st.booleans(),
    ),
    st.builds(CancelTask, id=ids, metadata=metadata),
    st.builds(Subscribe, id=ids),
    st.builds(lambda config, task: CreatePushConfig(config=replace(config, task_id=task)), webhooks, ids),
    st.builds(GetPushConfig, task_id=ids, id=ids),
    st.builds(ListPushConfigs, task_id=ids, page_size=st.integers(0, 100), page_token=texts),
    st.builds(DeletePushConfig, task_id=ids, id=ids),
    st.just(GetExtendedCard()),
)

HEAD = TaskHead(id="t1", context_id="c1", agent="a", owner="o", dialect="1.0", mount="/", created_at=WHEN)
statuses = st.builds(TaskStatus, state=st.sampled_from(STATES), message=st.none() | messages, timestamp=st.just(WHEN))
usages = st.builds(Usage, st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
records = st.builds(
    Record,
    head=st.just(HEAD),
    seq=st.just(7),
    status=statuses,
    artifacts=st.lists(artifacts, max_size=2).map(tuple),
    history=st.lists(messages, max_size=2).map(tuple),
    usage=st.none() | usages,
    duration_ms=st.none() | st.integers(0, 10**6),
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(ArtifactChunk, artifact=artifacts, append=st.booleans(), last_chunk=st.booleans()),
    st.builds(
        StatusChanged,
        state=st.sampled_from(STATES),
        timestamp=st.just(WHEN),
        message=st.none() | messages,
        progress=st.none() | st.builds(Progress, st.integers(0, 99), st.integers(0, 99), texts),
        usage=st.none() | usages,
        duration_ms=st.none() | st.integers(0, 10**6),
        metadata=metadata,
    ),
    st.builds(Submitted, message=messages, timestamp=st.just(WHEN)),
)


def task_of(record: Record, history_length: int | None = None, artifacts: bool = True) -> Task:
    """The task that a client is told of."""
    history = record.history
    if history_length is not None:
        history = history[len(history) - min(history_length, len(history)) :]
    metadata = None
    if record.usage is not None or record.duration_ms is not None:
        metadata = {USAGE: usage_metadata(record.usage, record.duration_ms)}
    return Task(
        id=record.head.id,
        context_id=record.head.context_id,
        status=record.status,
        artifacts=record.artifacts if artifacts else (),
        history=history,
        metadata=metadata,
    )


def answer_of(operation: Operation, result: Result) -> Answer:
    """The result as a client has it: a webhook lacks its secrets."""
    limit = operation.history_length if isinstance(operation, SendMessage | GetTask | ListTasks) else None
    match result:
        case Record():
            return task_of(result, limit)
        case TaskPage():
            shows = isinstance(operation, ListTasks) and operation.include_artifacts
            tasks = tuple([task_of(each, limit, shows) for each in result.records])
            return TaskList(tasks=tasks, next_page_token=result.next_page_token, total_size=result.total_size)
        case PushConfig():
            return secretless(result)
        case tuple():
            return tuple([secretless(each) for each in result])
        case _:
            return result


def secretless(config: PushConfig) -> PushConfig:
    return PushConfig(url=config.url, id=config.id, task_id=config.task_id, token=config.token, scheme=config.scheme)


def update_of(head: TaskHead, event: Event) -> tuple[Update, ...]:
    """The event as a client is told of it."""
    match event:
        case ArtifactChunk():
            return (
                ArtifactUpdate(
                    task_id=head.id,
                    context_id=head.context_id,
                    artifact=event.artifact,
                    append=event.append,
                    last_chunk=event.last_chunk,
                ),
            )
        case StatusChanged():
            used = event.usage if event.duration_ms is None else event.usage or Usage()
            return (
                StatusUpdate(
                    task_id=head.id,
                    context_id=head.context_id,
                    status=TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp),
                    metadata=event.metadata,
                    progress=event.progress,
                    usage=used,
                ),
            )
        case Submitted():
            status = TaskStatus(state=TaskState.SUBMITTED, timestamp=event.timestamp)
            return (Task(id=head.id, context_id=head.context_id, status=status, history=(event.message,)),)
        case _:
            return ()


def routed(dialect: Dialect, call: RestCall, base: str = "/agents/echo") -> Operation:
    """The operation that the server reads from an HTTP+JSON call."""
    path, _, query = call.path.partition("?")
    route = ROUTES.find((base + path).encode())
    assert route.endpoint == "rest"
    assert dialect.decode_rest is not None
    given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    return dialect.decode_rest(RestRequest(route.methods[call.verb], route.ids, given, call.body))


def builtins(value: Any) -> Any:
    """A value as a vector holds it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def changed(value: Any, at: int, by: object) -> Any:
    """The value with what is at one place in it replaced."""
    left = [at]

    def walk(each: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            return by
        if isinstance(each, dict):
            return {name: walk(inner) for name, inner in each.items()}
        return [walk(inner) for inner in each] if isinstance(each, list) else each

    return walk(value)


def without_references(value: Any) -> Any:
    """The same without `referenceTaskIds`, which protobuf JSON of 0.3 does not have."""
    match value:
        case Message():
            return replace(value, reference_task_ids=())
        case Submitted() | StatusChanged():
            return replace(value, message=without_references(value.message))
        case Record():
            history = tuple([without_references(each) for each in value.history])
            status = replace(value.status, message=without_references(value.status.message))
            return replace(value, history=history, status=status)
        case TaskPage():
            return replace(value, records=tuple([without_references(each) for each in value.records]))
        case _:
            return value


def part_in_0_3(part: Part) -> Part:
    """The part as 0.3 can say it: only files have names and media types."""
    return part if part.raw is not None or part.url is not None else replace(part, filename=None, media_type=None)
