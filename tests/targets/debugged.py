"""Does what each line of its standard input says, in its own namespace, and says `done`. What it does is looked at."""

import asyncio
import functools
import sys
import threading

loss = 0.25


class Trainer:
    def __init__(self):
        self.lr = 0.1
        self._step = 7

    @property
    def step(self):
        return self._step

    def fit(self, batch):
        total = batch * 2  # @first

        total = total + 1  # @second
        return self.finish(total)  # @third

    def finish(self, value):
        squares = [value * each for each in range(3)]  # @finish
        return sum(squares)  # @sum


def numbers(count):
    for number in range(count):
        twice = number * 2  # @twice
        yield twice  # @yield


def consume():
    total = 0  # @consume
    for number in numbers(2):  # @loop
        total += number  # @add
    return total  # @consumed


def fails():
    try:  # @try
        breaks("no such thing")  # @breaks
    except ValueError:  # @except
        handled = True  # @handled
    return handled


def breaks(why):
    problem = why
    raise ValueError(problem)  # @raise


def factorial(number):
    if number < 2:  # @factorial
        return 1
    return number * factorial(number - 1)  # @recursion


def traced(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)  # @wrapper

    return wrapper


@traced
def decorated(value):
    return value + 1  # @decorated


async def fetch(value):
    await asyncio.sleep(0)  # @sleep
    return value  # @fetched


async def gather():
    first = await fetch(1)  # @await
    second = await fetch(2)  # @awaited
    return first + second


def gathered():
    return asyncio.run(gather())


def count(limit):
    step = 0
    while step < limit:
        step += 1  # @count
    return step


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args, name="worker")
    thread.start()
    return thread


def maker():
    def inner(value):
        return value * 10  # @inner

    return inner


trainer = Trainer()
held = [maker()]

if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
