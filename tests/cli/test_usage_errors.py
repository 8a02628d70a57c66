"""Wrong input: one line with what is wrong and where to read on, whatever the command."""

from pathlib import Path

import pytest

from tests.cli.a2a.command import Shell

WRONG = [
    (("--bogus",), "No such option '--bogus'", "dragoman"),
    (("nonsense",), "No such command 'nonsense'", "dragoman"),
    (("serv",), "No such command 'serv'. Did you mean 'serve'?", "dragoman"),
    (("backup",), "No such command 'backup'. Did you mean 'store backup'?", "dragoman"),
    (("admin", "tasks", "lst"), "No such command 'lst'. Did you mean 'list'?", "dragoman admin tasks"),
    (("help", "keys", "creat"), "No such command 'creat'. Did you mean 'create'?", "dragoman keys"),
    (("admin", "nonsense"), "No such command 'nonsense'", "dragoman admin"),
    (("serve", "--bus-url", "x"), "No such option '--bus-url'", "dragoman serve"),
    (("serve", "--port", "many"), "must be a whole number from 0 to 65535", "dragoman serve"),
    (("agents", "list", "--bogus"), "No such option '--bogus'", "dragoman agents list"),
    (("keys", "create"), "Missing argument 'NAME'", "dragoman keys create"),
    (("webhooks", "redeliver", "first"), "'first': must be a whole number from 1 on", "dragoman webhooks redeliver"),
    (("audit", "--limit", "0"), "'0': must be a whole number from 1 to 1000000", "dragoman audit"),
    (("worker", "x.py", "--server", "ftp://nowhere"), "must be an address", "dragoman worker"),
    (
        ("worker", "x.py", "--server", "http://127.0.0.1:1", "--grace-s", "soon"),
        "'soon': must be a number of seconds from 0 to 86400",
        "dragoman worker",
    ),
    (("admin", "stats", "--watch", "--interval", "nan"), "from 0.2 to 3600", "dragoman admin stats"),
    (("agents", "add"), "No such command 'add'. Did you mean 'admin agents add'?", "dragoman agents"),
    (("completion",), "Choose from: bash, zsh, fish.", "dragoman completion"),
    (("demo-server", "--port", "-1"), "'-1': must be a whole number from 0 to 65535", "dragoman demo-server"),
]


@pytest.mark.parametrize(("words", "says", "where"), WRONG, ids=[" ".join(words) for words, _, _ in WRONG])
def test_wrong_input_is_one_line_that_leads_to_the_help(
    tmp_path: Path, words: tuple[str, ...], says: str, where: str
) -> None:
    ran = Shell(tmp_path).run(*words)
    assert (ran.status, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("dragoman: ")
    assert says in line
    assert line.endswith(f" Hint: see `{where} --help`")


UNUSABLE = [
    (("serve", "nowhere.py"), "no file nowhere.py"),
    (("serve",), "dragoman.toml: prot = 7870: no such setting; did you mean port?"),
    (("keys", "list"), "dragoman.toml: prot = 7870: no such setting; did you mean port?"),
    (("store", "restore", "nowhere.tar", "--config", "/dev/null"), "there is no such file"),
    (("store", "check", "sqlite:///nowhere.db"), "there is no store file"),
]


@pytest.mark.parametrize(("words", "says"), UNUSABLE, ids=[" ".join(words) for words, _ in UNUSABLE])
def test_a_fault_of_a_file_sends_nobody_to_the_help(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    shell = Shell(tmp_path)
    (shell.work / "dragoman.toml").write_text("prot = 7870\n" if "nowhere.py" not in words else "")
    ran = shell.run(*words)
    assert (ran.status, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("dragoman: ")
    assert says in line
    assert "--help" not in line


@pytest.mark.parametrize("words", [(), ("admin",), ("admin", "tasks"), ("task",)])
def test_a_group_without_a_command_shows_its_help(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = Shell(tmp_path).run(*words)
    assert ran.err.startswith(f"Usage: {' '.join(('dragoman', *words))} [OPTIONS] COMMAND")
    assert ("\nCommands:\n" if words else "\nServe agents:\n") in ran.err
