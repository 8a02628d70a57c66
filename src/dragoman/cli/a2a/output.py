"""Prints results and failures: plain text, one JSON document, or JSON lines (a2a-cli §9, Appendix B).

Invariant: stdout has the result and nothing else; everything about the work goes to stderr. With JSON, results are the
protocol's own types. A line that was printed has been flushed.
"""

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import msgspec

from dragoman.cli.a2a.failures import Failure
from dragoman.cli.a2a.text import (
    card_lines,
    field,
    list_lines,
    printable,
    push_config_lines,
    task_lines,
    update_lines,
)
from dragoman.cli.endings import error_document, sentence
from dragoman.dialects.v1.encode import encode_push_configs, encode_task_list, encode_update
from dragoman.model.card import AgentCard
from dragoman.model.operations import PushConfig
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update


class Output:
    """The output of one command. `form` is `text` or `json`; with `lines` JSON is one object a line."""

    def __init__(self, form: str, *, lines: bool = False, verbose: bool = False) -> None:
        self.form = form
        self._lines = lines
        self._verbose = verbose

    def task(self, task: Task) -> None:
        """Print a task: bare in JSON (`task get`, `cancel`, `subscribe`)."""
        self._print(lambda: msgspec.json.encode(task), task_lines(task, verbose=self._verbose))

    def update(self, update: Update) -> None:
        """Print the answer to `send`, or an event of a stream: a SendMessageResponse or a StreamResponse in JSON."""
        self._print(lambda: encode_update(update), update_lines(update, verbose=self._verbose))

    def report(self, update: Update) -> None:
        """Print the report of a webhook: an event, and in text which task it is about."""
        if self.form == "text" and isinstance(update, StatusUpdate | ArtifactUpdate):
            print_lines([field("Task", update.task_id)])
        self.update(update)

    def tasks(self, page: TaskList, page_size: int) -> None:
        """Print a page of tasks: a ListTasksResponse in JSON, or a Task a line."""
        if self.form == "text":
            print_lines(list_lines(page))
        elif self._lines:
            for task in page.tasks:
                self._json(msgspec.json.encode(task))
        else:
            self._json(encode_task_list(page, page_size))

    def push_config(self, config: PushConfig) -> None:
        """Print a webhook, without credentials."""
        self._print(lambda: encode_push_configs(config), push_config_lines(config))

    def push_configs(self, configs: tuple[PushConfig, ...]) -> None:
        """Print all webhooks of a task."""
        lines = (line for config in configs for line in (*push_config_lines(config), ""))
        self._print(lambda: encode_push_configs(configs), lines)

    def card(self, whole: dict[str, Any], card: AgentCard, more: Iterable[str] = ()) -> None:
        """Print a card: exactly as it came in JSON. `more` are further lines of text."""
        self.value(whole, chain(card_lines(card, verbose=self._verbose), more))

    def value(self, value: Any, lines: Iterable[str]) -> None:
        """Print a result that is no type of the protocol: `value` as JSON, `lines` as text."""
        self._print(lambda: msgspec.json.encode(value), lines)

    def _print(self, encode: Callable[[], bytes], lines: Iterable[str]) -> None:
        if self.form == "json":
            self._json(encode())
        else:
            print_lines(lines)

    def _json(self, document: bytes) -> None:
        text = document if self._lines else msgspec.json.format(document, indent=2)
        _write(text.decode() + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of text to stdout."""
    _write("".join(f"{line}\n" for line in lines))


def warn(text: str) -> None:
    """Tell the user something on stderr, on one line."""
    print(f"dragoman: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)  # noqa: T201


def print_failure(failure: Failure, form: str) -> None:
    """Print a failure: the error envelope on stdout with `json`, else lines on stderr (a2a-cli §9.4)."""
    if form == "json":
        document = error_document(failure.code, failure.message, failure.hint, failure.a2a_code)
        _write(msgspec.json.encode(document).decode() + "\n")
        return
    hint = f" Hint: {failure.hint}." if failure.hint else ""
    warn(f"{failure.code}: {sentence(failure.message)}{hint}" if hint else f"{failure.code}: {failure.message}")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
