"""Functions to step through, and the lines at which pdb stops in them. Does what each line of its input says."""

# ruff: noqa: E701, F401, F841, UP028
# fmt: off
import asyncio
import bdb
import contextlib
import functools
import json
import sys


def go(case):
    case()  # @go
    return  # @over


def numbers(count):
    for number in range(count):
        yield number
    last = count
    yield last


def generators():
    total = 0
    for number in numbers(2):
        total += number
    lazy = numbers(1)
    first = next(lazy)
    rest = list(lazy)
    return total, first, rest


def echoes():
    got = None
    while True:
        try:
            got = yield got
        except ValueError:
            got = "thrown"
        finally:
            again = got


def driven():
    echo = echoes()
    next(echo)
    echo.send(1)
    echo.throw(ValueError)
    echo.close()
    return list(delegated())


def delegated():
    yield 0
    value = yield from numbers(1)
    return value


def square(value):
    result = value * value
    return result


def comprehensions():
    squares = [square(value) for value in range(2)]
    pairs = {
        value: square(value)
        for value in squares
        if value
    }
    total = sum(square(value) for value in range(2))
    mapped = list(map(square, squares))
    mapped.sort(key=lambda value: -value)
    return pairs, total


def loops():
    count = 2
    while count: count -= 1
    for _ in range(2): count += 1
    for _ in range(2):
        if count:
            continue
        count += 1
    else:
        count = 0
    def twice(value): return value * 2
    return twice(twice(count))


class Managed:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        handled = error[0] is KeyError
        return handled


@contextlib.contextmanager
def managed():
    try:
        yield 1
    except KeyError:
        raised = True
    finally:
        raised = False


def contexts():
    with Managed() as one, Managed():
        value = one
    with Managed():
        raise KeyError(value)
    with managed() as value:
        value += 1
    with managed():
        raise KeyError(value)
    return value


def breaks(how):
    try:
        raise how
    finally:
        done = True


def tries():
    seen = []
    for error in (None, ValueError(), KeyError()):
        try:
            if error: breaks(error)
        except ValueError as caught:
            seen.append(caught)
        except (KeyError,
                TypeError):
            seen.append(error)
            continue
        else:
            seen.append(None)
        finally:
            seen.append(0)
    return returns(seen)


def returns(value):
    try:
        return square(len(value))
    finally:
        value.clear()


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        before = args
        try:
            return function(*before)
        finally:
            before = None
    return wrapper


def decorators():
    @logged
    @functools.lru_cache
    def cached(value):
        return value + 1

    class Thing:
        size = 1

        @property
        def doubled(self):
            return self.size * 2

        @classmethod
        @logged
        def made(cls):
            return cls()

    cached(1)
    cached(1)
    thing = Thing.made()
    return thing.doubled


async def ticks(count):
    for tick in range(count):
        yield tick
        await asyncio.sleep(0)


async def fetch(value):
    await asyncio.sleep(0)
    return value


class Locked:
    async def __aenter__(self):
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *error):
        await asyncio.sleep(0)


async def job(name):
    first = await fetch(name)
    async with Locked() as lock:
        second = await fetch(lock)
    async for tick in ticks(2):
        second = tick
    return [tick async for tick in ticks(2)], first, second


async def jobs():
    await job("one")
    results = await asyncio.gather(fetch(1), fetch(2))
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.001)
    except asyncio.TimeoutError:
        results.append(None)
    return results


def coroutines():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(jobs())
    loop.close()


def recursion(depth=2):
    if depth:
        return recursion(depth - 1) + 1
    return 0


class Pdb(bdb.Bdb):
    """Steps from the first line of `go` to its last one."""

    def __init__(self, into):
        super().__init__()
        self.into, self.lines, self.last = into, [], None

    def user_line(self, frame):
        # The library is passed by, and, as from Python 3.14 on, the line of the last step.
        if frame.f_code.co_filename != __file__ or self.last == (frame, frame.f_lineno):
            return
        self.lines.append(frame.f_lineno)
        self.last = frame, frame.f_lineno
        if frame.f_code is go.__code__ and len(self.lines) > 1:
            self.set_continue()
        elif self.into or frame.f_code is go.__code__:
            self.set_step()
        else:
            self.set_next(frame)


def stepped(case, into):
    """Give the lines at which pdb stops."""
    pdb = Pdb(into)
    pdb.runcall(go, case)
    return pdb.lines


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
