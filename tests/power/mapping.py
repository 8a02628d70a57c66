"""Where the places of an older tree are in a newer one, and what two measurements say about each other.

Invariant: a place is never mapped to one of several that are equally likely. A person decides about those.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.power.places import Change, Place

Row = dict[str, Any]
"""A line of a result: `place` or `planted`, `was`, `outcome`, `by`, `seconds`, `reaching`, `tried`."""

FOUND = ("found", "hangs")


def find_again(places: Iterable[Place], changes: Iterable[Change]) -> dict[Place, Change | None]:
    """The change that says the same in a newer tree, at the nearest name; None where that is not plain."""
    same: dict[tuple[str, str, str], list[Change]] = defaultdict(list)
    for change in changes:
        same[change.place.kind, change.place.source, change.place.becomes].append(change)
    return {place: _nearest(place, same[place.kind, place.source, place.becomes]) for place in places}


def _nearest(place: Place, changes: Sequence[Change]) -> Change | None:
    """The one change that shares most of the place's name: function before class before module."""
    names = place.qualname.split(".")
    nearness = (
        lambda new: new == place,
        lambda new: new.module == place.module and new.qualname == place.qualname,
        lambda new: new.qualname == place.qualname,
        lambda new: new.qualname.split(".")[-1] == names[-1],
        lambda new: new.module == place.module,
        lambda new: True,
    )
    for is_near in nearness:
        near = [change for change in changes if is_near(change.place)]
        if len(near) == 1:
            return near[0]
        if near:
            return None
    return None


def lost(old: Iterable[Row], new: Iterable[Row]) -> list[tuple[Row, Row | None]]:
    """The changes that were found in the older tree only: no test finds them now, or their place is gone."""
    again = {key: row for row in new if (key := row.get("planted") or _key(row.get("was"))) is not None}
    pairs = [(row, again.get(row.get("planted") or _key(row["place"]))) for row in old if row["outcome"] in FOUND]
    return [(row, now) for row, now in pairs if now is None or now["outcome"] not in FOUND]


def _key(place: Mapping[str, Any] | None) -> Place | None:
    return Place(**place) if place else None


def share_found(rows: Iterable[Row]) -> tuple[int, int]:
    """How many of the changes are found, and how many there are."""
    outcomes = Counter(row["outcome"] for row in rows)
    return sum(outcomes[name] for name in FOUND), outcomes.total()


def summary(rows: Sequence[Row]) -> str:
    """The numbers of found changes by kind and by package, and each change that was not found."""
    drawn = [row for row in rows if "place" in row]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in drawn:
        groups[f"kind {row['place']['kind']}"].append(row)
        groups[f"package {row['place']['module'].split('/')[1].removesuffix('.py')}"].append(row)
    lines = ["{} of {} changes are found.".format(*share_found(drawn))]
    lines += [f"{count:6} {outcome}" for outcome, count in Counter(row["outcome"] for row in drawn).most_common()]
    planted = [row for row in rows if "planted" in row]
    lines += ["{} of {} planted bugs are found.".format(*share_found(planted)), "", "Found, by kind and by package:"]
    for name, group in sorted(groups.items()):
        found, count = share_found(group)
        lines.append(f"{found:6} of {count:3} {name}")
    lines += ["", "Not found:"]
    for row in drawn:
        if row["outcome"] not in FOUND:
            place = Place(**row["place"])
            lines.append(
                f"  {row['outcome']} ({row['tried']} of {row['reaching']} tests) {place.module} {place.qualname}:"
                f" {_short(place.source)} -> {_short(place.becomes)}"
            )
    return "\n".join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"
