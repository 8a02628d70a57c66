"""Each word does in each situation what the tables say: those of local agents, of workers, BeeOS's calls, decisions."""

import pytest

from tests.law.tables import TABLES, kept

KEPT = {table: kept(table) for table in TABLES}

CASES = [(table, situation) for table, (situations, _) in TABLES.items() for situation in situations]


@pytest.mark.parametrize(("table", "situation"), CASES)
def test_a_word_does_what_the_table_says(table: str, situation: str) -> None:
    _, rows = TABLES[table]
    expected = KEPT[table].get(situation, [])
    made = list(rows(situation))
    assert [row["word"] for row in made] == [row["word"] for row in expected]
    wrong = [(now, row) for now, row in zip(made, expected, strict=True) if now != row]
    assert not wrong, "\n".join(f"now {now}\nwas {row}" for now, row in wrong)


@pytest.mark.parametrize("table", TABLES)
def test_every_situation_of_a_table_is_tried(table: str) -> None:
    assert list(KEPT[table]) == list(TABLES[table][0])
