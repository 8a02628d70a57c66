"""A program behind a card, by itself: what it is given, what it says, how it ends."""

import asyncio
import json
import logging
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dragoman.agents.program import launcher
from dragoman.agents.program.agent import ProgramAgent, WorkClock
from dragoman.config import Program
from dragoman.engine.api import Ended
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.message import Message, Part, Role
from dragoman.testing.run import FakeRun, Ran, run
from tests.kit.processes import gone
from tests.kit.values import say

DEADLINE_S = 60.0
SKILL = AgentSkill(id="talk", name="talk", description="talks", tags=())
Made = Callable[..., ProgramAgent]


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    """Makes agents, and closes them in the end."""
    agents: list[ProgramAgent] = []

    def make(*command: str, environ: dict[str, str] | None = None, **keys: Any) -> ProgramAgent:
        profile = Profile(id="program", name="Program", description="One", version="1", skills=(SKILL,))
        program = Program(command=command, **keys)
        agents.append(ProgramAgent(profile, program, dict(os.environ) if environ is None else environ))
        return agents[-1]

    yield make
    for agent in agents:
        await agent.close()


@pytest.fixture
def bash(made: Made) -> Made:
    """Makes agents of lines of Bash."""
    return lambda script, **keys: made("bash", "-c", script, **keys)


async def ran(agent: ProgramAgent, message: Any = "", **around: Any) -> Ran:
    async with asyncio.timeout(DEADLINE_S):
        return await run(agent, message, **around)


async def speaking(agent: ProgramAgent, text: str = "") -> tuple[FakeRun, "asyncio.Task[None]"]:
    """A run whose agent has said something."""
    fake = FakeRun(say(text))
    working = asyncio.create_task(agent.run(fake))
    while not fake.record.artifacts:
        await asyncio.sleep(0.01)
    return fake, working


async def failed(agent: ProgramAgent, message: Any = "", **around: Any) -> tuple[str, str]:
    """The text and the reason with which the task fails."""
    status = (await ran(agent, message, **around)).record.status
    assert status.message is not None
    assert status.message.metadata is not None
    return status.message.text, status.message.metadata["reason"]


# -- what it is given --------------------------------------------------------------------------------------------------


async def test_it_is_given_its_message_as_json_and_then_the_end(made: Made) -> None:
    message = Message(
        message_id="m-1",
        role=Role.USER,
        parts=(
            Part(text="a"),
            Part(data={"n": [1]}),
            Part(raw=b"\0\xff", filename="f", media_type="x/y"),
            Part(text="b"),
        ),
    )
    earlier = Message(message_id="m-0", role=Role.AGENT, parts=(Part(text="before"),))
    answer = await ran(made("cat", history=5), message, metadata={"k": "v"}, history=[earlier])
    assert json.loads(answer.text) == {
        "task_id": "task-1",
        "context_id": "context-1",
        "agent": "program",
        "skill": "talk",
        "text": "a\nb",
        "data": {"n": [1]},
        "message": {
            "messageId": "m-1",
            "role": "ROLE_USER",
            "parts": [
                {"text": "a"},
                {"data": {"n": [1]}},
                {"raw": "AP8=", "filename": "f", "mediaType": "x/y"},
                {"text": "b"},
            ],
        },
        "metadata": {"k": "v"},
        "principal": "anonymous",
        "answers": [],
        "history": [{"messageId": "m-0", "role": "ROLE_AGENT", "parts": [{"text": "before"}]}],
    }


async def test_it_may_be_given_the_text_alone(made: Made) -> None:
    assert (await ran(made("cat", input="text"), "Grüße\n")).text == "Grüße\n"


async def test_it_sees_the_variables_that_are_named_and_its_task_and_no_others(made: Made) -> None:
    environ = {"PATH": os.environ["PATH"], "TOKEN": "t", "SECRET": "s"}
    answer = await ran(made("env", environ=environ, env=("TOKEN",)), "hi")
    assert dict(line.split("=", 1) for line in answer.text.splitlines()) == {
        "PATH": os.environ["PATH"],
        "TOKEN": "t",
        "DRAGOMAN_AGENT": "program",
        "DRAGOMAN_TASK_ID": "task-1",
        "DRAGOMAN_CONTEXT_ID": "context-1",
        "DRAGOMAN_SKILL": "talk",
        "DRAGOMAN_PRINCIPAL": "anonymous",
    }


async def test_its_working_directory_is_as_said(made: Made, tmp_path: Path) -> None:
    assert (await ran(made("pwd", cwd=str(tmp_path)))).text == f"{tmp_path}\n"


async def test_it_inherits_no_descriptors_and_no_ignored_signals(bash: Made) -> None:
    with open("/dev/null") as held:
        os.set_inheritable(held.fileno(), True)
        answer = await ran(bash("ls /proc/self/fd | wc -l; grep SigIgn /proc/$$/status"), "")
    lines = answer.text.split("\n")
    assert int(lines[0]) == 4  # 0, 1, 2, and the directory that is read
    assert int(lines[1].split()[1], 16) & (1 << 12 | 1 << 14) == 0  # SIGPIPE, SIGTERM


# -- what it says ------------------------------------------------------------------------------------------------------


async def test_its_text_is_its_result(bash: Made) -> None:
    answer = await ran(bash("echo one; printf two"))
    assert (answer.text, len(answer.artifacts)) == ("one\ntwo", 1)


async def test_its_lines_say_what_happens(bash: Made) -> None:
    script = """
    echo '{"status": "starting"}'
    echo '{"progress": [1, 2], "text": "half"}'
    echo '{"text": "Hello "}'
    echo '{"text": "you"}'
    echo '{"data": {"a": 1}}'
    echo '{"file": {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}}'
    echo '{"artifact": {"name": "plan", "id": "p", "append": true, "parts": [{"text": "1"}]}}'
    echo '{"artifact": {"id": "p", "append": true, "last": true, "parts": [{"text": "2"}]}}'
    echo '{"usage": {"input": 3, "output": 4}}'
    echo '{"tool": {"id": "t", "name": "search", "arguments": {"q": 1}}}'
    echo '{"tool": {"id": "t", "name": "search", "result": "found", "done": true}}'
    """
    answer = await ran(bash(script))
    assert answer.statuses == ["starting", "half", "Calling search", "search is done"]
    assert answer.progress == [(1, 2)]
    assert (answer.data, [file.raw for file in answer.files]) == ([{"a": 1}], [b"hi"])
    result, plan = answer.artifacts
    assert "".join(part.text or "" for part in result.parts) == "Hello you"
    assert (plan.artifact_id, plan.name, "".join(part.text or "" for part in plan.parts)) == ("p", "plan", "12")
    assert answer.usage.total_tokens == 7


async def test_its_text_comes_as_it_is_written(bash: Made, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    agent = bash(f"printf early; cat {tmp_path}/gate; printf late")
    async with asyncio.timeout(DEADLINE_S):
        fake, working = await speaking(agent)
        assert [part.text for part in fake.record.artifacts[0].parts] == ["early"]
        await asyncio.to_thread((tmp_path / "gate").write_text, ", ")
        await working
    assert "".join(part.text or "" for part in fake.record.artifacts[0].parts) == "early, late"


async def test_what_one_read_brings_is_one_chunk(made: Made, tmp_path: Path) -> None:
    (tmp_path / "said").write_text('{"text": "a"}\n' * 200 + "b" * 200)
    answer = await ran(made("cat", str(tmp_path / "said")))
    assert answer.text == "a" * 200 + "b" * 200
    assert len(answer.chunks) == 1


async def test_text_that_comes_soon_after_is_of_the_same_chunk(bash: Made) -> None:
    script = 'for i in 1 2 3; do echo $i; sleep 0.02; done; echo \'{"status": "s"}\'; echo 4'
    apart, together = await ran(bash(script, coalesce_ms=0)), await ran(bash(script, coalesce_ms=10_000))
    assert (apart.text, len(apart.chunks)) == ("1\n2\n3\n4\n", 4)
    assert [chunk.artifact.parts[0].text for chunk in together.chunks] == ["1\n2\n3\n", "4\n"]


async def test_text_that_waits_goes_out_while_the_program_is_silent(bash: Made, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    agent = bash(f"echo one; read < {tmp_path}/gate; echo two", coalesce_ms=20)
    async with asyncio.timeout(DEADLINE_S):
        fake, working = await speaking(agent)
        await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
        await working
    assert "".join(part.text or "" for part in fake.record.artifacts[0].parts) == "one\ntwo\n"


@pytest.mark.parametrize(
    ("ends", "keys"),
    [
        ("echo '{\"progress\": 1}'; sleep 60", {}),
        ("sleep 60", {"timeout_s": 0.3}),
        ("yes", {"max_output_bytes": 70_000}),
    ],
)
async def test_what_it_said_before_it_failed_is_there(bash: Made, ends: str, keys: dict[str, Any]) -> None:
    agent = bash(f"echo before; {ends}", coalesce_ms=10_000, grace_s=0.2, **keys)
    fake = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text=""),)))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(Ended):
            await agent.run(fake)
    assert (fake.record.artifacts[0].parts[0].text or "").startswith("before\n")


@pytest.mark.parametrize(
    ("script", "text", "reason"),
    [
        ("exit 3", "exit code 3", "program_exit"),
        ("kill -SEGV $$", "SIGSEGV", "program_exit"),
        ('echo \'{"fail": "No paper"}\'; sleep 60', "No paper", "agent_failed"),
        ("echo '{\"progress\": 1}'; sleep 60", "cannot be read (reference", "program_output"),
        ("echo '{\"data\": 9007199254740993}'; sleep 60", "cannot be read (reference", "program_output"),
        ("echo '{\"ask\": [9007199254740993]}'; sleep 60", "cannot be read (reference", "program_output"),
        ("echo '{\"data\": 1}'; exit 65", "exit code 65", "program_exit"),
    ],
)
async def test_how_it_fails_is_told_without_its_own_words(bash: Made, script: str, text: str, reason: str) -> None:
    told, why = await failed(bash(f"echo secret >&2; {script}"))
    assert text in told
    assert (why, "secret" in told) == (reason, False)


async def test_it_rejects_by_a_line_or_by_the_exit_code_that_was_agreed_on(bash: Made) -> None:
    assert (await ran(bash('echo \'{"reject": "Not here"}\'; sleep 60'))).reason == "Not here"
    assert (await ran(bash("exit 65", reject_code=65))).reason == "The agent does not do this task."


async def test_its_stderr_goes_to_the_log_bounded(bash: Made, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.programs")
    script = r"printf 'a\tb\033[2J\n' >&2; printf 'x%.0s' {1..5000} >&2; echo >&2; seq 1000 >&2; echo done >&2"
    await ran(bash(script))
    lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.programs"]
    assert lines[0] == "agent test: task task-1: a\tb�[2J"
    assert max(map(len, lines)) < 2_100
    assert len(lines) < 300
    assert any("lines of stderr were left out" in line for line in lines)


# -- asking ------------------------------------------------------------------------------------------------------------

PYTHON = f"{shlex.quote(sys.executable)} -I -S -c"
"""A Python that starts in a tenth of the time that the `python3` of a version manager takes."""

READS = f"""
text() {{ {PYTHON} 'import json, sys; print(json.load(sys.stdin)["text"])'; }}
answers() {{ {PYTHON} 'import json, sys; print(len(json.load(sys.stdin)["answers"]))'; }}
answer() {{ {PYTHON} 'import json, sys; print(json.load(sys.stdin)["answers"][int(sys.argv[1])]["text"])' "$1"; }}
"""

ASKS_TWICE = (
    READS
    + """
read -r task
echo start
echo '{"ask": "Which?"}'; read -r one
echo "got $(text <<<"$one")"
echo '{"ask": {"sure": true}}'; read -r two
echo "and $(text <<<"$two")"
"""
)


async def test_it_asks_and_is_answered_while_it_runs(bash: Made) -> None:
    answer = await ran(bash(ASKS_TWICE, input="lines"), "x", answers=["red", "yes"])
    assert answer.text == "start\ngot red\nand yes\n"
    assert answer.questions[0] == "Which?"
    assert len(answer.artifacts) == 3


async def test_one_whose_input_has_ended_asks_last_and_is_started_with_the_answers(bash: Made) -> None:
    script = (
        READS
        + """
    task=$(cat)
    case $(answers <<<"$task") in
      0) echo first; echo '{"ask": "Which?"}' ;;
      1) echo "got $(answer 0 <<<"$task")"; echo '{"auth": "Who?"}' ;;
      *) echo "by $(answer 1 <<<"$task")" ;;
    esac
    """
    )
    answer = await ran(bash(script), "x", answers=["red", "me"])
    assert answer.text == "first\ngot red\nby me\n"
    assert answer.questions == ["Which?", "Who?"]


async def test_one_that_reads_only_text_cannot_ask(bash: Made, caplog: pytest.LogCaptureFixture) -> None:
    _, reason = await failed(bash('echo \'{"ask": "?"}\'', input="text"))
    assert reason == "program_output"
    assert 'set input = "json" or "lines"' in caplog.text


async def test_one_that_fails_while_it_asks_fails_its_task(bash: Made) -> None:
    told, _ = await failed(bash('echo \'{"ask": "?"}\'; exit 4', input="lines"), answers=["a"])
    assert "exit code 4" in told


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_it_has_its_time(bash: Made) -> None:
    told, reason = await failed(bash("sleep 60", timeout_s=0.2))
    assert ("took longer" in told, reason) == (True, "program_timeout")


async def test_its_time_stands_while_its_caller_thinks() -> None:
    loop = asyncio.get_running_loop()
    clock = WorkClock(loop, 5.0)
    async with clock.run() as timeout:
        clock.stand()
        assert timeout.when() is None
        left_s = clock.left_s
        clock.go_on()
        assert 0 < (timeout.when() or 0) - loop.time() <= left_s <= 5.0


async def test_it_may_write_so_much(bash: Made) -> None:
    told, reason = await failed(bash("yes", max_output_bytes=100_000))
    assert ("wrote more" in told, reason) == (True, "program_output")


async def test_it_may_use_so_much_memory(made: Made) -> None:
    script = "import sys\ntry:\n    x = bytearray(10**9)\nexcept MemoryError:\n    sys.exit(9)"
    told, _ = await failed(made("python3", "-c", script, max_memory_bytes=300 * 1024 * 1024))
    assert "exit code 9" in told


@pytest.mark.slow
async def test_it_may_use_so_much_processor_time(bash: Made) -> None:
    told, reason = await failed(bash("while :; do :; done", max_cpu_s=1))
    assert ("processor time" in told, reason) == (True, "program_limit")


async def test_no_more_run_at_once_than_said(bash: Made, tmp_path: Path) -> None:
    script = f"touch {tmp_path}/$$; ls {tmp_path} | wc -l; sleep 0.1; rm {tmp_path}/$$"
    agent = bash(script, concurrency=2)
    answers = await asyncio.gather(*(ran(agent) for _ in range(6)))
    assert {answer.text.strip() for answer in answers} <= {"1", "2"}


# -- pipes -------------------------------------------------------------------------------------------------------------


async def test_much_in_and_much_out_at_once_is_no_deadlock(made: Made) -> None:
    text = "0123456789abcde\n" * 655_360  # 10 MB
    assert (await ran(made("cat", input="text"), text)).text == text


async def test_one_that_never_reads_is_not_waited_for(bash: Made) -> None:
    assert (await ran(bash("echo done", input="text"), "x" * 5_000_000)).text == "done\n"


async def test_one_that_closes_its_output_still_has_to_end(bash: Made) -> None:
    told, _ = await failed(bash("exec >&-; sleep 0.1; exit 7"))
    assert "exit code 7" in told


async def test_what_it_leaves_behind_neither_holds_its_task_nor_stays(bash: Made) -> None:
    answer = await ran(bash("sleep 60 & echo $!"))
    await gone(int(answer.text))


async def test_a_pipeline_that_ends_after_it_is_waited_for_shortly(bash: Made) -> None:
    assert (await ran(bash("(sleep 0.1; echo late) & echo early"))).text == "early\nlate\n"


# -- its end -----------------------------------------------------------------------------------------------------------


async def canceled(agent: ProgramAgent, *, asked: bool = True) -> tuple[Any, int]:
    """Cancel the agent once it has said its process id; the run, and that id."""
    async with asyncio.timeout(DEADLINE_S):
        fake, working = await speaking(agent)
        fake.canceled = asked
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    return fake, int("".join(part.text or "" for part in fake.record.artifacts[0].parts).split()[0])


async def test_a_cancel_is_sigterm_and_what_it_says_then_counts(bash: Made) -> None:
    fake, pid = await canceled(bash("trap 'echo bye; exit' TERM; echo $$; sleep 60 & wait"))
    assert "bye" in "".join(part.text or "" for part in fake.record.artifacts[0].parts)
    await gone(pid)


async def test_one_that_does_not_heed_sigterm_is_killed_with_its_children(bash: Made) -> None:
    _, pid = await canceled(bash("trap '' TERM; sleep 60 & echo $!; while :; do sleep 60; done", grace_s=0.2))
    await gone(pid)


async def test_a_cancel_is_one_sigterm_and_sigkill_after_its_grace(bash: Made, tmp_path: Path) -> None:
    script = f"trap 'echo term >> {tmp_path}/terms' TERM; echo $$; while :; do sleep 60 & wait; done"
    _, pid = await canceled(bash(script, grace_s=0.3))
    await gone(pid)
    assert (tmp_path / "terms").read_text() == "term\n"


async def test_a_run_that_is_fenced_ends_its_program(bash: Made) -> None:
    _, pid = await canceled(bash("echo $$; sleep 60", grace_s=0.2), asked=False)
    await gone(pid)


async def test_a_close_leaves_nothing_behind_that_was_started(bash: Made) -> None:
    agent = bash("setsid -f bash -c 'echo $$; exec sleep 60'; sleep 60 & echo $! $$; wait")
    fake = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text=""),)))
    working = asyncio.create_task(agent.run(fake))
    async with asyncio.timeout(DEADLINE_S):
        while len(pids := "".join(p.text or "" for a in fake.record.artifacts for p in a.parts).split()) < 3:
            await asyncio.sleep(0.01)
        await agent.close()
        with pytest.raises(Ended):
            await working
    for pid in pids:
        await gone(int(pid))


@pytest.mark.parametrize("pause_s", [0, 0.001, 0.02])
async def test_a_spawner_whose_start_is_cut_off_is_waited_for_by_the_close(bash: Made, pause_s: float) -> None:
    def children() -> set[str]:
        """Also those that have ended, and that nobody has waited for."""
        found: set[str] = set()
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # the thread has just ended
                found.update((thread / "children").read_text().split())
        return found

    agent, before = bash("echo hi"), children()
    starting = asyncio.create_task(agent.run(FakeRun(say("hi"))))
    await asyncio.sleep(pause_s)
    starting.cancel()
    await asyncio.wait((starting,))
    await agent.close()
    assert children() <= before


class Inline(ThreadPoolExecutor):
    """Runs what it is given before it returns, so that a start has the same turns of the loop each time."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **keys: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(function(*args, **keys))
        return done


@pytest.mark.parametrize("turns", range(6))
async def test_a_spawner_is_known_whichever_turn_of_its_start_is_canceled(
    bash: Made, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    loop, spawned = asyncio.get_running_loop(), Mock(**{"poll.return_value": None})
    loop.set_default_executor(Inline())
    monkeypatch.setattr(launcher, "_start_spawner", lambda link: spawned)
    agent = bash("echo hi")
    starting = asyncio.create_task(agent.run(FakeRun(say("hi"))))
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait((starting,))
    await agent.close()
    spawned.wait.assert_called_once()


async def test_a_program_that_is_not_there_fails_its_task_and_names_itself_to_the_log(made: Made) -> None:
    with pytest.raises(OSError, match="no-such-program"):
        await ran(made("/no-such-program"))
    with pytest.raises(OSError, match="No such file"):
        await ran(made("true", cwd="/no/such/folder"))


async def test_a_spawner_that_dies_takes_its_programs_along_and_the_next_task_has_another(bash: Made) -> None:
    agent = bash(
        '[ -n "$(cat)" ] && echo $PPID $$; sleep ${HOLD:-0}',
        input="text",
        environ={**os.environ, "HOLD": "60"},
        env=("HOLD",),
    )
    async with asyncio.timeout(DEADLINE_S):
        fake, working = await speaking(agent, "x")
        spawner, program = map(int, "".join(p.text or "" for p in fake.record.artifacts[0].parts).split())
        os.kill(spawner, 9)
        with pytest.raises(Ended):
            await working
    await gone(program)
    again = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="x"),)))
    working = asyncio.create_task(agent.run(again))
    async with asyncio.timeout(DEADLINE_S):
        while not again.record.artifacts:
            await asyncio.sleep(0.01)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_no_descriptor_stays_open_and_no_zombie(bash: Made) -> None:
    agent = bash("echo $PPID")
    spawner = int((await ran(agent)).text)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await ran(agent, "x" * 100_000)
    assert len(os.listdir("/proc/self/fd")) == before
    async with asyncio.timeout(DEADLINE_S):
        while Path(f"/proc/{spawner}/task/{spawner}/children").read_text().strip():
            await asyncio.sleep(0.01)
    assert len(os.listdir(f"/proc/{spawner}/fd")) < 12


async def test_a_close_gives_it_its_grace(bash: Made, tmp_path: Path) -> None:
    agent = bash(f"trap 'sleep 0.2; echo tidy >{tmp_path}/end; exit' TERM; echo ready; sleep 60 & wait")
    async with asyncio.timeout(DEADLINE_S):
        _, working = await speaking(agent)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await agent.close()
    assert (tmp_path / "end").read_text() == "tidy\n"


async def test_an_environment_that_is_no_utf_8_is_passed_on(made: Made) -> None:
    environ = {"PATH": os.environ["PATH"], "ODD": os.fsdecode(b"\xff")}
    answer = await ran(made("bash", "-c", "printf '%s' \"$ODD\" | od -An -tx1", environ=environ, env=("ODD",)))
    assert answer.text.strip() == "ff"
