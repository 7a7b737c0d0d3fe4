"""Does what each line of its standard input says, in its own names, and says `done`. What changes in it is watched."""

import os
import sys
import threading

rate = 0.1
config = {"lr": 0.5, "other": 1}
layers = [1, 2, 3]


class Options:
    kind = "adam"

    def __init__(self):
        self.lr = 0.1
        self.other = 0

    @property
    def half(self):
        return self.lr / 2

    def set_rate(self, lr):
        self.lr = lr  # @attribute


class Slotted:
    __slots__ = ("lr",)

    def __init__(self):
        self.lr = 1


class Loud:
    def __repr__(self):
        print("repr", flush=True)
        return "loud"


class Network:
    """Has its parts where torch has those of a module."""

    def __init__(self):
        self._modules = {"fc": Options()}
        self._parameters = {}
        self._buffers = {}


def schedule(lr, steps):
    for step in range(steps):
        if step % 2:
            lr = lr / 2  # @halve
    return lr


def best_of(values):
    best = None  # @none
    for value in values:
        if best is None or value > best:
            best = value  # @best
        del value
    return best


def shared():
    total = 0  # @zero

    def add(number):
        nonlocal total
        total += number  # @nonlocal

    add(1)
    add(2)
    return total


def comprehended(x):
    squares = [x * x for x in range(3)]  # @squares
    x, other = 7, 8  # @both
    return x, squares, other


def squares_of(count):
    return [each * each for each in range(count)]


def makers_of(count):
    return [lambda: made for made in range(count)]  # noqa: B023


def reader(x):
    def read_around():
        return [x for _ in range(3)]

    return read_around


read_around = reader(1)


def numbers(count):
    for number in range(count):
        twice = number * 2  # @twice
        yield twice


def count(limit):
    step = 0
    while step < limit:
        step += 1  # @count
    return step


def set_global(value):
    global rate
    rate = value  # @global
    return rate  # @after


def set_item(value):
    config["lr"] = value  # @item


def set_all(value):
    config.update(lr=value, other=value)  # @update


def set_layer(value):
    layers[1] = value  # @layer
    return layers


def set_slot(value):
    slotted.lr = value  # @slot
    return slotted


def set_variable(value):
    os.environ["WATCHED"] = value  # @environment


def loudly():
    voice = Loud()  # @loud
    voice = [voice, {"a": (1, 2.5)}]  # @in_list
    return voice


def busily(value):  # @busily
    first = (value := 1) + (value := 2)  # @twice_in_it
    first = value = first  # @chain
    for value in (4, 5):  # @loop
        first += value // 4  # @body
    del value  # @gone
    return first


def forever(limit):
    turn = 0
    while limit[0]:
        turn += 1  # @turn
    return turn


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args, name="worker")
    thread.start()
    thread.join()


options = Options()
slotted = Slotted()
network = Network()

if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
