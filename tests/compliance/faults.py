"""Faults that are planted in a copy of the package, one at a time, to see that the checks of a requirement can fail.

Invariant: each breaks the requirements that it names, at the place where they are kept, and the text that it replaces
occurs once. A requirement whose checks have not failed on a planted fault does not count as passed.
"""

from pathlib import Path
from shutil import copytree, ignore_patterns

from msgspec import Struct

PACKAGE = Path(__file__).parents[2] / "src" / "dragoman"


class Edit(Struct, frozen=True):
    """A replacement in a file of the package."""

    file: str
    old: str
    new: str


class Fault(Struct, frozen=True):
    """A fault by its words, the requirements that it breaks, and the edits that make it."""

    words: str
    requirements: tuple[str, ...]
    edits: tuple[Edit, ...]


def plant(fault: Fault, folder: Path) -> None:
    """Copy the package into a folder, with the fault. Bytecode that still fits is copied along."""
    copy = folder / "dragoman"
    copytree(PACKAGE, copy, ignore=ignore_patterns("built", "*.pytest-*.pyc"))
    for edit in fault.edits:
        path = copy / edit.file
        path.write_text(path.read_text(encoding="utf-8").replace(edit.old, edit.new), encoding="utf-8")


def _fault(words: str, requirements: str, file: str, old: str, new: str, *more: Edit) -> Fault:
    ids = tuple(f"A2ACLI_{short}" for short in requirements.split())
    return Fault(words, ids, (Edit(file, old, new), *more))


A2A = "cli/a2a"
SEND, TASK, WAITING = f"{A2A}/commands/send.py", f"{A2A}/commands/task.py", f"{A2A}/waiting.py"
MESSAGE = f"{A2A}/message.py"
SESSION, TEXT, OUTPUT, WIRE = f"{A2A}/session.py", f"{A2A}/text.py", f"{A2A}/output.py", f"{A2A}/wire.py"
CREDENTIALS, OPTIONS, SETTINGS, OAUTH = (f"{A2A}/{name}.py" for name in ("credentials", "options", "settings", "oauth"))
CARD, SKILL, RECEIVE = f"{A2A}/commands/card.py", f"{A2A}/commands/skill/SKILL.md", f"{A2A}/commands/receive.py"
HELP, DEMO, CHAT = (f"{A2A}/commands/{name}.py" for name in ("help", "demo_server", "chat"))

FAULTS = (
    _fault(
        "the URL of a card is taken for that of an agent",
        "CARD_GET_001",
        "client/discovery.py",
        "return _places_below(base, [place.url, *likely], place.url)",
        "return _places_below(base, likely, place.url)",
    ),
    _fault(
        "metadata is not sent", "SEND_001", MESSAGE, "        metadata=read_metadata(session.settings),\n    )", "    )"
    ),
    _fault(
        "`send` never waits",
        "SEND_002",
        MESSAGE,
        'settings.flag("async") and not stream and settings["wait"].text != "true"',
        "not stream",
    ),
    _fault(
        "events of a stream are not printed",
        "SEND_003",
        MESSAGE,
        "on_update=output.update if stream else None",
        "on_update=None",
    ),
    _fault(
        "files are not rendered",
        "SEND_004",
        TEXT,
        '            yield field("File", describe_file(part))',
        "            pass",
    ),
    _fault(
        "a media type is dropped", "SEND_005", SEND, "part = replace(part, media_type=value)", "part = replace(part)"
    ),
    _fault(
        "parts are sorted",
        "SEND_006",
        SEND,
        "words[:1]] + flags_in_order(ctx)",
        "words[:1]] + sorted(flags_in_order(ctx))",
    ),
    _fault(
        "a time stamp is cut to milliseconds",
        "TASK_GET_001",
        "dialects/client/scalars.py",
        'return value if value.endswith("Z") and value[10] == "T" else found',
        'return found[:23] + "Z"',
    ),
    _fault(
        "`task cancel` only reads",
        "TASK_CANCEL_001",
        TASK,
        "await session.connection.cancel(task_id, metadata=read_metadata(session.settings))",
        "await session.connection.get(task_id)",
    ),
    _fault(
        "a context is not sent",
        "INTERACT_001",
        MESSAGE,
        'context_id=session.settings.text("context-id") or None',
        "context_id=None",
    ),
    _fault(
        "a message that was refused is sent again",
        "INTERACT_002",
        WAITING,
        "if operation.message.task_id and not isinstance(error, MethodNotFound):",
        "if False:",
    ),
    _fault(
        "a context is invented",
        "INTERACT_003",
        MESSAGE,
        'context_id=session.settings.text("context-id") or None',
        'context_id=session.settings.text("context-id") or "mine"',
    ),
    _fault(
        "the next command names no agent",
        "INTERACT_004",
        SESSION,
        'words.append(f"--{name} {_quoted(value.text)}")',
        "continue",
    ),
    _fault(
        "the last task is kept in a file",
        "INTERACT_005",
        WAITING,
        "    known.task_id = task_id or known.task_id\n",
        "    known.task_id = task_id or known.task_id\n"
        '    __import__("pathlib").Path.home().joinpath(".last-task").write_text(task_id)\n',
    ),
    _fault(
        "`task get --wait` asks once",
        "TASK_POLL_001",
        WAITING,
        "            if task.status.state in TERMINAL | INTERRUPTED:\n                return task\n            said",
        "            return task\n            said",
    ),
    _fault(
        "polls become rarer without an end",
        "TASK_POLL_002",
        WAITING,
        "wait_s = min(wait_s * BACKOFF, interval_s * BACKOFF_MAX)",
        "wait_s = wait_s * BACKOFF",
    ),
    _fault(
        "an unspecified state ends a wait",
        "TASK_POLL_003",
        WAITING,
        "            if task.status.state in TERMINAL | INTERRUPTED:\n                return task\n            said",
        "            if task.status.state is not TaskState.WORKING:\n                return task\n            said",
    ),
    _fault(
        "a stream that breaks is an error",
        "TASK_POLL_004",
        WAITING,
        "            if not session.task.task_id:\n                raise\n"
        "            return await _outlast(session, error, on_update, session.task.task_id)\n    answer",
        "            raise\n    answer",
    ),
    _fault(
        "a task is shown without its context",
        "OUT_001",
        TEXT,
        '    yield field("Task", task.id)\n    yield field("Context", task.context_id)\n    yield from _status',
        '    yield field("Task", task.id)\n    yield from _status',
    ),
    _fault(
        "the document is printed twice",
        "OUT_002",
        MESSAGE,
        "        output.update(answer)\n",
        "        output.update(answer)\n        output.update(answer)\n",
    ),
    _fault(
        "JSON lines are indented",
        "OUT_003",
        OUTPUT,
        "text = document if self._lines else msgspec.json.format(document, indent=2)",
        "text = msgspec.json.format(document, indent=2)",
    ),
    _fault(
        "errors have names of the tool's own",
        "OUT_004",
        f"{A2A}/failures.py",
        'return plain if plain.endswith("Error") else f"{plain}Error"',
        "return plain",
    ),
    _fault(
        "control sequences are printed",
        "OUT_005",
        TEXT,
        'sign if sign in "\\n\\t" or unicodedata.category(sign) not in _UNSAFE else "\\ufffd"',
        "sign",
    ),
    _fault(
        "`--async` prints nothing",
        "OUT_006",
        MESSAGE,
        "            answer = made\n            note(session, answer)\n",
        "            return\n",
    ),
    _fault(
        "a timeout has the status of an agent that is away",
        "EXIT_001",
        "cli/endings.py",
        "TIMEOUT: 5",
        "TIMEOUT: 3",
    ),
    _fault(
        "an outcome is not named", "EXIT_002", MESSAGE, "    if words := outcome_words(state):", '    if words := "":'
    ),
    _fault(
        "a key has a header of its own", "AUTH_001", CREDENTIALS, "else ApiKey(key, name)", 'else ApiKey(key, "x-mine")'
    ),
    _fault(
        "help does not say that others see flags",
        "AUTH_002",
        "cli/arguments.py",
        'EXPOSED = "A secret in a flag shows in the process table and in the shell\'s history: prefer the variable"',
        'EXPOSED = "Prefer the variable"',
    ),
    _fault(
        "credentials go over an unverified connection without a word",
        "AUTH_003",
        SESSION,
        'warn("INSECURE: credentials are sent over a connection whose certificate is not verified")',
        "pass",
    ),
    _fault(
        "the log has credentials",
        "AUTH_004",
        WIRE,
        "return redact(text, self._secrets)",
        "return text",
        Edit(WIRE, "value if name.lower() in PLAIN_HEADERS else REDACTED", "value"),
    ),
    _fault("the card's last interface is used", "TX_001", SESSION, "    return usable[0]", "    return usable[-1]"),
    _fault(
        "the user's transport is ignored",
        "TX_002",
        SESSION,
        'for preferred in settings["transport"].values:',
        "for preferred in ():",
    ),
    _fault(
        "the tenant is left out",
        "TX_003",
        "dialects/v1/client.py",
        "RpcCall(call.row.method, _body(call, operation, operation.tenant))",
        'RpcCall(call.row.method, _body(call, operation, ""))',
    ),
    _fault(
        "the version is empty",
        "VER_001",
        "dialects/v1/client.py",
        'headers={"A2A-Version": "1.0"},',
        'headers={"A2A-Version": ""},',
    ),
    _fault("everything is shown", "DEFAULT_001", SESSION, 'verbose=settings.flag("verbose")', "verbose=True"),
    _fault(
        "the file of tokens can be read by others",
        "CONFIG_001",
        f"{A2A}/tokens.py",
        "O_EXCL | os.O_NOFOLLOW, 0o600)",
        "O_EXCL | os.O_NOFOLLOW, 0o644)",
    ),
    _fault("`help` prints nothing", "CLI_001", HELP, "    click.echo(where.get_help())", "    where.get_help()"),
    _fault("the skill does not say what it needs", "SKILL_001", SKILL, "compatibility:", "needs:"),
    _fault("the skill repeats a rule", "SKILL_002", SKILL, "Check first that", "You MUST check first that"),
    _fault(
        "a missing field is no fault of a card",
        "CARD_GET_002",
        "doctor/card_check.py",
        '                yield f"{path}{name}: is missing" + _instead(given, name, fields)',
        "                pass",
    ),
    _fault("pages begin anew", "TASK_LIST_001", TASK, "        page_token=cursor,\n", ""),
    _fault(
        "a subscription is not printed",
        "TASK_SUBSCRIBE_001",
        TASK,
        "on_update=session.output.update if stream else None)\n    if not stream:\n        session",
        "on_update=None)\n    if not stream:\n        session",
    ),
    _fault(
        "the task at the beginning of a stream is passed over",
        "TASK_SUBSCRIBE_002",
        WAITING,
        "            if on_update is not None:\n                on_update(update)\n    if message",
        "            if on_update is not None and not isinstance(update, Task):\n"
        "                on_update(update)\n    if message",
    ),
    _fault(
        "a user who has not agreed yet has refused",
        "AUTH_005",
        OAUTH,
        'case "authorization_pending":',
        'case "pending":',
    ),
    _fault(
        "client credentials are another grant",
        "AUTH_006",
        OAUTH,
        '"grant_type": "client_credentials"',
        '"grant_type": "password"',
    ),
    _fault(
        "a stored token is not sent",
        "AUTH_007",
        SESSION,
        "stored = await stored_token(login_origin(resolved, [interface.url]), egress)",
        "stored = None",
    ),
    _fault(
        "only JSON-RPC is chosen",
        "TX_004",
        SESSION,
        'usable = [each for each in offered if each.dialect != "0.3"]',
        'usable = [each for each in offered if each.dialect != "0.3" and each.binding == "JSONRPC"]',
    ),
    _fault(
        "the card's capabilities are not asked for",
        "VER_003",
        SESSION,
        "if self.resolved is None or offered:",
        "if True:",
    ),
    _fault(
        "a variable wins over a flag",
        "CONFIG_002",
        SETTINGS,
        "if given := flags.get(setting.name):",
        "if (given := flags.get(setting.name)) and setting.variable not in environment:",
    ),
    _fault(
        "files are saved empty",
        "DOWNLOAD_001",
        f"{A2A}/download.py",
        "yield label, name, part.raw",
        'yield label, name, b""',
    ),
    _fault(
        "bodies are not logged", "OUT_007", WIRE, '                self.note(f"{sign} {line}")', "                pass"
    ),
    _fault(
        "no rule is measured",
        "CONFORM_001",
        "cli/doctor/conformance.py",
        '"fail" if broken else "pass" if held else "not measured"',
        '"not measured"',
    ),
    _fault(
        "the completion script is that of another program",
        "CLI_002",
        HELP,
        '"dragoman", "_DRAGOMAN_COMPLETE"',
        '"other", "_OTHER_COMPLETE"',
    ),
    _fault(
        "a webhook is not deleted",
        "PUSH_001",
        f"{A2A}/commands/push_config.py",
        "await session.connection.webhooks.delete(task_id, config_id)",
        "pass",
    ),
    _fault(
        "the public card is shown for the extended one",
        "CARD_GET_003",
        CARD,
        '    session.require("extended", card is not None and card.capabilities.extended_agent_card)\n',
        "",
        Edit(CARD, "found = await session.connection.extended_card()", "found = session.card"),
        Edit(CARD, "    if not session.shown.given:", "    if False:"),
    ),
    _fault(
        "a token goes to an agent that declares no scheme for it",
        "AUTH_008",
        CREDENTIALS,
        "if schemes is None or any(_takes_bearer(scheme) for scheme in schemes.values()):",
        "if True:",
    ),
    _fault(
        "a card without a signature is verified",
        "CARD_GET_004",
        CARD,
        '        return "absent"',
        '        return "verified"',
    ),
    _fault(
        "the first entry of a catalog is taken",
        "CARD_GET_005",
        f"{A2A}/reference.py",
        "        return chosen[0]",
        "        return entries[0]",
    ),
    _fault("Ctrl-C is no end of `receive`", "PUSH_002 EXIT_001", RECEIVE, "endless=count is None", "endless=False"),
    _fault(
        "a conversation forgets its task and context",
        "CHAT_001",
        CHAT,
        "make_message(parts, context_id=chat.context_id or None, task_id=chat.task_id or None)",
        "make_message(parts)",
    ),
    _fault("gRPC is not known", "TX_005", "client/card.py", ', "GRPC": GRPC}', "}"),
    _fault(
        "no client certificate is shown",
        "AUTH_009",
        SESSION,
        "certificate_file=certificate, key_file=key",
        'certificate_file="", key_file=""',
    ),
    _fault(
        "the endpoints of an OpenID provider are others",
        "AUTH_010",
        OAUTH,
        'found.get("token_endpoint")',
        'found.get("authorization_endpoint")',
    ),
    _fault(
        "a task that waits for authentication is not named",
        "AUTH_011",
        WAITING,
        '        TaskState.AUTH_REQUIRED: "the agent waits until its caller has authenticated",\n',
        "",
    ),
    _fault(
        "the demo server does not say where it is",
        "DEMO_SERVER_001",
        DEMO,
        'base = f"http://127.0.0.1:{listening.config.port}"',
        'base = "http://127.0.0.1:1"',
    ),
    _fault(
        "a required extension need not be declared",
        "VER_002",
        MESSAGE,
        "if extension.required and extension.uri not in declared:",
        "if False:",
    ),
)
"""At least one for each requirement."""
