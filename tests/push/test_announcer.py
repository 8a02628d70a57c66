"""The calls about a task, their receivers, and the webhooks that may be registered."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import v03
from dragoman.dialects.api import PushForm, Stands, Told
from dragoman.dialects.beeos.encode import FORM as BEEOS
from dragoman.dialects.evoai.encode import FORM as EVOAI
from dragoman.dialects.protoagent.encode import FORM as PROTOAGENT
from dragoman.engine.announcements import Audience, PutOff, WebhookStep
from dragoman.model.errors import InvalidParams
from dragoman.model.events import ArtifactChunk, Event, MessageReceived, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from dragoman.net.address import Guard
from dragoman.net.errors import Unresolved
from dragoman.push.announcer import (
    EACH_BYTES_MAX,
    News,
    WebhookAnnouncer,
    news_of,
    render_part,
    render_step,
    render_whole,
)
from dragoman.store.api import Append
from dragoman.store.outbox import Delivery, Registration
from tests.push.rig import FORM

assert v03.JSONRPC.push is not None
WHOLE = v03.JSONRPC.push
TIME = "2026-01-01T00:00:00.000Z"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEAD = TaskHead(
    id="t", context_id="c", agent="echo", owner="ann", dialect="1.0", mount="/", created_at=TIME, traceparent=TRACE
)
SAID = Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))
MADE = Artifact(artifact_id="a", parts=(Part(text="made"),))


class Names:
    """DNS, as a table."""

    def __init__(self, **names: str) -> None:
        self._names = {name.replace("_", "."): address for name, address in names.items()}

    async def addresses(self, host: str) -> Sequence[str]:
        if host not in self._names:
            raise Unresolved("does not exist, or has no address: check its name")
        return [self._names[host]]


def announcer(guard: Guard | None = None, **forms: PushForm) -> WebhookAnnouncer:
    names = Names(hooks_example="203.0.114.7", inside_example="10.0.0.7")
    return WebhookAnnouncer({"1.0": FORM, **forms}, guard or Guard(), names, lambda: None)


def render(
    announcer: WebhookAnnouncer,
    head: TaskHead,
    configs: Sequence[PushConfig],
    steps: Sequence[WebhookStep],
    put_off: PutOff,
) -> tuple[Delivery, ...]:
    return announcer.deliveries(head, configs, steps, put_off)[0]


def config(config_id: str = "w", **facts: object) -> PushConfig:
    return PushConfig(**{"id": config_id, "url": "https://hooks.example/x", "dialect": "1.0", **facts})  # type: ignore[arg-type]


def record(state: TaskState, *artifacts: Artifact, seq: int = 2) -> Record:
    return Record(head=HEAD, seq=seq, status=TaskStatus(state=state, timestamp=TIME), artifacts=artifacts)


def step_of(event: Event | None, after: Record, whole: tuple[str, ...] = ()) -> WebhookStep:
    return WebhookStep(seq=after.seq, event=event, state=after.state, stands=lambda: after, whole=whole)


def status(state: TaskState, *artifacts: Artifact, seq: int = 2, whole: tuple[str, ...] = ()) -> WebhookStep:
    return step_of(StatusChanged(state, TIME), record(state, *artifacts, seq=seq), whole)


def told(deliveries: tuple[Delivery, ...]) -> list[str]:
    """The kind of each: its only member, and the state in it if there is one."""
    shown = []
    for delivery in deliveries:
        ((name, value),) = json.loads(delivery.body).items()
        shown.append(f"{name} {value['status']['state']}" if "status" in value else name)
    return shown


def test_a_status_is_told_to_every_configuration() -> None:
    deliveries = render(announcer(), HEAD, [config("w"), config("v")], [status(TaskState.WORKING)], PutOff())
    assert [each.config_id for each in deliveries] == ["w", "v"]
    assert told(deliveries) == ["statusUpdate TASK_STATE_WORKING"] * 2
    assert {(each.seq, each.kept, each.traceparent) for each in deliveries} == {(2, False, TRACE)}
    assert len({each.id for each in deliveries}) == 2


def test_what_is_told_is_rendered_once_for_a_dialect() -> None:
    calls: list[Told] = []

    def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
        calls.append(told)
        return b"{}"

    form = replace(FORM, encode=encode)
    configs = [config("w", dialect="x"), config("v", dialect="x"), config("u")]
    deliveries = render(announcer(x=form), HEAD, configs, [status(TaskState.WORKING)], PutOff())
    assert len(calls) == 1
    assert [each.body == b"{}" for each in deliveries] == [True, True, False]


def test_a_task_is_not_folded_for_a_status_that_is_told_without_it() -> None:
    """Folding costs as much as the task is large: for each of many statuses it would keep all others waiting."""

    def stands() -> Record:
        raise AssertionError

    step = WebhookStep(seq=2, event=StatusChanged(TaskState.WORKING, TIME), state=TaskState.WORKING, stands=stands)
    configs = [config("w"), config("v", dialect="beeos"), config("u", dialect="protoagent")]
    deliveries = render(announcer(beeos=BEEOS, protoagent=PROTOAGENT), HEAD, configs, [step], PutOff())
    assert [each.config_id for each in deliveries] == ["w", "v"]


def test_a_task_is_not_folded_for_an_artifact_that_is_whole_at_once() -> None:
    def stands() -> Record:
        raise AssertionError

    event = ArtifactChunk(MADE, last_chunk=True)
    step = WebhookStep(seq=2, event=event, state=TaskState.WORKING, stands=stands, whole=("a",), changes=False)
    deliveries = render(announcer(), HEAD, [config("w"), config("v", events=("completed",))], [step], PutOff())
    assert [each.config_id for each in deliveries] == ["w"]
    assert json.loads(deliveries[0].body)["artifactUpdate"]["artifact"]["artifactId"] == "a"


def test_artifacts_come_before_the_status_that_closed_them() -> None:
    step = status(TaskState.COMPLETED, MADE, whole=("a",))
    deliveries = render(announcer(), HEAD, [config()], [step], PutOff())
    assert told(deliveries) == ["artifactUpdate", "statusUpdate TASK_STATE_COMPLETED"]
    assert [each.kept for each in deliveries] == [True, True]


def test_what_is_told_of_one_event_has_an_order() -> None:
    other = replace(MADE, artifact_id="b")
    step = status(TaskState.COMPLETED, MADE, other, seq=7, whole=("a", "b"))
    deliveries = render(announcer(), HEAD, [config("w"), config("v", events=("artifact",))], [step], PutOff())
    assert [(each.config_id, each.place) for each in deliveries] == [
        ("w", "7.1"),
        ("v", "7.1"),
        ("w", "7.2"),
        ("v", "7.2"),
        ("w", "7"),
    ]


def test_a_dialect_that_tells_the_whole_task_tells_it_at_the_event_itself() -> None:
    step = status(TaskState.COMPLETED, MADE, seq=7, whole=("a",))
    deliveries = render(announcer(x=whole_form([])), HEAD, [config(dialect="x")], [step], PutOff())
    assert [each.place for each in deliveries] == ["7"]


def test_a_chunk_is_told_only_once_its_artifact_is_whole() -> None:
    open_, last = ArtifactChunk(MADE), ArtifactChunk(MADE, append=True, last_chunk=True)
    working = record(TaskState.WORKING, MADE)
    steps = [step_of(open_, working), step_of(last, replace(working, seq=3), ("a",))]
    deliveries = render(announcer(), HEAD, [config()], steps, PutOff())
    assert [(each.seq, name) for each, name in zip(deliveries, told(deliveries), strict=True)] == [
        (3, "artifactUpdate")
    ]


def test_what_the_caller_said_itself_is_not_told() -> None:
    step = step_of(MessageReceived(SAID, TIME), record(TaskState.WORKING))
    assert render(announcer(), HEAD, [config()], [step], PutOff()) == ()


def test_the_beginning_of_a_task_and_how_it_stands_are_told_as_the_task() -> None:
    steps = [
        step_of(Submitted(SAID, TIME), record(TaskState.SUBMITTED, seq=1)),
        step_of(None, record(TaskState.COMPLETED, seq=5)),
    ]
    deliveries = render(announcer(), HEAD, [config()], steps, PutOff())
    assert told(deliveries) == ["task TASK_STATE_SUBMITTED", "task TASK_STATE_COMPLETED"]
    assert [each.kept for each in deliveries] == [False, True]


@pytest.mark.parametrize(
    ("events", "names"),
    [
        ((), ["statusUpdate TASK_STATE_INPUT_REQUIRED", "artifactUpdate", "statusUpdate TASK_STATE_COMPLETED"]),
        (("completed",), ["statusUpdate TASK_STATE_COMPLETED"]),
        (("input-required",), ["statusUpdate TASK_STATE_INPUT_REQUIRED"]),
        (("artifact",), ["artifactUpdate"]),
        (("failed",), []),
    ],
)
def test_a_configuration_is_told_what_it_asks_for(events: tuple[str, ...], names: list[str]) -> None:
    steps = [status(TaskState.INPUT_REQUIRED), status(TaskState.COMPLETED, MADE, seq=3, whole=("a",))]
    assert told(render(announcer(), HEAD, [config(events=events)], steps, PutOff())) == names


def test_a_dialect_that_tells_the_end_alone_tells_what_a_configuration_asks_for() -> None:
    form = replace(FORM, told=lambda told, stands: stands().terminal and not isinstance(told, Artifact))
    configs = [config("w", dialect="x"), config("v", dialect="x", events=("working", "artifact"))]
    steps = [status(TaskState.WORKING), status(TaskState.COMPLETED, MADE, seq=3, whole=("a",))]
    deliveries = render(announcer(x=form), HEAD, configs, steps, PutOff())
    assert [(each.config_id, each.seq) for each in deliveries] == [("v", 2), ("v", 3), ("w", 3)]
    assert told(deliveries) == [
        "statusUpdate TASK_STATE_WORKING",
        "artifactUpdate",
        "statusUpdate TASK_STATE_COMPLETED",
    ]


def test_what_a_dialect_does_not_tell_is_not_owed() -> None:
    form = replace(FORM, encode=lambda head, told, record: None)
    deliveries = render(announcer(x=form), HEAD, [config(dialect="x")], [status(TaskState.WORKING)], PutOff())
    assert deliveries == ()


def test_a_configuration_of_a_dialect_without_webhooks_is_told_nothing() -> None:
    assert render(announcer(), HEAD, [config(dialect="kaos")], [status(TaskState.WORKING)], PutOff()) == ()


async def test_a_registration_names_its_host_and_keeps_the_url() -> None:
    kept = await announcer().registration(config(url="HTTPS://Hooks.Example/X?y=1"), "config.url")
    assert kept == Registration(config=config(url="HTTPS://Hooks.Example/X?y=1"), host="https://hooks.example:443")


async def test_a_registration_without_an_id_gets_one() -> None:
    first, second = [await announcer().registration(config(""), "url") for _ in range(2)]
    assert first.config.id != second.config.id != ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1/x", "a loopback address"),
        ("https://inside.example/x", "a private address"),
        ("https://nowhere.example/", "does not exist"),
        ("ftp://hooks.example/", "http"),
        ("https://me:secret@hooks.example/", "user or password"),
        ("http://0x7f.1/", "odd spelling"),
        ("", "http"),
    ],
)
async def test_a_url_that_may_not_be_called_is_named_with_what_speaks_against_it(url: str, words: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        await announcer().registration(config(url=url), "params.config.url")
    ((field, reason),) = refused.value.violations
    assert field == "params.config.url"
    assert words in reason
    assert "secret" not in reason
    assert ("--push-allowed-hosts " in reason) == ("address" in words)


@pytest.mark.parametrize("url", ["http://inside.example/", "http://10.0.0.7/"])
async def test_what_the_operator_allows_may_be_registered(url: str) -> None:
    for guard in (Guard(("inside.example", "10.0.0.7")), Guard((), ("10.0.0.0/24",))):
        assert (await announcer(guard).registration(config(url=url), "url")).config.url == url


async def test_evo_ai_wants_https_except_for_hosts_that_the_operator_allows() -> None:
    bare = config(url="http://hooks.example/", dialect="evoai")
    with pytest.raises(InvalidParams, match="must be https"):
        await announcer(evoai=EVOAI).registration(bare, "url")
    await announcer(evoai=EVOAI).registration(replace(bare, url="https://hooks.example/"), "url")
    await announcer(Guard(("hooks.example",)), evoai=EVOAI).registration(bare, "url")
    await announcer(Guard((), ("10.0.0.0/24",)), evoai=EVOAI).registration(replace(bare, url="http://10.0.0.7/"), "url")
    await announcer(evoai=EVOAI).registration(replace(bare, dialect="0.3"), "url")


async def test_headers_that_cannot_be_sent_are_refused() -> None:
    form = replace(FORM, authorization=lambda config: [("Content-Length", "0")])
    with pytest.raises(InvalidParams, match="cannot be set"):
        await announcer(x=form).registration(config(dialect="x"), "config.url")


def test_an_artifact_and_the_end_that_say_the_same_are_one_call() -> None:
    """Where the body is the task as it stands, a receiver would else be told twice that it has ended."""
    assert v03.JSONRPC.push is not None
    ended = status(TaskState.COMPLETED, MADE, whole=("a",))
    configs = [config("w"), config("old", dialect="0.3"), config("asks", dialect="0.3", events=("artifact",))]
    owed = render(announcer(None, **{"0.3": v03.JSONRPC.push}), HEAD, configs, [ended], PutOff())
    assert [each.config_id for each in owed] == ["w", "old", "asks", "w"]
    assert all(each.kept for each in owed)


def whole_form(rendered: list[int]) -> PushForm:
    """A dialect that tells the whole task, here as the text of its artifacts; notes at which seq it was asked to."""

    def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
        rendered.append(stands().seq)
        return b"".join(part.text.encode() for each in stands().artifacts for part in each.parts if part.text)

    return replace(FORM, encode=encode, whole=True)


def made_of(size: int, key: str = "a") -> Artifact:
    return Artifact(artifact_id=key, parts=(Part(text="x" * size),))


def one_more(seq: int, *artifacts: Artifact) -> WebhookStep:
    """An artifact has become whole, and nothing else has changed."""
    event = ArtifactChunk(artifacts[-1], last_chunk=True)
    working = record(TaskState.WORKING, *artifacts, seq=seq)
    return replace(step_of(event, working, (artifacts[-1].artifact_id,)), changes=False)


def reported(seq: int, *artifacts: Artifact) -> WebhookStep:
    return replace(status(TaskState.WORKING, *artifacts, seq=seq), changes=False)


def test_a_large_task_that_is_told_whole_is_told_when_its_state_changes_and_else_not_even_rendered() -> None:
    rendered: list[int] = []
    it, put_off, configs = announcer(x=whole_form(rendered)), PutOff(), [config(dialect="x"), config("u")]
    small, large = made_of(EACH_BYTES_MAX), made_of(1, "b")
    steps = [
        status(TaskState.WORKING, seq=2),
        one_more(3, small),
        reported(4, small),
        one_more(5, small, large),
        reported(6, small, large),
        one_more(7, small, large, made_of(1, "c")),
        status(TaskState.INPUT_REQUIRED, small, large, seq=8),
        reported(9, small, large),
        status(TaskState.COMPLETED, small, large, seq=10),
    ]
    owed: list[Delivery] = []
    for step in steps:
        more, put_off = it.deliveries(HEAD, configs, [step], put_off)
        owed += more
    assert [each.seq for each in owed if each.config_id == "w"] == [2, 3, 4, 8, 10]
    assert [each.seq for each in owed if each.config_id == "u"] == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert rendered == [2, 3, 4, 5, 8, 10]


def test_a_task_that_has_become_small_is_told_each_time_again() -> None:
    it, put_off, configs = announcer(x=whole_form([])), PutOff(), [config(dialect="x")]
    steps = [
        one_more(3, made_of(EACH_BYTES_MAX + 1)),
        status(TaskState.INPUT_REQUIRED, made_of(1), seq=4),
        reported(5, made_of(1)),
    ]
    assert [each.seq for each in render(it, HEAD, configs, steps, put_off)] == [4, 5]


def test_a_large_task_is_told_whole_to_one_who_asked_for_artifacts_alone_when_its_state_changes() -> None:
    large, configs = made_of(EACH_BYTES_MAX + 1), [config(dialect="x", events=("artifact",))]
    steps = [
        status(TaskState.WORKING, seq=2),
        one_more(3, made_of(9)),
        one_more(4, large),
        status(TaskState.COMPLETED, large, seq=5),
    ]
    assert [each.seq for each in render(announcer(x=whole_form([])), HEAD, configs, steps, PutOff())] == [3, 5]
    assert render(announcer(x=whole_form([])), HEAD, configs, [status(TaskState.COMPLETED)], PutOff()) == ()


def test_all_artifacts_that_the_end_closes_are_rendered_once_where_the_task_is_told_whole() -> None:
    rendered: list[int] = []
    ended = status(TaskState.COMPLETED, made_of(1, "a"), made_of(1, "b"), whole=("a", "b"))
    configs = [config(dialect="x"), config("asks", dialect="x", events=("artifact",))]
    owed = render(announcer(x=whole_form(rendered)), HEAD, configs, [ended], PutOff())
    assert [each.config_id for each in owed] == ["w", "asks"]
    assert rendered == [2]


def test_how_a_large_task_stands_is_always_told() -> None:
    standing = step_of(None, record(TaskState.WORKING, made_of(EACH_BYTES_MAX + 1)))
    put_off = PutOff(dialects=frozenset({"x"}))
    assert len(render(announcer(x=whole_form([])), HEAD, [config(dialect="x")], [standing], put_off)) == 1


def test_a_large_artifact_that_goes_on_after_it_was_whole_is_told_when_the_task_settles() -> None:
    def again(seq: int, size: int) -> WebhookStep:
        return replace(one_more(seq, made_of(size)), again=True)

    large, put_off = EACH_BYTES_MAX + 1, PutOff()
    steps = [
        one_more(2, made_of(1)),
        again(3, 2),
        again(4, large),
        again(5, large + 1),
        status(TaskState.INPUT_REQUIRED, made_of(large + 1), seq=6),
        status(TaskState.WORKING, made_of(large + 1), seq=7),
        again(8, large + 2),
        status(TaskState.COMPLETED, made_of(large + 2), seq=9),
    ]
    owed = render(announcer(), HEAD, [config()], steps, put_off)
    assert [(each.seq, len(each.body) > EACH_BYTES_MAX) for each in owed] == [
        (2, False), (3, False), (6, True), (6, False), (7, False), (9, True), (9, False)
    ]  # fmt: skip


def test_after_a_restart_large_artifacts_in_pieces_are_told_once_more_and_small_ones_not() -> None:
    put_off = PutOff(doubtful=frozenset({"a", "b"}))
    large, small = made_of(EACH_BYTES_MAX + 1, "a"), made_of(1, "b")
    ended = status(TaskState.COMPLETED, large, small)
    owed, put_off = announcer().deliveries(HEAD, [config()], [ended], put_off)
    assert told(owed) == ["artifactUpdate", "statusUpdate TASK_STATE_COMPLETED"]
    assert put_off == PutOff()


def test_a_write_that_fails_is_told_the_same_when_it_is_tried_again() -> None:
    audience, fold = Audience(announcer(), [config()]), Fold(HEAD)

    def write(event: Event, state: TaskState = TaskState.WORKING, *, fails: bool = False) -> list[str]:
        append = Append(task_id=HEAD.id, events=(event,), state=state, status_ms=1)
        owed = audience.told(HEAD, fold, append)
        if not fails:
            audience.committed(owed)
            fold.add(fold.seq + 1, event)
        return told(owed.deliveries)

    large, end = made_of(EACH_BYTES_MAX + 1), StatusChanged(TaskState.COMPLETED, TIME)
    write(Submitted(SAID, TIME))
    write(ArtifactChunk(large, False, True))
    for fails in (True, False):
        assert write(ArtifactChunk(made_of(1), True, True), fails=fails) == []
    for fails in (True, False):
        assert write(end, TaskState.COMPLETED, fails=fails) == ["artifactUpdate", "statusUpdate TASK_STATE_COMPLETED"]


LOG = (
    StatusChanged(TaskState.WORKING, TIME),
    StatusChanged(TaskState.INPUT_REQUIRED, TIME),
    ArtifactChunk(MADE, last_chunk=True),
    ArtifactChunk(MADE, append=True),
    ArtifactChunk(made_of(EACH_BYTES_MAX + 1), append=True, last_chunk=True),
    ArtifactChunk(replace(MADE, artifact_id="b")),
    MessageReceived(SAID, TIME),
)
STATES = ("submitted", "working", "input-required", "completed")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(LOG), st.booleans()), max_size=12),
    st.lists(
        st.tuples(st.sampled_from(("1.0", "0.3")), st.sets(st.sampled_from(STATES), min_size=1)), min_size=1, max_size=3
    ),
)
def test_webhooks_that_want_some_states_are_told_as_beside_one_that_wants_all(
    log: list[tuple[Event, bool]], wanted: list[tuple[str, set[str]]]
) -> None:
    """One that wants all makes every event a step: those of the others must not depend on it."""
    states = [config(f"w{i}", dialect=dialect, events=tuple(events)) for i, (dialect, events) in enumerate(wanted)]
    batches: list[list[Event]] = [[Submitted(SAID, TIME)]]
    for event, apart in (*log, (StatusChanged(TaskState.COMPLETED, TIME), False)):
        if apart:
            batches.append([])
        batches[-1].append(event)

    def deliver(configs: list[PushConfig]) -> list[tuple[object, ...]]:
        audience, fold, found = Audience(announcer(**{"0.3": WHOLE}), configs), Fold(HEAD), []
        for events in batches:
            append = Append(task_id=HEAD.id, events=tuple(events), state=TaskState.WORKING, status_ms=1)
            owed = audience.told(HEAD, fold, append)
            audience.committed(owed)
            found += [(each.config_id, each.seq, each.part, each.kept, each.body) for each in owed.deliveries]
            for seq, event in enumerate(events, fold.seq + 1):
                fold.add(seq, event)
        return found

    assert deliver(states) == [told for told in deliver([*states, config("all")]) if told[0] != "all"]


def test_what_is_told_knows_its_dialect() -> None:
    (owed,) = render(announcer(), HEAD, [config()], [status(TaskState.WORKING)], PutOff())
    assert owed.dialect == "1.0"


def test_an_artifact_that_nothing_tells_again_is_never_merged() -> None:
    """A receiver that was away for a moment would miss it for good: the end tells of no artifact in 1.0."""
    whole = step_of(ArtifactChunk(MADE, last_chunk=True), record(TaskState.WORKING, MADE), ("a",))
    (delivery,) = render(announcer(), HEAD, [config()], [whole], PutOff())
    assert delivery.kept
    (delivery,) = render(announcer(old=replace(FORM, whole=True)), HEAD, [config(dialect="old")], [whole], PutOff())
    assert not delivery.kept


# The rows of the decision, one by one


def form_of(size: int) -> PushForm:
    """A form whose bodies have this size."""
    return replace(FORM, encode=lambda head, told, stands: b"x" * size)


LARGE, SMALL = EACH_BYTES_MAX + 1, EACH_BYTES_MAX
WAITING = PutOff(artifacts=frozenset({"a"}))
DOUBTFUL = PutOff(doubtful=frozenset({"a"}))
WHOLE = one_more(3, MADE)
GROWN = replace(WHOLE, again=True)
END = status(TaskState.COMPLETED, MADE)


@pytest.mark.parametrize(
    ("step", "late", "put_off", "size", "sent", "after"),
    [
        (WHOLE, False, PutOff(), LARGE, True, PutOff()),
        (GROWN, False, PutOff(), SMALL, True, PutOff()),
        (GROWN, False, PutOff(), LARGE, False, WAITING),
        (GROWN, False, WAITING, SMALL, False, WAITING),  # not even rendered
        (END, True, WAITING, SMALL, True, WAITING),
        (END, True, DOUBTFUL, SMALL, False, DOUBTFUL),  # it was sent when it was whole
        (END, True, DOUBTFUL, LARGE, True, DOUBTFUL),
    ],
)
def test_an_artifact_is_sent_or_put_off(
    step: WebhookStep, late: bool, put_off: PutOff, size: int, sent: bool, after: PutOff
) -> None:
    body, found = render_part(HEAD, step, put_off, form_of(size), News(MADE, "artifact", late))
    assert (body is not None, found) == (sent, after)


@pytest.mark.parametrize(
    ("step", "put_off", "size", "sent", "after"),
    [
        (reported(3), PutOff(), SMALL, True, PutOff()),
        (reported(3), PutOff(), LARGE, False, PutOff(dialects=frozenset({"x"}))),
        (reported(3), PutOff(dialects=frozenset({"x"})), SMALL, False, PutOff(dialects=frozenset({"x"}))),
        (END, PutOff(), LARGE, True, PutOff(dialects=frozenset({"x"}))),
        (END, PutOff(dialects=frozenset({"x", "y"})), SMALL, True, PutOff(dialects=frozenset({"y"}))),
    ],
)
def test_the_whole_task_is_sent_or_put_off(
    step: WebhookStep, put_off: PutOff, size: int, sent: bool, after: PutOff
) -> None:
    body, found = render_whole(HEAD, step, put_off, "x", form_of(size), News(step.event, "working"))  # type: ignore[arg-type]
    assert (body is not None, found) == (sent, after)


def test_a_step_that_settles_the_task_reports_what_was_put_off_first() -> None:
    other = replace(MADE, artifact_id="b")
    step = status(TaskState.COMPLETED, MADE, other, whole=("b",))
    put_off = PutOff(artifacts=frozenset({"a"}), doubtful=frozenset({"b"}))
    assert [(each.name, each.late) for each in news_of(step, put_off)] == [
        ("artifact", True), ("artifact", False), ("completed", False)
    ]  # fmt: skip
    assert render_step(HEAD, step, put_off, [config()], {"1.0": FORM})[1] == PutOff()


def test_an_artifact_that_is_whole_anew_is_no_longer_put_off() -> None:
    assert render_step(HEAD, WHOLE, WAITING, [], {})[1] == PutOff()
    assert render_step(HEAD, GROWN, WAITING, [], {})[1] == WAITING
