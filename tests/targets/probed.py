"""Traces its own functions, and checks that they are what they would be without that."""

import asyncio
import functools
import inspect
import os
import pickle
import sys

import probing


def leaf(x):
    return x + 1


@probing.probe(watch=["y"], depth=1)
def plain(a, b=2, /, *args, c=3, **more):
    y = leaf(a)
    y = leaf(y)
    return a, b, args, c, more, y


class Kinds:
    @probing.probe
    def method(self, x):
        return x

    @probing.probe
    @staticmethod
    def fixed(x):
        return x

    @classmethod
    @probing.probe
    def made(cls, x):
        return cls, x


@probing.probe
def generator(n):
    got = yield n
    yield got
    return 7


@probing.probe
def closed():
    # Where nothing is to be done, 3.13 does not even go on.
    try:
        yield 1
    finally:
        abs(0)


def nested():
    with probing.trace("within"):
        return leaf(20)


@probing.probe
async def coroutine(n):
    await asyncio.sleep(0)
    return n


@probing.probe
async def stream(n):
    for i in range(n):
        yield i


@probing.probe
def failing():
    raise KeyError(1)


def passing_on(function):
    @functools.wraps(function)
    def passed_on(*args):
        return function(*args)

    return passed_on


@probing.probe(watch=["kept"])
@passing_on
def decorated(x):
    kept = x
    return kept


@passing_on
def beside(x):
    return x


@probing.probe
@functools.lru_cache
def cached(x):
    return x


def closing(z):
    @probing.probe
    def inner(q):
        return q + z

    return inner


async def collected():
    return [i async for i in stream(2)]


def checked():
    assert plain(1, 5, 6, c=9, z=1) == (1, 5, (6,), 9, {"z": 1}, 3)
    assert str(inspect.signature(plain)) == "(a, b=2, /, *args, c=3, **more)"
    assert pickle.loads(pickle.dumps(plain)) is plain
    assert "y = leaf(a)" in inspect.getsource(plain)
    assert [Kinds().method(1), Kinds.fixed(2), Kinds.made(3)] == [1, 2, (Kinds, 3)]
    running = generator(1)
    assert [next(running), running.send(5)] == [1, 5]
    try:
        next(running)
    except StopIteration as end:
        returned = end.value
    assert returned == 7
    assert inspect.isgeneratorfunction(generator)
    begun = closed()
    assert next(begun) == 1
    begun.close()
    begun.close()
    assert inspect.isasyncgenfunction(stream)
    assert inspect.iscoroutinefunction(coroutine)
    assert asyncio.run(coroutine(4)) == 4
    assert asyncio.run(collected()) == [0, 1]
    assert closing(5)(6) == 11
    assert [decorated(8), beside(9), cached(10), cached(10)] == [8, 9, 10, 10]
    assert cached.cache_info().hits == 1
    try:
        failing()
    except KeyError as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        assert trace.tb_frame.f_code.co_name == "failing"
    with probing.trace("block", depth=1, tag=1):
        leaf(10)
        leaf(11)
    with probing.trace("around", depth=3):
        nested()
    rate = 1
    with probing.trace("warm-up", watch=["rate"]):
        rate = rate + 1
    rate = rate + 1
    try:
        with probing.trace("nothing", watch=["no_such"]):
            raise AssertionError
    except TypeError as error:
        said = str(error)
    assert "has no variable no_such" in said
    try:
        probing.probe(len)
    except TypeError as error:
        said = str(error)
    assert said == "only Python functions can be traced, not one of type builtin_function_or_method"


checked()
total = 1
with probing.trace("module", watch=["total"]):
    total = 5
total = 6
child = os.fork()
if child == 0:
    cached.cache_clear()
    checked()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("ready", flush=True)
sys.stdin.read()
