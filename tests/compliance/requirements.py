"""The requirements of the a2a-cli specification 0.2 (revision of 2026-08-17), with their tiers and sections.

Ids, tiers and sections are those of the specification's registry (`specification/COMPLIANCE.md` in a2aproject/a2a-cli);
the words are ours.
"""

from msgspec import Struct

SPECIFICATION, REVISION = "0.2", "2026-08-17"

TIERS = {1: "Core", 2: "Standard", 3: "Advanced"}


class Requirement(Struct, frozen=True):
    """One requirement. With `agent` False it concerns the tool alone, so that no agent has to answer."""

    id: str
    tier: int
    section: str
    words: str
    agent: bool = True

    @property
    def area(self) -> str:
        """The area, which is the middle of the id."""
        return self.id.removeprefix("A2ACLI_").rpartition("_")[0]


def _tier(number: int, *rows: tuple[str, str, str] | tuple[str, str, str, bool]) -> tuple[Requirement, ...]:
    return tuple(Requirement(f"A2ACLI_{row[0]}", number, row[1], row[2], *row[3:]) for row in rows)


NO_AGENT = False

REQUIREMENTS = (
    *_tier(
        1,
        (
            "CARD_GET_001",
            "§8.1, §11",
            "`card get` reads a card by host, URL or file, and the card chooses the transport",
        ),
        ("SEND_001", "§8.2", "`send` starts an interaction"),
        ("SEND_002", "§8.2, §4.5", "`send` waits; with `--async` it prints the ids at once"),
        ("SEND_003", "§8.2, §7.2", "`--stream` follows events, never hangs, and takes a direct message for an answer"),
        ("SEND_004", "§8.2", "Artifacts are rendered, and no part is left out"),
        ("SEND_005", "§8.2", "`--media-type` belongs to the part before it; a type is inferred only without it"),
        ("SEND_006", "§8.2", "`--text`, `--file` and `--data` repeat and keep their order; `--data -` reads stdin"),
        ("TASK_GET_001", "§8.3", "`task get` shows state, artifacts and history of a task"),
        ("TASK_CANCEL_001", "§8.4", "`task cancel` cancels, and reports the state that results"),
        ("INTERACT_001", "§6.2", "`--context-id` continues an interaction"),
        (
            "INTERACT_002",
            "§6.2",
            "`--task-id` continues a task; a refused id fails, points at `--debug`, starts nothing",
        ),
        ("INTERACT_003", "§6.1, §2", "Ids of the server are never invented, and a context is not taken for a chat"),
        ("INTERACT_004", "§6.3", "Task, context and state are printed with the exact command to go on"),
        ("INTERACT_005", "§4.3, §6.1, §6.4", "Nothing is remembered from one command to the next"),
        ("TASK_POLL_001", "§7.3", "A task is read once, or polled with `--wait` until it ends or waits"),
        (
            "TASK_POLL_002",
            "§7.3",
            "Polls keep to interval, back-off and timeout; an interrupt does not lose the task id",
        ),
        ("TASK_POLL_003", "§7.1, §7.3", "A wait ends at a question at once, and goes on in an unspecified state"),
        ("TASK_POLL_004", "§7.3", "A stream that breaks is replaced by polling"),
        (
            "OUT_001",
            "§9.1, §9.5, §6.3",
            "Every answer about a task names task, context and state; stdout has nothing else",
        ),
        ("OUT_002", "§9.3, App. B", "`-o json` is one document: the object at the end, not its events"),
        (
            "OUT_003",
            "§9.3, §9.4, App. B",
            "`-o json --stream` is JSON lines that end with the final event or the error",
        ),
        (
            "OUT_004",
            "§9.4, App. B, App. E",
            "Errors have A2A's names over every binding, or a code of the tool, and a hint",
        ),
        ("OUT_005", "§9.2, §4.1", "`text` has stable labels, blocks, no control sequences, and never asks in a pipe"),
        ("OUT_006", "§9.5", "`--async` prints task id and context id"),
        ("EXIT_001", "§9.6, App. E", "Exit statuses 0, 1 and 2, and each other one agrees with its error"),
        ("EXIT_002", "§4.6, §9.6", "The exit status is 0 whatever became of the task, which stderr names"),
        ("AUTH_001", "§10.1", "Tokens and keys are sent as the card asks; `--svc-param` is a thing of its own"),
        ("AUTH_002", "§10.1, §4.5", "Each credential has a variable, and help says that flags can be seen by others"),
        ("AUTH_003", "§10.1, §4.5", "Credentials over an unverified connection raise a warning"),
        ("AUTH_004", "§10.1, §5.2", "No credential is in any diagnostic output"),
        ("TX_001", "§11.1", "The card's order of interfaces decides the transport"),
        ("TX_002", "§11.1, §4.5", "The first interface that is spoken is used; `--transport` repeats and is ordered"),
        ("TX_003", "§11.1", "The interface's tenant is in every request, and only if there is one"),
        ("VER_001", "§11.2", "Each request says its version, which is never below 1.0 unless asked for"),
        ("DEFAULT_001", "§4.5", "The six defaults are shipped, shown, and can each be overridden"),
        (
            "CONFIG_001",
            "§6.4",
            "Settings have a usual place, secrets are for their owner, and no session is kept",
            NO_AGENT,
        ),
        ("CLI_001", "§5.1, §5.2, §4.5", "`help`, `--help` with the defaults, and `--version`", NO_AGENT),
        ("SKILL_001", "§12.1, §12.2", "One short skill that points at `help`", NO_AGENT),
        ("SKILL_002", "§12.3", "The skill repeats no requirement", NO_AGENT),
    ),
    *_tier(
        2,
        ("CARD_GET_002", "§8.1", "`card get --validate` checks a card"),
        ("TASK_LIST_001", "§5.1, App. A", "`task list` pages by cursor, and filters by state and context"),
        ("TASK_SUBSCRIBE_001", "§5.1, §7.2", "`task subscribe` follows a task"),
        ("TASK_SUBSCRIBE_002", "§7.4, §7.2", "A stream is resumed after a disconnect, and begins with the whole task"),
        ("AUTH_005", "§10.2", "`auth login` with a device code"),
        ("AUTH_006", "§10.2", "`auth login` with client credentials"),
        ("AUTH_007", "§10.2", "Tokens are stored safely and sent from then on"),
        ("TX_004", "§11.1", "At least two transports can be chosen"),
        ("VER_003", "§11.3", "The card is consulted before streaming, webhooks and the extended card are used"),
        (
            "CONFIG_002",
            "§6.4",
            "Flag, variable, local file, global file, default; `config show` tells the source",
            NO_AGENT,
        ),
        ("DOWNLOAD_001", "§5.1", "`task download` saves artifacts"),
        ("OUT_007", "§5.2", "`--debug` logs the messages on the wire to stderr"),
        ("CONFORM_001", "§5.1", "`conformance` checks a live agent"),
        ("CLI_002", "§5.1", "`completion` prints a script for the named shell", NO_AGENT),
        ("PUSH_001", "§5.1, App. A", "`task push-config` creates, shows, lists and deletes webhooks"),
    ),
    *_tier(
        3,
        ("CARD_GET_003", "§8.1, §10.4", "The extended card is fetched with a scheme of the public card only"),
        ("AUTH_008", "§10.4", "No credential goes to the endpoint of a card that declares no scheme for it"),
        ("CARD_GET_004", "§8.1", "A signature is reported as verified, unverifiable or absent"),
        ("CARD_GET_005", "§8.1", "An entry of a catalog stands for its card"),
        ("PUSH_002", "§7.2", "A receiver of webhooks"),
        ("CHAT_001", "§6.2, §5.1", "`chat` carries context and task from turn to turn"),
        ("TX_005", "§11.1", "gRPC"),
        ("AUTH_009", "§10.3", "Mutual TLS"),
        ("AUTH_010", "§10.3", "OpenID Connect"),
        ("AUTH_011", "§10.3", "A task that asks for authentication goes on after it"),
        ("DEMO_SERVER_001", "§5.1, §14", "`demo-server` runs a local agent"),
        ("VER_002", "§11.3", "Extensions that the agent requires are declared"),
    ),
)

DEFAULTS = {
    "transport_server_preference_order": "Transport: the card's order",
    "task_completion_wait": "Task completion: wait",
    "output_text": "Output: `text`",
    "detail_level_concise": "Detail: concise",
    "protocol_version_highest_mutual": "Protocol version: the highest of both, never below 1.0",
    "transport_security_tls_on": "TLS certificates are verified",
}
"""The rows of the breakdown of `A2ACLI_DEFAULT_001`: their keys in YAML and their words."""

ERROR_CODES = tuple(
    f"A2ACLI_ERR_{symbol}"
    for symbol in (
        "USAGE",
        "CARD_NOT_FOUND",
        "CARD_INVALID",
        "UNREACHABLE",
        "CREDENTIALS_MISSING",
        "AUTH_FAILED",
        "TIMEOUT",
        "INTERNAL",
    )
)
"""The codes of failures of the tool itself (Appendix E)."""
