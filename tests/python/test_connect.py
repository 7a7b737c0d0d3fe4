"""``probing.connect()``: another process as seen from a program, on real targets."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Start

import probing
from probing import Probe, connect


@pytest.fixture
def probe(target: "subprocess.Popen[str]") -> Iterator[Probe]:
    with connect(pid=target.pid) as probe:
        yield probe


@pytest.fixture
def prepared(start: Start) -> Iterator[Probe]:
    """For what does not depend on how the probe came in."""
    with connect(pid=start("waiting.py", PROBING="1").pid) as probe:
        yield probe


def children() -> list[str]:
    """Processes that this one started and has not seen the end of."""
    folder = Path("/proc/self/task")
    return [child for task in folder.iterdir() for child in (task / "children").read_text().split()]


def threads_of_ours(pid: int) -> list[str]:
    """What of ours runs in a process: the probe, and a thread for each eval."""
    names = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while one looks.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(task.joinpath("comm").read_text().strip())
    return sorted(name for name in names if name.startswith("probing"))


def wait_until(condition: Callable[[], bool]) -> None:
    """For what has no handshake. It fails when something hangs, never on a slow day."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def interrupt_when(name: str, probe: Probe) -> threading.Thread:
    """Ctrl-C in this process as soon as remote code has set the global ``name``."""

    def press() -> None:
        with connect(probe.pid) as other:
            wait_until(lambda: other.eval(f"{name!r} in globals()").value)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


# ---- eval -----------------------------------------------------------------------------------------------------------


def test_a_value_is_itself_when_it_is_made_of_literals(probe: Probe) -> None:
    for code in ("1", "'text'", "[1, (2.5, None), {'a': b'x'}, {3}]", "-1e9", "True", "set()", "1+2j"):
        assert probe.eval(code).value == eval(code), code
    assert repr(probe.eval("float('nan'), -float('inf')").value) == "(nan, -inf)"
    result = probe.eval("work")
    assert result.value == result.text
    assert result.text is not None
    assert result.text.startswith("<queue.Queue object at 0x")
    # A string, and something that only looks like one.
    assert probe.eval("'1'").value == "1"
    assert probe.eval("type('Odd', (), {'__repr__': lambda self: '[1, oops]'})()").value == "[1, oops]"


def test_output_and_value_come_apart(probe: Probe) -> None:
    result = probe.eval("import sys\nprint('out')\nprint('err', file=sys.stderr)\nlen(threads)")
    assert (result.output, result.value, result.text) == ("out\nerr\n", 5, "5")
    assert str(result) == repr(result) == "out\nerr\n5"
    assert result.seconds > 0
    nothing = probe.eval("x = 3")
    assert (nothing.output, nothing.value, nothing.text, str(nothing)) == ("", None, None, "")
    assert repr(nothing) == "<no output, no value>"
    assert probe.eval("x + 1").value == 4


def test_output_is_whole_however_much_there_is(prepared: Probe) -> None:
    result = prepared.eval("for i in range(20_000): print('é' * 50, i)\n'x' * 1_000_000")
    assert result.output == "".join(f"{'é' * 50} {i}\n" for i in range(20_000))
    assert result.value == "x" * 1_000_000


def test_an_exception_is_told_with_its_traceback(probe: Probe) -> None:
    with pytest.raises(probing.RemoteError) as caught:
        probe.eval("print('before')\ndef divide(x):\n    return 1 / x\n\ndivide(0)")
    error = caught.value
    assert (error.type, error.message, error.output) == ("ZeroDivisionError", "division by zero", "before\n")
    assert [(frame.func, frame.lineno) for frame in error.frames] == [("<module>", 5), ("divide", 3)]
    assert str(error).startswith("ZeroDivisionError: division by zero\n\nTraceback (most recent call last):\n")
    assert "    return 1 / x\n" in str(error)
    assert isinstance(error, probing.ProbingError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.frames) == (str(error), error.frames)
    # Whatever it was, it stays in the target.
    for code in ("raise SystemExit(3)", "raise KeyboardInterrupt", "raise MemoryError"):
        with pytest.raises(probing.RemoteError):
            probe.eval(code)


def test_code_that_is_not_python(probe: Probe) -> None:
    with pytest.raises(
        probing.RemoteSyntaxError, match=r"^SyntaxError: .*\n\n  File \"<eval \d+>\", line 1\n"
    ) as caught:
        probe.eval("x = (")
    assert isinstance(caught.value, probing.RemoteError)
    assert caught.value.type == "SyntaxError"


def test_time_is_up(probe: Probe) -> None:
    with pytest.raises(TimeoutError, match=r"timed out after 0\.2 s: the code was interrupted\nhint: ") as caught:
        probe.eval("print('begun')\nwhile True: pass", timeout=0.2)
    assert isinstance(caught.value, probing.RemoteTimeoutError)
    assert caught.value.output == "begun\n"
    with pytest.raises(TimeoutError, match="the code is inside a C call and ends when that returns"):
        probe.eval("import time; time.sleep(60)", timeout=0.1)
    assert probe.eval("len(threads)", timeout=None).value == 5
    assert probe.eval("len(threads)", timeout=float("inf")).value == 5
    for nonsense in (float("nan"), -1):
        with pytest.raises(ValueError, match="timeout is not a number of seconds: "):
            probe.eval("1", timeout=nonsense)


def test_ctrl_c_interrupts_the_remote_code(prepared: Probe) -> None:
    presser = interrupt_when("begun", prepared)
    with pytest.raises(KeyboardInterrupt):
        prepared.eval("while True: begun = True", timeout=None)
    presser.join()
    wait_until(lambda: threads_of_ours(prepared.pid) == ["probing"])
    assert prepared.eval("begun").value is True


def test_code_that_cannot_be_sent(prepared: Probe) -> None:
    with pytest.raises(UnicodeEncodeError):
        prepared.eval("'\udc80'")
    assert prepared.eval("1").value == 1
    with pytest.raises(probing.ProbingError, match="a line is longer than 8388608 bytes"):
        prepared.eval("#" * (9 << 20))
    with pytest.raises(probing.ProbingError, match="a line is longer than 8388608 bytes"):
        prepared.eval("1")


def test_code_runs_on_a_thread(start: Start) -> None:
    with connect(start("workers.py", PROBING="1").pid) as probe:
        result = probe.eval("threading.current_thread().name", thread="main")
        assert (result.value, result.thread) == ("MainThread", "MainThread")
        assert probe.eval("1", thread=probe.pid).thread == "MainThread"
        assert probe.eval("1").thread is None


def test_code_runs_in_a_frame(prepared: Probe) -> None:
    worker = next(thread for thread in prepared.backtrace(all=True).threads if not thread.main)
    names = prepared.eval("sorted(locals())", frame=len(worker.frames) - 1, thread=worker.ident).value
    assert "self" in names
    with pytest.raises(probing.ProbingError, match="no frame 99: the stack has "):
        prepared.eval("1", frame=99)
    with pytest.raises(probing.ProbingError, match="no thread is called nobody\nhint: there are: ") as caught:
        prepared.eval("1", thread="nobody")
    assert not isinstance(caught.value, probing.TargetError)


def test_a_thread_that_does_not_come_is_shown(start: Start) -> None:
    with (
        connect(start("idle.py", PROBING="1").pid) as probe,
        pytest.raises(TimeoutError, match="the code has not begun and will not run: thread MainThread") as caught,
    ):
        probe.eval("late = True", thread="main", timeout=0.2)
    assert "idle.py" in caught.value.stack
    assert caught.value.stack.rstrip() in str(caught.value)


def test_output_can_be_bounded(prepared: Probe) -> None:
    result = prepared.eval("print('x' * 99)\n7", max_output=10)
    assert (result.output, result.output_dropped, result.value) == ("x" * 10, 90, 7)
    assert str(result) == "x" * 10 + "… (90 bytes more)\n7"
    everything = prepared.eval("print('x' * 11_000_000)", max_output=None)
    assert (len(everything.output), everything.output_dropped) == (11_000_001, 0)


# ---- many at once ---------------------------------------------------------------------------------------------------


def test_threads_share_a_connection_and_nobody_waits_for_another(prepared: Probe) -> None:
    with ThreadPoolExecutor(9) as pool:
        endless = pool.submit(prepared.eval, "while True: endless = True", timeout=None)
        results = list(pool.map(lambda n: prepared.eval(f"print({n}); {n}"), range(200)))
        assert [(result.output, result.value) for result in results] == [(f"{n}\n", n) for n in range(200)]
        prepared.close()
        with pytest.raises(probing.ProbingError, match="this connection is closed"):
            endless.result()


def test_two_connections_do_not_disturb_each_other(prepared: Probe) -> None:
    with connect(prepared.pid) as other:
        prepared.eval("shared = 1")
        assert other.eval("shared").value == 1
    assert prepared.eval("shared").value == 1


SELF = """
import os, probing
probing.start()
x = 3
with probing.connect(os.getpid()) as probe:
    probe.eval("x = 4")
print(x)
"""


def test_a_process_can_look_into_itself() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", SELF], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("4\n", "")


# ---- stacks ---------------------------------------------------------------------------------------------------------


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
    with pytest.raises(probing.ProbingError, match="no thread is called nobody; there are: "):
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
    with pytest.raises(KeyError, match="no column is called nothing; there are: thread_id, "):
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


def test_a_query_gives_a_table(probe: Probe) -> None:
    before = threads_of_ours(probe.pid)
    table = probe.query(
        "SELECT pid, thread_name, depth, func, lineno > 0 AS known, source"
        " FROM python.backtrace ORDER BY main DESC, depth"
    )
    assert table.columns == ("pid", "thread_name", "depth", "func", "known", "source")
    assert table.rows[0][:2] == (probe.pid, "MainThread")
    assert table.rows[0][2] == 0
    assert table.column("known") == [True] * len(table)
    assert probe.query("SELECT 1 AS one, NULL AS no, 1.5 AS half").rows == [(1, None, 1.5)]
    assert "MainThread" in repr(probe.query("SELECT name FROM python.threads"))
    # Nothing was brought in for it.
    assert threads_of_ours(probe.pid) == before


def test_what_is_wrong_with_a_query_is_said(prepared: Probe) -> None:
    for sql, words in (
        ("SELECT fun FROM python.backtrace", "no such column: .*fun\nhint: did you mean func"),
        ("SELECT 1 FROM python.backtraces", "no such table: python.backtraces\nhint: did you mean python.backtrace"),
        ("CHOOSE 1", "not SQL: "),
        ("DROP TABLE python.backtrace", "queries only read"),
    ):
        with pytest.raises(probing.ProbingError, match=words):
            prepared.query(sql)


# ---- how results show themselves ------------------------------------------------------------------------------------


def test_a_notebook_shows_text_not_markup(prepared: Probe) -> None:
    shown = prepared.eval("print('<script>&'); '<b>'")._repr_html_()
    assert shown == "<pre>&lt;script&gt;&amp;\n&#x27;&lt;b&gt;&#x27;</pre>"
    backtrace = prepared.backtrace()._repr_html_()
    assert "in &lt;module&gt;" in backtrace
    assert "<module>" not in backtrace
    table = probing.Table(["<a>", "b"], [("<i>", None)])
    assert table._repr_html_() == (
        "<table><thead><tr><th>&lt;a&gt;</th><th>b</th></tr></thead>"
        "<tbody><tr><td>&lt;i&gt;</td><td></td></tr></tbody></table>"
    )


def test_long_tables_are_cut_where_they_are_shown_and_only_there() -> None:
    table = probing.Table(["number", "text"], [(number, "x" * 200) for number in range(1000)])
    assert (len(table), len(repr(table).splitlines())) == (1000, 62)
    assert repr(table).endswith("… and 940 rows more")
    assert max(map(len, repr(table).splitlines())) < 100
    assert table._repr_html_().count("<tr>") == 201
    assert "… and 800 rows more" in table._repr_html_()
    assert repr(probing.Table(["a", "b"], [])) == "a  b"


@pytest.mark.parametrize(("method", "package"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
def test_packages_that_are_not_there_are_not_needed(
    prepared: Probe, monkeypatch: pytest.MonkeyPatch, method: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for result in (prepared.backtrace(), prepared.threads()):
        with pytest.raises(
            ImportError, match=f"{package} is not installed here: pip install {package}, or use .columns"
        ):
            getattr(result, method)()


def test_pandas_and_arrow_take_it_all(prepared: Probe) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for result in (prepared.threads(), prepared.backtrace(all=True)):
        frame, arrow = result.to_pandas(), result.to_arrow()
        assert list(frame.columns) == arrow.column_names
        assert len(frame) == arrow.num_rows > 5
        assert frame["thread_id"][0] == arrow["thread_id"][0].as_py() == prepared.pid


# ---- which process --------------------------------------------------------------------------------------------------


def test_a_target_is_a_pid_a_name_or_a_socket(start: Start, tmp_path: Path) -> None:
    program = tmp_path / f"once-{os.getpid()}-{tmp_path.name}.py"
    program.write_text("import sys\nprint('ready', flush=True)\nsys.stdin.read()\n")
    target = start(program, PROBING="1")
    (folder,) = Path(os.environ["PROBING_DIR"]).iterdir()
    ways = (
        {"pid": target.pid},
        {"name": program.name},
    )
    for way in ways:
        with connect(**way) as probe:  # type: ignore[arg-type]
            assert probe.pid == target.pid
    for word in (target.pid, str(target.pid), program.name, f"unix:{folder}/probe.sock"):
        with connect(word) as probe:
            assert probe.pid == target.pid
            assert probe.command[-1] == str(program)
            assert probe.python == ".".join(map(str, sys.version_info[:3]))
            assert repr(probe) == f"<probe in process {target.pid}: {' '.join(probe.command)}>"
            assert probe.eval("1").value == 1
    twin = start(program)
    with pytest.raises(probing.TargetError, match=f"2 Python processes are named {program.name}:\n") as caught:
        connect(program.name)
    assert f"\n  {twin.pid}  " in str(caught.value)


def test_who_cannot_be_reached() -> None:
    with pytest.raises(probing.TargetError, match=r"^no such process: 999999999\nhint: `probing list` shows"):
        connect(999999999)
    with pytest.raises(ConnectionError, match="no Python process is named: no-such-program"):
        connect(name="no-such-program")
    with pytest.raises(probing.TargetError, match="cannot be reached by this version: it has no agents yet"):
        connect("host:8080", token="secret")
    with pytest.raises(probing.TargetError, match="nobody listens at socket: /nowhere"):
        connect("unix:/nowhere")
    for nothing in ({}, {"pid": 1, "name": "x"}):
        with pytest.raises(TypeError, match="needs one target"):
            connect(**nothing)  # type: ignore[arg-type]
    assert children() == []


def test_attaching_can_be_forbidden(start: Start) -> None:
    with connect(start("waiting.py").pid, attach=False) as probe:
        with pytest.raises(probing.TargetError, match="no probe in process: ") as caught:
            probe.eval("1")
        assert caught.value.hint
        assert probe.backtrace().threads


# ---- ends -----------------------------------------------------------------------------------------------------------


def test_a_target_that_dies_is_told_at_once_and_ever_after(target: "subprocess.Popen[str]") -> None:
    with connect(target.pid) as probe:
        probe.eval("import os, signal")
        with pytest.raises(probing.TargetError, match="the target ended"):
            probe.eval("os.kill(os.getpid(), signal.SIGKILL)\nwhile True: pass")
        target.wait()
        for ask in (lambda: probe.eval("1"), probe.backtrace, probe.threads, probe.detach):
            with pytest.raises(probing.TargetError, match=f"the target has ended: {target.pid}|the target ended"):
                ask()


def test_closing_leaves_the_probe_and_detaching_takes_it_out(probe: Probe) -> None:
    with connect(probe.pid) as other:
        other.eval("1")
    other.close()
    assert repr(other).endswith(", closed>")
    for ask in (lambda: other.eval("1"), other.backtrace):
        with pytest.raises(probing.ProbingError, match="this connection is closed"):
            ask()
    wait_until(lambda: threads_of_ours(probe.pid) == ["probing"])
    probe.detach()
    wait_until(lambda: threads_of_ours(probe.pid) == [])
    with pytest.raises(probing.ProbingError, match="this connection is closed"):
        probe.eval("1")


def test_closing_interrupts_what_still_runs(prepared: Probe) -> None:
    with ThreadPoolExecutor(1) as pool, connect(prepared.pid) as other:
        endless = pool.submit(other.eval, "running = True\nwhile True: pass", timeout=None)
        wait_until(lambda: prepared.eval("'running' in globals()").value)
        other.close()
        with pytest.raises(probing.ProbingError):
            endless.result()
    wait_until(lambda: threads_of_ours(prepared.pid) == ["probing"])


def test_nothing_is_left_of_a_connection(start: Start) -> None:
    target = start("waiting.py", PROBING="1")
    mine = len(children())
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    with connect(target.pid) as probe:
        probe.eval("1")
        assert len(children()) == mine + 1
    forgotten = connect(target.pid)
    forgotten.eval("1")
    del forgotten
    assert (len(children()), threading.active_count()) == (mine, threads)
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_command_that_is_killed_is_told(start: Start) -> None:
    with connect(start("waiting.py", PROBING="1").pid) as probe:
        probe.eval("1")
        (command,) = (child for child in children() if int(child) != probe.pid)
        os.kill(int(command), signal.SIGKILL)
        with pytest.raises(probing.TargetError, match="the command ended with status -9"):
            probe.eval("1")


FORKS = """
import os, pathlib, sys, probing
probe = probing.connect(int(sys.argv[1]))
probe.eval("1")
child = os.fork()
if child == 0:
    try:
        probe.eval("1")
    except probing.ProbingError as error:
        print(error, flush=True)
    with probing.connect(int(sys.argv[1])) as own:
        print(own.eval("1 + 1"), flush=True)
    sys.exit()
os.waitpid(child, 0)
print(probe.eval("1 + 2"))
keeper = os.fork()
if keeper == 0:
    sys.stdin.read()
    os._exit(0)
# A child that lives on does not keep the command alive.
probe.close()
print(len(pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
"""


def test_a_fork_is_told_to_connect_for_itself(start: Start) -> None:
    target = start("waiting.py", PROBING="1")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", FORKS, str(target.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stdout, stderr = process.communicate()
    assert stdout.splitlines() == [
        f"this connection belongs to process {process.pid}, of which this one is a fork",
        "hint: connect again in this process",
        "2",
        "3",
        "1",
    ]
    assert stderr == ""


def test_a_program_that_ends_without_closing_is_silent(start: Start) -> None:
    code = "import sys, probing\nprobe = probing.connect(int(sys.argv[1]))\nprint(probe.eval('1'))"
    pid = start("waiting.py", PROBING="1").pid
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(pid)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1\n", "")


# ---- the package ----------------------------------------------------------------------------------------------------


IMPORTS = """
import sys
sys.path[:] = sys.argv[1:]
before = set(sys.modules)
import probing
print(*sorted(set(sys.modules) - before))
"""


def test_importing_the_package_loads_nothing_else() -> None:
    ran = subprocess.run([sys.executable, "-S", "-c", IMPORTS, *sys.path], capture_output=True, text=True, check=True)
    assert ran.stdout == "probing\n"


def test_what_is_exported_is_there() -> None:
    for name in probing.__all__:
        assert getattr(probing, name) is not None
    assert probing.connect.__module__ == probing.Probe.__module__ == probing.RemoteError.__module__ == "probing"
