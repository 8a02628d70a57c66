"""The tables of `dragoman help TOPIC`: each is on a page, and those that are written as text agree with the code."""

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from dragoman.admin.logs import UpstreamWord
from dragoman.admin.overview import FOLLOW_CHANGES, Stats
from dragoman.admin.tasks import ActingLine
from dragoman.admin.usage import UsageLine
from dragoman.agents.worker.wire import ACTIONS
from dragoman.bindings.admin.routes import routes
from dragoman.cli.topics import TOPICS, Section, TopicTable, load_table, search_table, to_markdown, to_text
from dragoman.cli.topics.admin_api import NOTES
from dragoman.config import RESERVED_AGENT_IDS, AgentEntry, Price, settings
from dragoman.config.agents import KINDS
from dragoman.config.budgets import BUDGET_KEYS
from dragoman.config.models import MODEL_KEYS, TOOL_KEYS
from dragoman.config.pools import MEMBER_KEYS, POOL_KEYS
from dragoman.config.programs import PROGRAM_KEYS
from dragoman.config.teams import TeamEntry
from dragoman.config.upstreams import KEYS, ExchangeEntry
from dragoman.dialects.registry import load_system
from dragoman.store.postgres.database.address import Address
from scripts.tables import MARKER
from tests.cli.a2a.command import Shell
from tests.docs.test_readme import ROOT

MARKERS = {page: MARKER.findall(page.read_text(encoding="utf-8")) for page in sorted((ROOT / "docs").rglob("*.md"))}
UNITS = {"": 1, "s": 1, "KB": 1 << 10, "MiB": 1 << 20}


def names(topic: str) -> list[str]:
    """What is between backticks in the first column."""
    rows = [row for section in load_table(topic).sections for row in section.rows]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def test_every_table_is_on_a_page_and_a_page_names_only_tables_with_rows() -> None:
    named = [marker for markers in MARKERS.values() for marker in markers]
    assert {topic for topic, _ in named} == set(TOPICS)
    for topic, text in named:
        assert search_table(load_table(topic), text).sections


def test_the_table_of_settings_has_each_with_its_names_default_and_meaning() -> None:
    lines = to_markdown(load_table("settings")).splitlines()[2:]
    assert len(lines) == len(settings())
    for line, setting in zip(lines, settings(), strict=True):
        default = f"`{setting.default}`" if setting.default else "not set"
        head = f"| `{setting.name}` | `{setting.env}` | `{setting.flag}` | {default} | "
        assert line.replace("&#124;", "|").startswith(head + setting.help)


def test_the_table_of_agent_keys_has_every_key_that_all_kinds_share() -> None:
    kinds = {*(kind.field for kind in KINDS), "pool"}
    assert set(names("agent-keys")) == set(AgentEntry.__struct_fields__) - kinds


def test_the_table_of_the_admin_api_has_the_names_of_acts_in_the_audit_trail() -> None:
    said = {row[0]: row[1] for row in load_table("admin-api").sections[0].rows}
    assert said["`POST /admin/v1/tasks:cancel`"].endswith(" Audit: `tasks.cancel-many`.")
    assert "Audit:" not in said["`GET /admin/v1/openapi.json`"]


def test_every_note_on_a_request_is_on_one_that_exists() -> None:
    assert NOTES.keys() <= {f"{route.method} {route.path}" for route in routes()}


def section(topic: str, title: str) -> set[str]:
    """What is between backticks in the first column of a section."""
    rows = [row for section in load_table(topic).sections if section.title == title for row in section.rows]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def test_the_tables_of_each_kind_of_agent_have_every_key() -> None:
    assert names("program-keys") == [*dict.fromkeys(names("program-keys"))]
    assert set(names("program-keys")) == set(PROGRAM_KEYS)
    assert set(MODEL_KEYS) <= set(names("model-keys")) <= {*MODEL_KEYS, *POOL_KEYS, "pool", "headers"}
    assert set(names("tool-keys")) == {*TOOL_KEYS}
    assert set(names("team-keys")) == set(TeamEntry.__struct_fields__)
    assert set(names("budget-keys")) == set(BUDGET_KEYS)
    assert section("upstream-keys", "An agent") == {*KEYS, "offline"}
    assert section("upstream-keys", "A pool") <= set(POOL_KEYS)
    assert section("upstream-keys", "A member of a pool") <= set(MEMBER_KEYS)
    exchange = {name.removeprefix("exchange.") for name in names("upstream-keys") if name.startswith("exchange.")}
    assert exchange == set(ExchangeEntry.__struct_fields__)


@pytest.mark.parametrize(("topic", "package"), [("upstream-reasons", "remote"), ("model-reasons", "model")])
def test_the_tables_of_reasons_have_each_that_the_code_has(topic: str, package: str) -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/dragoman/agents" / package).rglob("*.py"))
    prefix = topic.partition("-")[0]
    known = set(re.findall(rf'"({prefix}_[a-z_]+)"', source)) - {"upstream_state"}
    listed = {name for name in names(topic) if name.startswith(f"{prefix}_")}
    assert known <= listed
    everywhere = "".join(path.read_text() for path in (ROOT / "src/dragoman").rglob("*.py"))
    assert [name for name in names(topic) if f'"{name}"' not in everywhere] == []


def test_the_table_of_reasons_has_those_that_the_code_gives_to_tasks_of_programs_too() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/dragoman").rglob("*.py"))
    assert set(re.findall(r'"(program_[a-z]+)"', source)) - {"program_keys"} <= set(names("task-reasons"))
    assert [name for name in names("task-reasons") if f'"{name}"' not in source] == []


def test_the_table_of_the_worker_api_says_what_each_action_does() -> None:
    rows = load_table("worker-api").sections[0].rows
    assert [row[0] for row in rows] == [f"`{action}`" for action, row in ACTIONS.items() if row.summary]
    assert {row[0]: row[2][:5] for row in rows}["`references`"] == "Read "
    assert not any(meaning.startswith("`") for *_, meaning in rows)


def test_the_table_of_the_context_has_its_calls_as_they_are_written() -> None:
    listed = [row[0] for section in load_table("context").sections for row in section.rows]
    for call in ("`ctx.text`", "`await ctx.history(limit=100)`", "`ctx.title(text)`"):
        assert call in listed
    assert "`await ctx.memory.get(key)`" in listed


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("Stats", Stats.__struct_fields__),
        ("Usage", UsageLine.__struct_fields__),
        ("`upstream`", UpstreamWord.__struct_fields__),
        ("`acting`", ActingLine.__struct_fields__),
        ("/events`", tuple(FOLLOW_CHANGES.events)),
    ],
)
def test_every_field_of_an_answer_has_a_row(title: str, known: tuple[str, ...]) -> None:
    (section,) = (each for each in load_table("admin-fields").sections if each.title.endswith(title))
    assert {name for row in section.rows for name in re.findall(r"`([^`]+)`", row[0])} == set(known)


def test_a_text_finds_the_rows_of_a_section_by_its_title() -> None:
    (emitted,) = search_table(load_table("limits"), "what an agent emits").sections
    assert emitted.title == "What an agent emits"
    assert any("surrogate" in row[0] for row in emitted.rows)


def test_the_table_of_store_options_has_each_with_its_default() -> None:
    said = {row[0].strip("`"): row[1].strip("`") for row in load_table("store-options").sections[0].rows}
    known = {field.name: field.default for field in fields(Address) if field.name != "dsn"}
    assert said.keys() == known.keys()
    assert all(known[name] is None or float_or_text(known[name]) == float_or_text(said[name]) for name in said)


def float_or_text(value: object) -> object:
    """A number for what is one as text."""
    return float(text) if (text := str(value)).replace(".", "").isdigit() else text


def test_the_table_of_prices_has_every_key() -> None:
    assert set(names("price-keys")) >= {"currency", *Price.__struct_fields__}


def test_every_attribute_of_a_span_is_in_the_code() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "dragoman").rglob("*.py"))
    rows = [row for section in load_table("spans").sections for row in section.rows]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", row[1])}
    assert len(named) > 30
    assert [name for name in sorted(named) if f'"{name}"' not in source] == []


def test_the_limits_that_are_settings_have_the_defaults_of_the_code() -> None:
    defaults = {setting.name: setting.default for setting in settings()}
    rows = [row for section in load_table("limits").sections for row in section.rows]
    said = {found[1]: row[1] for row in rows if (found := re.search(r"`(\w+_\w+)`$", row[0])) and found[1] in defaults}
    assert len(said) > 15
    for name, text in said.items():
        number, _, unit = text.replace(",", "").partition(" ")
        assert float(number) * UNITS[unit] == float(defaults[name]), name


def test_the_page_of_settings_lists_every_reserved_agent_id() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([^`]+)`", text[text.index("These ids are paths") :])) == RESERVED_AGENT_IDS


def test_a_message_is_found_as_it_was_printed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    printed = "dragoman: store file /srv/a.db belongs to another program: use another path"
    ran = shell.run("help", "messages", printed)
    assert ran.status == 0
    assert "store file … belongs to another program: use another path\n    It is a SQLite file" in ran.out
    assert ran.out.count("belongs to another program") == 1
    assert shell.run("help", "messages", "store file x.db belongs to another program").out == ran.out  # as help shows
    assert shell.run("help", "messages", "nobody says this").status == 1


def test_a_table_for_a_terminal_has_neither_links_nor_marks() -> None:
    table = TopicTable(("A", "B", "Meaning"), (Section("one", (("`a|b`", "", "**See** [the `x`](y.md#z)."),)),))
    assert to_text(table, 40) == "ONE\n\na|b\n    See the x."
    assert "| `a&#124;b` |  | **See**" in to_markdown(table)


def test_a_section_that_sets_things_side_by_side_names_each_cell() -> None:
    rows = (("Speed", "**fast**", "[slow](y.md)"), ("Size", "small", "large"))
    table = TopicTable((), (Section("one", rows, ("", "Ours", "Theirs")),))
    assert to_text(table, 40) == (
        "ONE\n\nSpeed\n    Ours: fast\n    Theirs: slow\n\nSize\n    Ours: small\n    Theirs: large"
    )
    assert "|  | Ours | Theirs |\n|---|---|---|\n| Speed | **fast** | [slow](y.md) |" in to_markdown(table)
    assert [row[0] for row in search_table(table, "larg").sections[0].rows] == ["Size"]
    assert search_table(table, "larg").sections[0].columns == ("", "Ours", "Theirs")


@pytest.mark.parametrize("topic", TOPICS)
def test_every_row_has_a_cell_for_each_column_and_a_meaning(topic: str) -> None:
    table = load_table(topic)
    for section in table.sections:
        for row in section.rows:
            assert len(row) == len(section.columns or table.columns)
            assert row[0], row
            assert row[-1], row


@pytest.mark.parametrize(
    ("name", "title"),
    [("beeos", "BeeOS"), ("kaos", "KAOS"), ("evoai", "Evo AI"), ("protoagent", "protoAgent"), ("fasta2a", "FastA2A")],
)
def test_the_table_of_dialects_has_every_method_of_a_system(name: str, title: str) -> None:
    rows = [row for section in load_table("dialects").sections for row in section.rows if row[1] == title]
    named = {word for row in rows for word in re.findall(r"`([\w/]+)`", row[0]) if not word.startswith("/")}
    assert named == load_system(name).methods
