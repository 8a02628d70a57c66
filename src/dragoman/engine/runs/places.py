"""Places: where in a run its numbered words are told, so that a later run of the task finds them again.

Invariant: the place of a numbered word depends on the agent's code alone, not on the order in which its asyncio tasks
come to run. A place names one word of a run.

A run is a tree of branches. Its first branch is the coroutine that the engine runs; every asyncio task that a branch
starts is a branch of its own. A place is a path through that tree:

    2                       the second numbered word of the first branch
    1/book#2/3              after its first word the first branch has started `book` twice; the third word of the second

`book` is the qualified name of the task's coroutine. Only tasks of the same name are counted, and only since the
parent's last numbered word, so that tasks which libraries start (a timeout, a connection) shift nothing. A task whose
coroutine is itself a numbered word (`gather(ctx.ask(…), ctx.ask(…))`) is one of the branch that starts it.

A branch may also be named by who runs it, such as a framework that runs parts of a task again, or not again in a later
run:

    @greet/2                the second numbered word of the branch that is named `greet`

A named branch may begin several times in a run, each time with its first word, and finds what it has told before.

A context variable carries the branch, and a task factory gives each new task the branch that it is. A task that the
factory has not seen, because it was made in another way or another factory took the place of ours, is not the one that
its branch belongs to: what it tells has no place. So has what a callback or a foreign thread tells.
"""

import asyncio
from asyncio import AbstractEventLoop, Task, current_task
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, TypeVar
from weakref import WeakSet, ref

from msgspec import Struct

T = TypeVar("T")

PATH_CHARACTERS = 200
"""Longest path to a branch that is written out. Most have 20; a recursion could have any number."""

NUMBERS_FROM = 1 << 48
"""The numbers of delegations in branches begin here; those of a first branch are counted from 1. All of them are below
2^53, so that every reader of JSON reads them exactly (RFC 8259 §6)."""


WORDS = frozenset(
    {
        "Context.ask",
        "Context.require_auth",
        "Context.delegate",
        "Context.sleep",
        "Context.sleep_until",
        "Context.step",
        "Run.ask",
        "Run.delegate",
        "Run.sleep",
        "Run.step",
    }
)
"""The qualified names of the coroutines that are a numbered word: those of `agents.python.context` and `engine.api`."""


NAMED = "@"
"""The beginning of the places in named branches."""


class Branch:
    """One of the asyncio tasks in which an agent works: the path to it, and what it has told and started so far."""

    __slots__ = ("_delegated", "_family", "_goes_on", "_reserved", "_speakers", "_started", "_told", "path")

    def __init__(self, path: str = "", *speakers: "Task[Any]", reserved: tuple[str, int] | None = None) -> None:
        self.path = path
        """The beginning of the places in this branch; empty for the first one."""
        self._reserved = reserved
        """The place of its first word, and its number as a delegation, if that is one of the branch that started it."""
        self._told = 0
        self._delegated = 0
        """How many delegations it has made."""
        self._started: dict[str, int] = {}
        """The tasks that it has started since its last numbered word, by the qualified name of their coroutines."""
        self._speakers = tuple(map(ref, speakers))
        self._goes_on = False
        self._family: WeakSet[Task[Any]] | None = None
        """The tasks of the run beside that of its first branch, once it has started any."""

    def add_speaker(self, task: "Task[Any]") -> None:
        """Note a task that works in this branch."""
        at_work = (speaker for speaker in self._speakers if (known := speaker()) is not None and not known.done())
        self._speakers = (*at_work, ref(task))
        if self._family is not None:
            self._family.add(task)

    @property
    def alone(self) -> bool:
        """Whether this is the first branch of its run, and no other task of the run is at work."""
        return not self.path and all(task.done() for task in self._family or ())

    @property
    def named(self) -> bool:
        """Whether somebody has named this branch, or one that it is a branch of."""
        return in_named_branch(self.path)

    def named_branch(self, name: str) -> "Branch":
        """A branch of the same run with that name, which goes on in the first task that it starts."""
        branch = Branch(_short(f"{NAMED}{name}/"))
        branch._goes_on = True
        branch._family = self._family = WeakSet() if self._family is None else self._family
        return branch

    @property
    def runs(self) -> bool:
        """Whether the code that runs at this moment is in this branch. That of a thread is in none."""
        try:
            task = current_task()
        except RuntimeError:  # no event loop runs in this thread, which has a copy of the context
            return False
        if task is None:
            return False
        if not self._speakers:  # an eager task works before its factory has it
            self.add_speaker(task)
        return any(speaker() is task for speaker in self._speakers)

    def start(self, name: str) -> "Branch":
        """The branch of a task that this one starts now, with a coroutine of that qualified name."""
        if self._family is None:
            self._family = WeakSet()
        if self._goes_on:
            self._goes_on = False
            return self
        if name in WORDS:
            word = self.tell(delegates=name.endswith(".delegate"))
            branch = Branch(_short(f"{word[0]}/"), reserved=word)
        else:
            number = self._started[name] = self._started.get(name, 0) + 1
            branch = Branch(_short(f"{self.path}{self._told}/{name.replace('/', '|')}#{number}/"))
        branch._family = self._family
        return branch

    def tell(self, *, delegates: bool = False) -> tuple[str, int]:
        """The place of a numbered word that is told now and, if it `delegates`, the number of the delegation."""
        if (word := self._reserved) is not None:
            self._reserved = None
            return word
        self._told += 1
        if self._started:
            self._started = {}
        place, number = f"{self.path}{self._told}", 0
        if delegates and self.path:
            number = number_of(place)
        elif delegates:
            number = self._delegated = self._delegated + 1
        return place, number

    def precedes(self, told: int, started: Mapping[str, int]) -> bool:
        """Whether this branch has yet to tell that many words, or to start that many tasks of a name since then."""
        if told != self._told:
            return told > self._told
        return any(number > self._started.get(name, 0) for name, number in started.items())


def _short(path: str) -> str:
    if len(path) <= PATH_CHARACTERS:
        return path
    mark = NAMED if in_named_branch(path) else ""
    return f"{mark}{blake2b(path.encode(), digest_size=16).hexdigest()}/"


_branch: ContextVar[Branch | None] = ContextVar("dragoman_branch", default=None)


class ExecutedStep(Struct, frozen=True):
    """A step that is executed: its name, and the key by which the other side tells a repetition."""

    name: str
    key: str


def step_key(task_id: str, place: str) -> str:
    """The key of a step, which is the same in every attempt."""
    return f"{task_id}:{place}"


class ToldInStep(RuntimeError):
    """A numbered word was told while a step is executed, so that a later run would not find it."""


_step: ContextVar[ExecutedStep | None] = ContextVar("dragoman_step", default=None)


def present_step() -> ExecutedStep | None:
    """The step that the code at this moment executes; None if it executes none."""
    return _step.get()


@contextmanager
def executing_step(executed: ExecutedStep) -> Iterator[None]:
    """Let the code in the block be the execution of a step: it is in no branch, and tells no numbered words."""
    step, branch = _step.set(executed), _branch.set(None)
    try:
        yield
    finally:
        _branch.reset(branch)
        _step.reset(step)


def begin_first_branch() -> None:
    """Let the running asyncio task be the first branch of a run."""
    task = current_task()
    assert task is not None
    _branch.set(Branch("", task))


@contextmanager
def within_first_branch() -> Iterator[None]:
    """As `begin_first_branch`, for the block alone, on a loop of somebody else."""
    task = current_task()
    assert task is not None
    place_tasks(asyncio.get_running_loop())
    token = _branch.set(Branch("", task))
    try:
        yield
    finally:
        _branch.reset(token)


def present_branch() -> Branch | None:
    """The branch of the code that runs at this moment; None if it has none, so that what it tells has no place."""
    branch = _branch.get()
    return branch if branch is not None and branch.runs else None


def branch_of_thread() -> Branch | None:
    """The branch of the code that has started the work of this thread; None if it has none."""
    return _branch.get()


def start_within_branch(coroutine: Coroutine[Any, Any, T]) -> "Task[T]":
    """Start a task that works in the branch that starts it. It tells its numbered words before that one goes on."""
    branch = present_branch()
    token = _branch.set(None)  # so that the task gets no branch of its own
    try:
        return asyncio.get_running_loop().create_task(_work_within(branch, coroutine))
    finally:
        _branch.reset(token)


async def _work_within(branch: Branch | None, coroutine: Coroutine[Any, Any, T]) -> T:
    if branch is not None and (task := current_task()) is not None:
        branch.add_speaker(task)
        _branch.set(branch)
    return await coroutine


def enter_named_branch(name: str) -> Branch | None:
    """Let the code that runs from here on be in a named branch of its run, if it is in one. Returns its branch so far,
    for `return_to_branch`."""
    before = _branch.get()
    if before is not None:
        branch = before.named_branch(name)
        with suppress(RuntimeError):  # no event loop runs in this thread
            if (task := current_task()) is not None:
                branch.add_speaker(task)
        _branch.set(branch)
    return before


def return_to_branch(branch: Branch | None) -> None:
    """Let the code that runs from here on be in a branch in which it was before."""
    _branch.set(branch)


def start_for_thread(loop: AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> None:
    """Start a task on the loop, for a thread that works in the branch of the code which has started it.

    The thread waits for it, so that it tells its numbered words before the branch goes on. To be called in the thread.
    """
    branch = _branch.get()

    def start() -> None:
        _branch.set(None)  # in a copy of the thread's context, so that the task gets no branch of its own
        loop.create_task(_work_within(branch, coroutine))

    loop.call_soon_threadsafe(start)


def number_of(place: str) -> int:
    """The number of the delegation that is made at a place in a branch."""
    return NUMBERS_FROM | int.from_bytes(blake2b(place.encode(), digest_size=6).digest())


def in_first_branch(place: str) -> bool:
    """Whether a place is in the first branch of its run. Words there are told one after the other."""
    return "/" not in place


def in_named_branch(place: str) -> bool:
    """Whether a place is in a branch that somebody has named."""
    return place.startswith(NAMED)


def in_other_branch(place: str) -> bool:
    """Whether a place is in a branch that is neither the first one of its run nor named, so that others say what it
    says in any order."""
    return not (in_first_branch(place) or in_named_branch(place))


WordKind = Literal["question", "delegation", "step", "sleep", "patched"]
"""The kinds of numbered words."""


def refuse_within_step(kind: WordKind, name: str) -> None:
    """Raise ToldInStep if the code at this moment executes a step."""
    if (step := _step.get()) is not None:
        said = f"{kind} {name!r}" if kind in ("delegation", "step") else f"a {kind}"
        raise ToldInStep(
            f"{said} is told while step {step.name!r} is executed, so that a later run, which does not execute the "
            "step again, would not find it: tell it in the skill, before or after the step"
        )


class RunPlaces:
    """The places of the numbered words of one run, in the order in which it tells them.

    With `counted` words have no places, as in logs of earlier versions: delegations are numbered as they come. A word
    that is told in no branch has the place of its occurrence: how often the run has told one of that kind and name.
    Such words have no order among each other, so at most one of a kind and name can be under way.
    """

    __slots__ = ("_counted", "_delegated", "_occurred", "_under_way")

    def __init__(self, *, counted: bool) -> None:
        self._counted = counted
        self._delegated = 0
        self._occurred: dict[str, int] = {}
        self._under_way: set[str] = set()

    @contextmanager
    def tell(self, kind: WordKind, name: str, given: str | None = None, key: str = "") -> Iterator[tuple[str, int]]:
        """The place of a word, which is under way in the block, and its number if it is a delegation.

        A word that somebody passes on has a `given` place. The place is empty if the word is only counted, as steps
        never are. `key` tells words of one name apart that are told in no branch. Raises RuntimeError if another such
        word of that name is under way, and for a word that is told while a step is executed.
        """
        refuse_within_step(kind, name)
        if given is not None or (self._counted and kind in ("question", "delegation")):
            self._delegated += kind == "delegation"
            yield given or "", self._delegated
            return
        if (branch := present_branch()) is not None:
            yield branch.tell(delegates=kind == "delegation")
            return
        word = f"{kind}:{name}:{key}".replace("/", "|") if key else f"{kind}:{name}".replace("/", "|")
        if word in self._under_way:
            if kind == "step":
                raise RuntimeError(
                    f"two steps {name!r} are taken at once outside of the run's own tasks, so that a later run could "
                    "not tell them apart: give each a key"
                )
            raise RuntimeError(
                f"two {kind}s of one name are told at once outside of the run's own tasks, so that a later run could "
                "not tell them apart: start the coroutines with asyncio.create_task, gather or a TaskGroup in the skill"
            )
        self._occurred[word] = number = self._occurred.get(word, 0) + 1
        self._under_way.add(word)
        try:
            yield (place := f"{word}#{number}"), number_of(place)
        finally:
            self._under_way.discard(word)


def place_tasks(loop: AbstractEventLoop) -> None:
    """Let the tasks of a loop be branches of the runs that start them. Does nothing if they are already.

    A task factory that the loop has goes on making the tasks.
    """
    factory = loop.get_task_factory()
    if not (isinstance(factory, partial) and factory.func is _make_task):
        loop.set_task_factory(partial(_make_task, factory))


def _make_task(factory: Any, loop: AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
    """Make a task as the loop would. One that is started within a run becomes a branch of it."""
    parent = _branch.get()
    if parent is None:
        if factory is None:
            return Task(coroutine, loop=loop, **options) if options else Task(coroutine, loop=loop)
        return factory(loop, coroutine, **options)
    branch = parent.start(getattr(coroutine, "__qualname__", type(coroutine).__qualname__))
    if (context := options.get("context")) is not None:
        with suppress(RuntimeError):  # it is that of a task at work: then the new task has no place
            context.run(_branch.set, branch)
    token = _branch.set(branch)  # a task copies the present context, unless it is given one
    try:
        task = Task(coroutine, loop=loop, **options) if factory is None else factory(loop, coroutine, **options)
    finally:
        _branch.reset(token)
    branch.add_speaker(task)
    return task
