"""A session: one command's connection to an agent, from its settings to its exit status.

Invariant: the command remembers nothing (a2a-cli §4.3). The ids of the task that it works on are printed before the
command waits, so that an interrupt or a timeout does not lose them.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.cli.a2a.credentials import AgentCredentials, choose_credentials, mutual_tls, refusal, secret_values
from dragoman.cli.a2a.failures import Failure, failure_of
from dragoman.cli.a2a.output import Output, print_failure, warn
from dragoman.cli.a2a.reference import ResolvedCard, origin_of, resolve_card
from dragoman.cli.a2a.settings import Level, Settings, SettingsError, output_of, seconds, settings_of
from dragoman.cli.a2a.tokens import stored_token
from dragoman.cli.a2a.wire import DebugLog
from dragoman.cli.arguments import is_loopback
from dragoman.cli.endings import INTERRUPTED_STATUS, Code, unwritten
from dragoman.cli.program import program
from dragoman.client import BadTls, Connection, FoundCard, Interface, Retries, Timeouts, connect, interfaces
from dragoman.client.card import beside, binding_of, dialect_of
from dragoman.client.credentials import redact
from dragoman.client.discovery import places
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.model.card import AgentCard
from dragoman.model.task import TaskState
from dragoman.net.egress import Egress
from dragoman.net.target import endpoint_target, is_grpc
from dragoman.net.tls import ClientTls, make_tls_context

SIGNALS_S = 0.5
"""How long a signal may wait until it is looked at."""

POLL_S = 2.0
"""How often a waiting command asks for the state (a2a-cli §7.3: RECOMMENDED)."""


MEND_S = 5.0
"""How long a broken stream is resumed while nothing answers; then a waiting command asks for the state instead."""


class KnownTask:
    """The newest ids and state of the task that the command works on; empty until the agent has told them.

    `announces` False: the ids are not printed before the wait, since the task is drawn.
    """

    def __init__(self) -> None:
        self.announces = True
        self.task_id = ""
        self.context_id = ""
        self.state: TaskState | None = None


class CommandSession:
    """A connection, and everything that the commands need beside it.

    `resolved` is the agent's card, None with `--dialect` and at an address of gRPC. `task` is what Ctrl-C and a timeout
    report.
    """

    def __init__(
        self,
        settings: Settings,
        output: Output,
        connection: Connection,
        resolved: ResolvedCard | None,
        shown: AgentCredentials,
        task: KnownTask,
        debug: DebugLog | None,
    ) -> None:
        self.settings = settings
        self.output = output
        self.connection = connection
        self.resolved = resolved
        self.shown = shown
        self.task = task
        self.debug = debug
        self._secrets = [*secret_values(settings), *shown.secrets]

    def hide(self, *secrets: str | None) -> None:
        """Keep these out of the wire's log and out of errors, as the credentials are."""
        given = [secret for secret in secrets if secret]
        self._secrets += given
        if self.debug is not None:
            self.debug.add_secrets(given)

    def failure(self, error: BaseException) -> Failure:
        """Translate what the client raised. A credential that the agent repeats in its error is left out.

        Raises an error of the output again, which is no failure of the agent's.
        """
        if unwritten(error):
            raise error
        withheld = bool(self.shown.warnings)
        failure = failure_of(error, credentials_given=self.shown.given, withheld=withheld)
        failure.message = redact(failure.message, self._secrets)
        return failure

    @property
    def card(self) -> AgentCard | None:
        """The agent's card in the form of A2A 1.0, None if `resolved` is."""
        return None if self.resolved is None else read_agent_card(self.resolved)

    def require(self, capability: str, offered: bool | None) -> None:
        """Check that the card offers a capability before it is used (a2a-cli §11.3). Raises Failure."""
        if self.resolved is None or offered:
            return
        code, words = _CAPABILITIES[capability]
        raise Failure(code, f"the agent's card says that {words}", hint="`card get` shows what the agent offers")


_CAPABILITIES = {
    "push": ("PushNotificationNotSupportedError", "it calls no webhooks"),
    "streaming": ("UnsupportedOperationError", "it does not stream"),
    "extended": ("ExtendedAgentCardNotConfiguredError", "it has no extended card"),
}
"""The error of each capability that a card can lack, by A2A's name (A2A 1.0 §3.3.4), and its words."""


def run_session(
    options: Mapping[str, Any], work: Callable[[CommandSession], Awaitable[None]], *, lines: bool = False
) -> None:
    """Run `work` with a session, print what failed, and exit with the status that says so.

    `lines` prints one JSON object a line.
    """
    run_command(options, lambda settings, output, task: with_session(settings, output, task, work), lines=lines)


def run_command(
    options: Mapping[str, Any],
    work: Callable[[Settings, Output, KnownTask], Awaitable[None]],
    *,
    lines: bool = False,
    endless: bool = False,
) -> None:
    """Run `work` with the settings and the output of a command, as `run_session` does.

    `endless`: the command goes on until Ctrl-C, which is no interruption then.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its C++ tells of failures in its own words, before ours
    settings = settings_of(options)
    form = output_of(settings)
    output = Output(form, lines=lines, verbose=settings.flag("verbose"))
    timeout_s = seconds(settings, "timeout")
    seconds(settings, "poll-interval")  # a mistake is told before anything is sent
    for warning in settings.warnings:
        warn(warning)
    task = KnownTask()

    async def within_time() -> None:
        _look_for_signals(asyncio.get_running_loop())
        async with asyncio.timeout(timeout_s):
            await work(settings, output, task)

    try:
        asyncio.run(within_time())
    except KeyboardInterrupt:
        if endless:
            return
        resume = _resume_command(settings, task)
        warn(f"interrupted; the task continues: {resume}" if resume else "interrupted")
        sys.exit(INTERRUPTED_STATUS)
    except TimeoutError:
        resume = _resume_command(settings, task)
        hint = f"the task continues: {resume}" if resume else ""
        _fail(Failure(Code.TIMEOUT, f"nothing final within {timeout_s:g} s", hint=hint), form)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; nothing is left to tell
        sys.exit(1)
    except Exception as error:  # the outermost door: an error is reported, not a traceback
        if unwritten(error):
            raise
        _fail(failure_of(error, credentials_given=False), form)


def _look_for_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop turn now and then. A signal that comes just before it waits does not wake it: without this, Ctrl-C
    would do nothing until the next answer."""
    loop.call_later(SIGNALS_S, _look_for_signals, loop)


async def with_session(
    settings: Settings, output: Output, task: KnownTask, work: Callable[[CommandSession], Awaitable[None]]
) -> None:
    """Open a session and run `work` with it. Raises Failure for whatever the client raises."""
    async with open_session(settings, output, task) as session:
        try:
            await work(session)
        except Exception as error:  # a command reports every error in the form that was asked for
            if isinstance(error, (BrokenPipeError, TimeoutError)):
                raise
            raise session.failure(error) from error


@asynccontextmanager
async def open_session(settings: Settings, output: Output, task: KnownTask) -> AsyncGenerator[CommandSession, None]:
    """Resolve the agent's card, choose an endpoint, and connect. Raises Failure and what `connect` raises."""
    agent = named_agent(settings)
    headers = service_parameters(settings, agent)
    debug = DebugLog([*headers.values(), *secret_values(settings)]) if settings.flag("debug") else None
    tls = await make_tls(settings, agent)
    egress = Egress(tls=tls)
    try:
        if dialect := _named_dialect(settings, agent):
            async with _connect_by_dialect(settings, agent, dialect, headers, egress, debug) as (connection, shown):
                yield CommandSession(settings, output, connection, None, shown, task, debug)
            return
        # The card's host is not known to be the agent's yet: it gets no service parameters, which may be secret.
        resolved = await resolve_card(agent, egress=egress, headers={})
        card = read_agent_card(resolved)
        interface = choose_interface(settings, resolved)
        say_root(agent, resolved)
        stored = await stored_token(login_origin(resolved, [interface.url]), egress)
        shown = choose_credentials(settings, agent, card.security_schemes or {}, stored)
        _warn_about_credentials(settings, shown, interface.url)
        origins = _origins(settings, resolved)
        if shown.query and is_grpc(interface.url):
            warn("the API key belongs into the query of the URL, which gRPC does not have: it is not sent")
        elif shown.query and origin_of(interface.url) in _http_origins([resolved.found.url, *origins]):
            joint = "&" if "?" in interface.url else "?"
            interface = replace(interface, url=f"{interface.url}{joint}{shown.query}")
        if debug is not None:
            debug.add_secrets(shown.secrets)
            debug.card(resolved.place, resolved.found.card)
            debug.note(f"speaking {interface.dialect} over {interface.binding} at {interface.url}")
        async with connect(
            resolved.found.url,
            card=resolved.found,
            interface=interface,
            credentials=shown.credentials,
            headers=headers,
            extensions=settings["extension"].values,
            origins=origins,
            egress=egress,
            tls=tls,
            timeouts=_timeouts(settings),
            retries=Retries(),
            wire=debug,
        ) as connection:
            yield CommandSession(settings, output, connection, resolved, shown, task, debug)
    finally:
        await egress.close()


def _named_dialect(settings: Settings, agent: str) -> str:
    """Return the dialect in which the agent is called without a card; empty if its card is to say it.

    An address of gRPC has no card: there it is `--a2a-version`, else 1.0. Raises SettingsError.
    """
    named = settings.text("dialect")
    if named or not is_grpc(agent):
        return named
    return _wanted_version(settings) or "1.0"


@asynccontextmanager
async def _connect_by_dialect(
    settings: Settings, agent: str, dialect: str, headers: Mapping[str, str], egress: Egress, debug: DebugLog | None
) -> AsyncGenerator[tuple[Connection, AgentCredentials], None]:
    """Connect without a card, to an agent whose dialect is known."""
    stored = await stored_token(origin_of(agent), egress)
    shown = choose_credentials(settings, agent, None, stored)
    _warn_about_credentials(settings, shown, agent)
    url = agent if "://" in agent else origin_of(agent) + agent.partition("/")[1] + agent.partition("/")[2]
    try:
        async with connect(
            url,
            dialect=dialect,
            credentials=shown.credentials,
            headers=headers,
            extensions=settings["extension"].values,
            egress=egress,
            timeouts=_timeouts(settings),
            wire=debug,
        ) as connection:
            yield connection, shown
    except ValueError as error:
        raise SettingsError(f"{settings.describe('dialect')}: {error}") from error


def named_agent(settings: Settings) -> str:
    """Return the reference of the agent. Raises Failure if there is none."""
    agent = settings.text("agent-card")
    if not agent:
        hint = "give --agent-card, or set A2ACLI_AGENT_CARD: `-a localhost:7870` is a server on this machine"
        raise Failure(Code.USAGE, "no agent is named", hint=hint)
    return agent.strip()


def read_agent_card(resolved: ResolvedCard) -> AgentCard:
    """Read a card in any version's form. Raises Failure if it is malformed."""
    try:
        return decode_card(resolved.found.card)
    except Unfit as error:
        raise Failure(
            Code.CARD_INVALID, f"{resolved.place}: {error}", hint="`card get --validate` lists faults"
        ) from None


def say_root(agent: str, resolved: ResolvedCard) -> None:
    """Tell the user which agent a reference to a host has reached, because the host may have others."""
    if resolved.at_root:
        name = resolved.found.card.get("name")
        host = agent.partition("?")[0]  # a query may hold a key
        warn(f"{host} names a host: its agent is the one at the root{f', {name}' if isinstance(name, str) else ''}")


def choose_interface(settings: Settings, resolved: ResolvedCard) -> Interface:
    """Choose an endpoint of the card (a2a-cli §11): the version first, then the user's order, then the card's.

    Raises Failure; SettingsError for a version or a binding that does not exist.
    """
    found: FoundCard = resolved.found
    offered = interfaces(found.card, found.url, places(found.url).base, as_listed=True)
    wanted = _wanted_version(settings)
    if not offered:
        raise Failure(Code.CARD_INVALID, f"{resolved.place} names no endpoint that this tool speaks")
    if wanted:
        usable = [each for each in offered if each.dialect == wanted]
    else:
        usable = [each for each in offered if each.dialect != "0.3"]
    if not usable:
        versions = ", ".join(dict.fromkeys(each.dialect for each in offered))
        hint = "" if wanted else "versions below 1.0 are spoken only with --a2a-version 0.3"
        raise Failure("VersionNotSupportedError", f"the agent speaks {versions}, not {wanted or '1.0'}", hint=hint)
    for preferred in settings["transport"].values:
        binding = binding_of(preferred)
        if binding is None:
            raise SettingsError(f"{settings.describe('transport')} is {preferred!r}: use JSONRPC, HTTP+JSON or GRPC")
        for each in usable:
            if each.binding == binding:
                return each
    return usable[0]


def _wanted_version(settings: Settings) -> str | None:
    """Return the version that the user asks for; None if the agent decides. Raises SettingsError."""
    text = settings.text("a2a-version")
    if not text:
        return None
    if (version := dialect_of(text)) is None:
        raise SettingsError(f"{settings.describe('a2a-version')} is {text!r}: use 1.0 or 0.3")
    return version


def service_parameters(settings: Settings, agent: str) -> dict[str, str]:
    """Read `--svc-param KEY:VALUE`, as far as the agent that the reference `agent` names may see it.

    A parameter may be a credential, so it goes only where its source may send it. Raises SettingsError.
    """
    headers: dict[str, str] = {}
    if unsent := refusal(settings, "svc-param", agent):
        warn(unsent)
        return headers
    for given in settings["svc-param"].values:
        name, colon, value = given.partition(":")
        name, value = name.strip(), value.strip()
        plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not colon or not plain or any(ord(sign) < 32 for sign in value):
            raise SettingsError(f"{settings.describe('svc-param')}: use KEY:VALUE, with letters, digits and - in KEY")
        headers[name] = value
    return headers


def command_line(settings: Settings, command: str) -> str:
    """Return the exact command to go on with: the agent and everything that is needed, without credentials."""
    words = [program(), command]
    for name in ("agent-card", "dialect", "a2a-version", "ca-cert"):
        value = settings[name]
        if value.text and value.level in (Level.FLAG, Level.ENVIRONMENT):
            words.append(f"--{name} {_quoted(value.text)}")
    return " ".join(words)


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


async def make_tls(settings: Settings, agent: str) -> ClientTls:
    """Return the TLS of the session. Raises SettingsError for a file that cannot be used."""
    insecure = settings.flag("insecure")
    if insecure:
        warn("INSECURE: TLS certificates are not verified; anybody on the way can read and change everything")
    certificate, key = mutual_tls(settings, agent)
    if unsent := refusal(settings, "client-cert", agent):
        warn(unsent)
    tls = ClientTls(ca_file=settings.text("ca-cert"), certificate_file=certificate, key_file=key, verify=not insecure)
    try:
        await asyncio.to_thread(make_tls_context, tls)
    except BadTls as error:
        raise SettingsError(f"{settings.describe('ca-cert' if tls.ca_file else 'client-cert')}: {error}") from error
    return tls


def login_origin(resolved: ResolvedCard, urls: Sequence[str]) -> str:
    """Return the origin whose stored login these endpoints of a card may be shown; empty if there is none.

    A card in a file may name the endpoint of a login, and beside it those of strangers.
    """
    known = endpoint_target(resolved.found.url)
    for to in map(endpoint_target, urls) if resolved.vouched else ():
        if to.origin != known.origin and not beside(to, known):
            return ""
    return origin_of(resolved.found.url)


def _origins(settings: Settings, resolved: ResolvedCard) -> list[str]:
    """Return the origins besides the card's own to which credentials go."""
    named = list(settings["trust-origin"].values)
    if resolved.vouched:
        found = resolved.found
        named += [each.url for each in interfaces(found.card, found.url, places(found.url).base)]
    return named


def _http_origins(urls: Sequence[str]) -> set[str]:
    """Return the origins of the URLs that are not of gRPC."""
    return {origin_of(url) for url in urls if not is_grpc(url)}


def _warn_about_credentials(settings: Settings, shown: AgentCredentials, url: str) -> None:
    for warning in shown.warnings:
        warn(warning)
    if not shown.given:
        return
    if settings.flag("insecure"):
        warn("INSECURE: credentials are sent over a connection whose certificate is not verified")
        return
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    if parts.scheme in ("http", "grpc") and not is_loopback(place):
        warn(f"credentials are sent in clear text to {parts.scheme}://{place}: use TLS")


def _timeouts(settings: Settings) -> Timeouts:
    limit_s = seconds(settings, "timeout")
    if limit_s is None:
        return Timeouts(mend_s=MEND_S)
    return Timeouts(answer_s=max(limit_s, 1.0) + 1.0, mend_s=MEND_S)


def _resume_command(settings: Settings, task: KnownTask) -> str:
    """Return the command that comes back to the task, empty if the agent has not told its id."""
    return f"{command_line(settings, 'task get')} --wait {task.task_id}" if task.task_id else ""


def _fail(failure: Failure, form: str) -> NoReturn:
    print_failure(failure, form)
    sys.exit(failure.status)
