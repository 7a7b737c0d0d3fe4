"""Where evaluated code can run: threads, frames, event loops. Runs inside the target, called by place.rs alone."""

import _thread
import posix
import sys

# A guest does not load `typing` for its own sake.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Coroutine, Iterator
    from types import CodeType, FrameType
    from typing import Any


class Refused(Exception):
    """It cannot be done: ``(why, hint)``."""


def thread(wanted: str) -> tuple[int, str]:
    """Tell ``(ident, name)`` of the thread that is called so: ``main``, a name, an id (Python's or the kernel's)."""
    main = _main_ident()
    known = _threads(main)
    if wanted == "main":
        return main, known.get(main, ("MainThread", None))[0]
    found = [
        (ident, name)
        for ident, (name, native) in known.items()
        if wanted in (name, str(ident)) or (native is not None and wanted == str(native))
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(name if native is None else f"{name} ({native})" for name, native in known.values())
    if found:
        raise Refused(f"several threads are named {wanted}", f"name one by its id; there are: {names}")
    raise Refused(f"no thread is named {wanted}", f"there are: {names}")


def frame(ident: int, depth: int) -> FrameType:
    """Give a frame of a thread; 0 is the innermost, -1 the outermost."""
    frames: list[FrameType] = []
    # A stack may be deep, and Python makes an object of each frame that is walked to.
    for found in _frames(ident):
        if len(frames) == depth:
            return found
        frames.append(found)
    if -len(frames) <= depth < 0:
        return frames[depth]
    hint = "`probing backtrace` shows it; 0 is the innermost, -1 the outermost"
    raise Refused(f"no frame {depth}: the stack has {len(frames)}", hint)


def frame_of(ident: int, name: str) -> FrameType:
    """Give the innermost frame of a function, by its name or its qualified name."""
    known: dict[str, None] = {}
    for found in _frames(ident):
        code = found.f_code
        if name in (code.co_name, getattr(code, "co_qualname", None)):
            return found
        known[code.co_name] = None
    names = list(known)
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    raise Refused(f"no frame of a function {name}", f"the stack has, innermost first: {shown}")


def _frames(ident: int) -> Iterator[FrameType]:
    """Give the frames of a thread, innermost first."""
    found = sys._current_frames().get(ident)
    if found is None:
        raise Refused("that thread runs no Python now", "`probing backtrace --all` shows those that do")
    while found is not None:
        yield found
        found = found.f_back


def loop_of(ident: int) -> AbstractEventLoop | None:
    """Give the event loop that runs in a thread, or ``None``."""
    return next((loop for thread, loop in _running_loops() if thread == ident), None)


def any_loop() -> tuple[int, AbstractEventLoop] | None:
    """Choose, with its thread, the loop that runs in the main thread, else the only one."""
    loops = list(_running_loops())
    main = _main_ident()
    for ident, loop in loops:
        if ident == main:
            return ident, loop
    if len(loops) > 1:
        known = _threads(main)
        names = ", ".join(known.get(ident, (str(ident), None))[0] for ident, _ in loops)
        raise Refused(
            "several event loops run, none of them in the main thread", f"choose with --thread, one of: {names}"
        )
    return loops[0] if loops else None


def start_on(loop: AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    """Make a task of it on a loop that runs in another thread."""

    def start() -> None:
        task = loop.create_task(coroutine)
        if hasattr(task, "set_name"):
            task.set_name("probing-eval")

    loop.call_soon_threadsafe(start)


def wake(loop: AbstractEventLoop) -> None:
    """Make a loop that waits run a few bytecodes."""
    loop.call_soon_threadsafe(bool)


def canceller() -> Callable[[], object]:
    """For a task that runs: what cancels it, from any thread."""
    asyncio: Any = sys.modules["asyncio"]
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    return lambda: loop.call_soon_threadsafe(task.cancel)


def run_alone(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run it to its end on a loop of its own, in this thread."""
    import asyncio

    # Not `asyncio.run`, which in the main thread would install a signal handler.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(coroutine)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


class Visit:
    """Has a thread call ``arrive`` when it comes to its next line, by `sys.monitoring` of the functions it is in."""

    def __init__(self, ident: int, arrive: Callable[..., None], tool: int | None) -> None:
        if sys.version_info < (3, 12) or tool is None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise Refused(
                f"Python {version} has no safe way to run code on a thread that is not the main one (3.12 has)",
                "it can on threads that run an event loop; and --frame N looks into the locals of any thread",
            )
        monitoring = sys.monitoring
        self._ident, self._tool = ident, tool
        self._codes: set[CodeType] = set()
        monitoring.use_tool_id(self._tool, "probing")
        for event in self._events():
            monitoring.register_callback(self._tool, event, arrive)
        self.arm()

    def arm(self) -> None:
        """Look where the thread is now: it may have come to other functions since."""
        found = sys._current_frames().get(self._ident)
        codes = set()
        while found is not None:
            codes.add(found.f_code)
            found = found.f_back
        self._watch(codes - self._codes, sum(self._events()))
        self._watch(self._codes - codes, 0)
        self._codes = codes

    def end(self) -> None:
        """Leave no trace. May be called by ``arrive``, and again."""
        tool, self._tool = self._tool, -1
        if tool < 0:
            return
        monitoring = sys.monitoring
        for code in self._codes:
            monitoring.set_local_events(tool, code, 0)
        for event in self._events():
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    def _events(self) -> tuple[int, ...]:
        # A loop that is one line comes to no other.
        return sys.monitoring.events.LINE, sys.monitoring.events.JUMP

    def _watch(self, codes: set[CodeType], events: int) -> None:
        for code in codes if self._tool >= 0 else ():
            sys.monitoring.set_local_events(self._tool, code, events)


def _main_ident() -> int:
    threading: Any = sys.modules.get("threading")
    # Before 3.13 it is always there: `threading.rs` sees to that.
    return int(threading.main_thread().ident if threading else _thread._get_main_thread_ident())  # type: ignore[attr-defined]


def _threads(main: int) -> dict[int, tuple[str, int | None]]:
    """Tell name and kernel's id of every thread that Python code started, by ident."""
    threading: Any = sys.modules.get("threading")
    if threading is None:
        return {main: ("MainThread", posix.getpid())}
    # Without the lock that `threading.enumerate` takes: the thread that has it may be stuck.
    threads = threading._active.copy().items()
    return {
        ident: (thread.name, _main_id(thread.native_id) if ident == main else thread.native_id)
        for ident, thread in threads
    }


def _main_id(kept: int | None) -> int:
    """Tell the kernel's id of the main thread, of which `threading` has kept this one."""
    # In a child that C code has forked it is the parent's. Of a program that embeds Python it may be any thread.
    is_there = kept is not None and posix.access(f"/proc/self/task/{kept}", posix.F_OK)
    return kept if kept is not None and is_there else posix.getpid()


def _running_loops() -> Iterator[tuple[int, AbstractEventLoop]]:
    """Give every loop that runs, with its thread: it shows in the frames of that thread."""
    base: Any = sys.modules.get("asyncio.base_events")
    runners: Any = sys.modules.get("asyncio.runners")
    if base is None or runners is None:
        return
    runs = {_code(base.BaseEventLoop.run_forever), _code(base.BaseEventLoop.run_until_complete)}
    # Loops of other makers (uvloop) have no frames; what started them has.
    starts = {_code(runners.run), _code(getattr(getattr(runners, "Runner", None), "run", None))}
    for ident, frame in sys._current_frames().items():
        found: FrameType | None = frame
        while found is not None:
            loop = None
            if found.f_code in runs:
                loop = found.f_locals.get("self")
            elif found.f_code in starts:
                names = found.f_locals
                loop = names.get("loop") or getattr(names.get("self"), "_loop", None)
            if loop is not None and loop.is_running():
                yield ident, loop
                break
            found = found.f_back


def _code(function: object) -> CodeType | None:
    return getattr(function, "__code__", None)
