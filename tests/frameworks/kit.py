"""The suite for every framework needs this of each: agents of its own kind, made of a model that the test scripts.

A framework is one module of `tests/frameworks/kits`, with a class that fills in `Kit` and a value `KIT` of it.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from dragoman import Part
from dragoman.agents.adapters import adapt
from dragoman.agents.python.agent import Agent as Served
from dragoman.model.message import Message, Role
from tests.frameworks.completions import MODEL, Answer, Call, completions


class Model(Protocol):
    """A model that says what the test wrote down, and keeps what it was given. `left`: a caller left in the middle."""

    left: threading.Event

    def said(self, number: int = -1) -> Sequence[str]:
        """Return the texts of the conversation in a request, each message's by itself, without the system's."""
        ...

    def images(self, number: int = -1) -> Sequence[bytes]:
        """Return the images of a request."""
        ...


class Page(NamedTuple):
    """The page of the documentation: the first block of Python makes `variable`, an agent whose card has that name."""

    file: str
    variable: str
    agent: str


class Card(NamedTuple):
    """The card of the agent `Kit.introduced`."""

    name: str
    description: str
    tags: Sequence[str] = ("forecast",)


class Kit(Protocol):
    """How agents of a framework are made. A method that returns None says that it has no such agents."""

    page: Page | None

    card: Card = Card("Weather", "Knows the weather")

    prints = False
    """Whether a run writes to the standard output."""

    counts = True
    """Whether the usage is the model's; else the framework estimates it."""

    model_name = MODEL
    """The name of the model in the usage."""

    hears_history = True
    """Whether the earlier messages of the conversation reach the model as messages."""

    fetches = False
    """Whether a picture that the message names by its URL reaches the model, as one in the message does."""

    gets_pictures = True

    speaks_before_calls = True
    """Whether the model may say something and call a tool in one answer."""

    failure: str | None = "forecast failed: the log says why"
    """The status of a tool that raised, if its run goes on."""

    city = Answer('{"name": "Lyon", "people": 5}')
    """How a model gives the structured output."""

    question = 'May delete be called with {"path": "a.txt"}? Answer yes or no.'

    denial: str | None = "no, keep it"
    """The model's view of a denial in those words; None if the agent's author decides that."""

    stops_at_once = True
    """Whether a model in the middle of an answer is left when the task is canceled, and not at the next word."""

    def model(self, *answers: Answer | str) -> AbstractContextManager[Model]:
        """Return the model that the agents of the block have."""
        return completions(*answers)

    def agent(self, model: Any, *, forecasts: bool = False) -> Any:
        """Return an agent, with a tool `forecast(city)` if it `forecasts`; the tool raises for Atlantis."""
        ...

    def introduced(self, model: Any) -> Any:
        """Return an agent that says who it is and has the tool: see `card`."""
        ...

    def structured(self, model: Any) -> Any | None:
        """Return an agent whose answer is a city: `name` and `people`."""
        ...

    def careful(self, model: Any, done: list[str]) -> Any | None:
        """Return an agent with two tools: `look` notes "looked"; `delete(path)` notes the path, once it was allowed."""
        ...

    def stranger(self, model: Any) -> object:
        """Return another object of the framework's package, which is no agent."""
        ...


def served(value: Any) -> Served:
    """Return the agent as Dragoman serves it."""
    found = adapt(value, "test")
    assert found is not None
    return found


HISTORY = [
    Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
    Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
]
"""An earlier task of the same conversation."""

CLEANING = (
    Answer("Let me see.", calls=[Call("look", {}, "look-1")]),
    Answer(calls=[Call("delete", {"path": "a.txt"})]),
)
"""The words of a careful agent's model before its tool has been allowed or denied."""
