"""Results as plain text: one `Label: value` a line, longer content in blocks (a2a-cli §9.2).

Invariant: no control sequence reaches the terminal, whoever wrote the text. A block is a line with its label, the
content, and one empty line; the content itself has no empty line, so that a reader can skip the block whole.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import UNSET

from dragoman.model.card import AgentCard
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import Task, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of characters that could move the cursor, hide text or reorder it."""


def printable(text: str) -> str:
    """Replace the characters that could control a terminal; tabs and line ends stay."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        sign if sign in "\n\t" or unicodedata.category(sign) not in _UNSAFE else "\ufffd"
        for sign in text.replace("\r\n", "\n")
    )


def field(label: str, value: object) -> str:
    """Return a field. A value with several lines becomes one line."""
    return f"{label}: {printable(' '.join(str(value).split()))}"


def block(label: str, content: str) -> Iterator[str]:
    """Yield the lines of a block."""
    yield f"{label}:"
    for line in printable(content).rstrip("\n").split("\n"):
        yield line if line.strip() else " "
    yield ""


def task_lines(task: Task, *, verbose: bool = False) -> Iterator[str]:
    """Yield a task: its ids and state, what the agent says, and every artifact."""
    yield field("Task", task.id)
    yield field("Context", task.context_id)
    yield from _status_lines(task.status, verbose)
    if is_unreadable(task):
        yield field("Unreadable", "the server's record of this task is damaged, and only its state is known")
    if verbose:
        for message in task.history:
            yield from message_lines(message, verbose=True)
        yield from _metadata_lines(task.metadata)
    for artifact in task.artifacts:
        yield from artifact_lines(artifact, verbose=verbose)


def is_unreadable(task: Task) -> bool:
    """Whether its server cannot read the task, and refuses all but GetTask."""
    from dragoman.dialects.extensions import UNREADABLE

    return (task.metadata or {}).get(UNREADABLE) is True


def identity_lines(task_id: str, context_id: str, state: str) -> Iterator[str]:
    """Yield the ids and the state that a later command needs (a2a-cli §6.3)."""
    yield field("Task", task_id)
    yield field("Context", context_id)
    yield field("State", state)


def update_lines(update: Update, *, verbose: bool = False) -> Iterator[str]:
    """Yield an event of a stream."""
    match update:
        case Task():
            yield from task_lines(update, verbose=verbose)
        case Message():
            yield from message_lines(update, verbose=verbose)
        case StatusUpdate():
            yield from _status_lines(update.status, verbose)
            if update.progress is not None:
                yield field("Progress", f"{update.progress.current} of {update.progress.total}")
            if verbose:
                yield from _metadata_lines(update.metadata)
        case ArtifactUpdate():
            yield from artifact_lines(update.artifact, verbose=verbose)


def message_lines(message: Message, *, verbose: bool = False) -> Iterator[str]:
    """Yield a message: every part, and with `verbose` its ids and metadata."""
    label = "Message" if message.role is Role.AGENT else "Sent"
    if message.context_id and (verbose or message.role is Role.AGENT):
        yield field("Context", message.context_id)
    if verbose:
        yield field("Message id", message.message_id)
        yield from _metadata_lines(message.metadata)
    yield from part_lines(message.parts, text=label, data=f"{label} data")


def artifact_lines(artifact: Artifact, *, verbose: bool = False) -> Iterator[str]:
    """Yield an artifact: every part under its name."""
    yield field("Artifact", artifact.name or artifact.artifact_id)
    if verbose:
        yield field("Artifact id", artifact.artifact_id)
        if artifact.description:
            yield field("Description", artifact.description)
        yield from _metadata_lines(artifact.metadata)
    yield from part_lines(artifact.parts, text="Text", data="Data")


def join_texts(parts: Iterable[Part]) -> Iterator[str | Part]:
    """Yield parts in their order, and texts that follow each other as one text."""
    for is_text, run in groupby(parts, key=lambda part: part.text is not None):
        if is_text:
            yield "".join(part.text or "" for part in run)
        else:
            yield from run


def part_lines(parts: Sequence[Part], *, text: str, data: str) -> Iterator[str]:
    """Yield parts: texts as blocks, data as formatted JSON, files by name and size.

    `text` and `data` are the labels of the blocks.
    """
    for part in join_texts(parts):
        if isinstance(part, str):
            yield from block(text, part)
        elif part.data is not UNSET:
            yield from block(data, json_text(part.data))
        else:
            yield field("File", describe_file(part))


def describe_file(part: Part) -> str:
    """Describe a part with a file: its name, media type and size, or its address."""
    name = part.filename or "without a name"
    about = [part.media_type or "unknown type"]
    if part.raw is not None:
        about.append(f"{len(part.raw)} bytes")
    if part.url is not None:
        about.append(part.url)
    return f"{name} ({', '.join(about)})"


def list_lines(page: TaskList) -> Iterator[str]:
    """Yield a page of tasks, each a group of fields with an empty line after it, then the cursor of the next page."""
    for task in page.tasks:
        yield from identity_lines(task.id, task.context_id, task.status.state)
        yield field("Updated", task.status.timestamp)
        yield ""
    if page.total_size is not None:
        yield field("Total", page.total_size)
    if page.next_page_token:
        yield field("Next page", page.next_page_token)


def push_config_lines(config: PushConfig) -> Iterator[str]:
    """Yield a webhook without its secrets."""
    yield field("Push config", config.id)
    yield field("URL", config.url)
    if config.token:
        yield field("Token", "set")
    if config.scheme:
        yield field("Authentication", config.scheme)


def card_lines(card: AgentCard, *, verbose: bool = False) -> Iterator[str]:
    """Yield an agent card: who the agent is, what it offers, where it is reached, and what it asks for."""
    yield field("Name", card.name)
    yield field("Description", card.description)
    yield field("Version", card.version)
    if card.provider is not None:
        yield field("Provider", f"{card.provider.organization} ({card.provider.url})")
    offers = card.capabilities
    yield field("Streaming", _offered(offers.streaming))
    yield field("Push notifications", _offered(offers.push_notifications))
    yield field("Extended card", _offered(offers.extended_agent_card))
    for interface in card.supported_interfaces:
        tenant = f", tenant {interface.tenant}" if interface.tenant else ""
        yield field("Interface", f"{interface.protocol_binding} {interface.protocol_version} {interface.url}{tenant}")
    for extension in offers.extensions:
        yield field("Extension", f"{extension.uri}{' (required)' if extension.required else ''}")
    for name, scheme in (card.security_schemes or {}).items():
        yield field("Security scheme", f"{name}: {_describe_scheme(scheme)}")
    for requirement in card.security_requirements:
        yield field("Security requirement", msgspec.json.encode(requirement).decode())
    yield field("Input modes", ", ".join(card.default_input_modes))
    yield field("Output modes", ", ".join(card.default_output_modes))
    for skill in card.skills:
        yield field("Skill", f"{skill.id}: {skill.name}. {skill.description}")
        if verbose and skill.tags:
            yield field("Tags", ", ".join(skill.tags))
        for example in skill.examples if verbose else ():
            yield field("Example", example)


def json_text(value: Any) -> str:
    """Format a JSON value for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _status_lines(status: TaskStatus, verbose: bool) -> Iterator[str]:
    yield field("State", status.state)
    if verbose and status.timestamp:
        yield field("Updated", status.timestamp)
    if status.message is not None:
        yield from part_lines(status.message.parts, text="Message", data="Message data")


def _metadata_lines(metadata: dict[str, Any] | None) -> Iterator[str]:
    if metadata:
        yield from block("Metadata", json_text(metadata))


def _offered(flag: bool | None) -> str:
    return "yes" if flag else "no"


def _describe_scheme(scheme: Any) -> str:
    """Describe a security scheme of A2A 1.0 §4.5 in a few words."""
    match scheme:
        case {"apiKeySecurityScheme": {"location": where, "name": name}}:
            return f"API key in the {where} {name}"
        case {"httpAuthSecurityScheme": {"scheme": name}}:
            return f"HTTP {name}"
        case {"oauth2SecurityScheme": {"flows": dict(flows)}}:
            return f"OAuth 2.0 ({', '.join(flows)})"
        case {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}:
            return f"OpenID Connect at {url}"
        case {"mtlsSecurityScheme": _}:
            return "mutual TLS"
    return msgspec.json.encode(scheme).decode()
