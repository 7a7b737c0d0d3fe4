"""``Probe.backtrace`` and ``Probe.threads``, on real targets."""

import signal
from pathlib import Path

import pytest
from conftest import Start, threads_of_ours

import probing
from probing import Probe, connect


def test_a_backtrace_tells_where_threads_are(probe: Probe) -> None:
    main = probe.backtrace()
    (thread,) = main.threads
    assert (thread.main, thread.thread_id, thread.thread_name) == (True, probe.pid, "MainThread")
    assert [frame.func for frame in thread.frames] == ["wait_for_the_end", "epoch", "<module>"]
    innermost = thread.frames[0]
    assert (innermost.depth, innermost.frame_type) == (0, "Python")
    assert innermost.source == "sys.stdin.read()  # @main"
    assert "in wait_for_the_end" in repr(main)
    names = [thread.thread_name for thread in probe.backtrace(all=True).threads]
    assert sorted(map(str, names)) == ["MainThread", "guard", *(f"loader-{n}" for n in range(4))]
    (guard,) = probe.backtrace(thread="guard").threads
    assert guard.frames[0].func == "guard"
    (guard,) = probe.backtrace(thread=guard.ident).threads
    assert guard.thread_name == "guard"
    with pytest.raises(probing.ProbingError, match="no thread is named nobody; there are: "):
        probe.backtrace(thread="nobody")


def test_a_backtrace_has_locals_when_asked_for_them(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "locals.py"
    program.write_text(
        "import sys\ndef work(batch, rate):\n    print('ready', flush=True)\n    sys.stdin.read()\n"
        "work([1, 'é<'], 0.5)\n"
    )
    with connect(start(program).pid) as probe:
        assert probe.backtrace().threads[0].frames[0].locals is None
        backtrace = probe.backtrace(all=True, locals=True)
        found = backtrace.threads[0].frames[0].locals
        assert found is not None
        assert {name: (local.value, local.type) for name, local in found.items()} == {
            "batch": ("[1, 'é<']", "list"),
            "rate": ("0.5", "float"),
        }
        assert backtrace.to_table().column("locals")[0] == '{"batch": "[1, \'é<\']", "rate": "0.5"}'
        assert "rate = 0.5" in repr(backtrace)


def test_a_backtrace_has_native_frames_when_asked_for_them(prepared: Probe) -> None:
    frames = prepared.backtrace(native=True).threads[0].frames
    assert frames[0].frame_type == "Native"
    assert [frame.func for frame in frames if frame.frame_type == "Python"] == ["wait_for_the_end", "epoch", "<module>"]


def test_reading_brings_nothing_into_the_process(start: Start) -> None:
    target = start("waiting.py")
    with connect(target.pid) as probe:
        probe.backtrace(all=True)
        probe.threads()
        assert threads_of_ours(target.pid) == []
        # Even one that cannot run anything.
        target.send_signal(signal.SIGSTOP)
        assert probe.backtrace().threads[0].frames[0].func == "wait_for_the_end"
        with pytest.raises(probing.TargetError):
            probe.eval("1")


def test_threads_are_a_table(prepared: Probe) -> None:
    threads = prepared.threads()
    assert threads.columns == ("thread_id", "ident", "thread_name", "main", "state", "gil")
    assert len(threads) == 6
    assert threads.column("thread_id")[0] == prepared.pid
    assert next(iter(threads.to_dicts()))["thread_name"] == "MainThread"
    with pytest.raises(KeyError, match="no column is named nothing; there are: thread_id, "):
        threads.column("nothing")


TASKS = """
import asyncio, sys

async def tick():
    await asyncio.sleep(1000)

async def main():
    ticker = asyncio.create_task(tick(), name="ticker")
    await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ticker.cancel()

asyncio.run(main())
"""


def test_tasks_instead_of_threads(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "tasks.py"
    program.write_text(TASKS)
    with connect(start(program).pid) as probe:
        backtrace = probe.backtrace(tasks=True)
        assert backtrace.threads == ()
        (ticker,) = (task for task in backtrace.tasks if task.name == "ticker")
        assert (ticker.state, ticker.waits_for and ticker.waits_for.kind) == ("waiting", "sleep")
        assert (ticker.coroutine, ticker.frames[-1].func) == ("tick", "tick")
        table = backtrace.to_table()
        assert table.columns[:3] == ("task_id", "task_name", "task_state")
        assert "ticker" in table.column("task_name")
        assert "ticker" in repr(backtrace)
        with pytest.raises(probing.ProbingError, match="all threads, one thread and tasks exclude each other"):
            probe.backtrace(tasks=True, all=True)
