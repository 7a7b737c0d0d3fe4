"""``Probe.eval``: code in another process, on real targets."""

import pickle

import pytest
from conftest import Start, interrupt_when, threads_of_ours, wait_until

import probing
from probing import Probe, connect


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
    with pytest.raises(probing.ProbingError, match="no thread is named nobody\nhint: there are: ") as caught:
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
