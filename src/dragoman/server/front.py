"""What callers meet: the application with its cards, its limits and those who watch the door.

Invariant: a card says what the server does, because both are made from one configuration.
"""

from collections.abc import Callable, Mapping

from dragoman.agents.worker import WorkerAgent
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.app import App
from dragoman.bindings.callers import Callers
from dragoman.bindings.calls import Reception
from dragoman.bindings.cards import Cards
from dragoman.bindings.cors import Cors
from dragoman.bindings.health import Health
from dragoman.bindings.http import Request
from dragoman.bindings.limits import limits
from dragoman.bindings.metrics import Exposition
from dragoman.bindings.openai import OpenAi
from dragoman.bindings.routes import ALL_MOUNTS
from dragoman.bindings.workers import Workers
from dragoman.config import Config
from dragoman.dialects.mounts import OF_PROFILE, Mount
from dragoman.engine.api import Handler, Runner
from dragoman.engine.trail import Trail
from dragoman.engine.untasked import Untasked
from dragoman.model.errors import A2AError
from dragoman.model.ids import Clock
from dragoman.server.callers import hosts_of
from dragoman.store.audit import AuditEntry


def app_of(
    config: Config,
    handler: Handler,
    runners: Mapping[str, Runner],
    authenticator: Authenticator,
    signing: SigningRoom,
    trail: Trail,
    health: Health,
    metrics: Exposition | None,
    clock: Clock,
) -> App:
    """The application."""
    profiles = {agent_id: runner.profile for agent_id, runner in runners.items()}
    default = config.default or next(iter(profiles))
    mounts = ALL_MOUNTS if config.profile is None else (OF_PROFILE[config.profile],)
    workers = {agent_id: runner for agent_id, runner in runners.items() if isinstance(runner, WorkerAgent)}
    bounds = limits(config.max_body_bytes, config.max_depth, config.max_parts, max_text=config.max_text)
    callers = Callers(authenticator, hosts_of(config), _noting(trail, clock))
    reception = Reception(profiles, callers, bounds)
    cards = Cards(
        profiles,
        config.public_url,
        config.card_max_age_s,
        authenticator=authenticator,
        signing=signing if config.sign_cards else None,
        keys=signing if config.sign_cards or config.push_jwt else None,
        root="/" if Mount.ROOT in mounts else next(iter(mounts)).value,
        protocols=("jsonrpc",) if config.tasks else (),
        history=config.profile == "kaos" and config.tasks,
        pushes=config.profile != "kaos" and config.tasks,
        tenants=Mount.TENANT in mounts,
    )
    return App(
        handler if config.tasks else Untasked(clock),
        reception,
        default,
        cards=cards,
        health=health,
        cors=Cors(config.cors_origins) if config.cors_origins else None,
        mounts=mounts,
        openai=OpenAi(handler, reception, default, clock) if Mount.ROOT in mounts else None,
        metrics=metrics,
        workers=Workers(handler, workers, bounds) if workers else None,
    )


def _noting(trail: Trail, clock: Clock) -> Callable[[Request, A2AError], None]:
    """Writes down who was turned away before it was known what they wanted."""

    def note(request: Request, error: A2AError) -> None:
        entry = AuditEntry(
            at_ms=clock.now_ms(),
            principal=request.principal.id,
            action=request.route.endpoint,
            agent=request.route.agent,
            allowed=False,
            reason=type(error).__name__,
            peer=request.peer,
        )
        trail.note(entry)

    return note
