"""The table of systems: a row says what its value is."""

import pytest

from dragoman.dialects.registry import DIALECTS, PROFILES, SYSTEMS, load_system, load_systems
from dragoman.dialects.resolve import CALLS, MOUNTS
from dragoman.dialects.system import AGENT, ROOT


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_row_says_what_is_known_of_its_value_without_loading_it(name: str) -> None:
    system = load_system(name)
    assert (system.name, system.dialect.name) == (name, name)
    assert (system.tongue is not None) == (name in DIALECTS) == SYSTEMS[name].calls
    assert (system.profile is not None) == (name in PROFILES) == SYSTEMS[name].poses
    assert system.tongue is None or system.tongue.name == name


@pytest.mark.parametrize("name", PROFILES)
def test_a_server_that_poses_as_a_system_has_its_mount(name: str) -> None:
    system = load_system(name)
    assert system.mount in MOUNTS
    assert system.profile is not None
    assert system.profile.method in system.methods


def test_every_mount_has_rows_and_one_owner_at_most() -> None:
    owned = [system.mount for system in load_systems() if system.mount not in (None, ROOT)]
    assert len(owned) == len(set(owned))
    assert set(MOUNTS) == {ROOT, AGENT, *owned}
    assert all(CALLS[mount] for mount in MOUNTS)


def test_only_one_system_has_a_path() -> None:
    places = [(mount, own.path) for system in load_systems() for own in system.paths for mount in own.mounts]
    assert len(places) == len(set(places))
