"""``probing.connect()``: another process as seen from a program, from its beginning to its end."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Start, children, threads_of_ours, wait_until

import probing
from probing import Probe, connect

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
    with pytest.raises(probing.TargetError, match=r"cannot reach an agent at 127\.0\.0\.1:9: Connection refused"):
        connect("127.0.0.1:9", token="secret")
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


# ---- many at once ---------------------------------------------------------------------------------------------------


def test_threads_share_a_connection_without_waiting_for_each_other(prepared: Probe) -> None:
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
        f"this connection belongs to process {process.pid}, whose fork this process is",
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
