"""Waits in a function with locals of every kind; names in its arguments choose those whose repr never ends."""

# ruff: noqa: F841 - they are there to be looked at

import collections
import contextlib
import dataclasses
import sys
import time
import weakref


class Speaks:
    def __init__(self, word):
        self.word = word

    def __repr__(self):
        return f"Speaks({self.word})"


class Raises:
    def __repr__(self):
        raise ValueError("not today")


class Recurses:
    def __repr__(self):
        return f"again {self!r}"


class Prints:
    def __repr__(self):
        print("noise")
        print("noise", file=sys.stderr)
        return "Prints()"


class Exits:
    def __repr__(self):
        sys.exit(3)


class Long:
    def __repr__(self):
        return "x" * 1_000_000


class Plain:
    def __init__(self, held):
        self.count = 1
        self.held = held


@dataclasses.dataclass
class Settings:
    rate: float
    weights: object


touched = []


class Tensor:
    """Like one whose data is on a device that does not answer."""

    shape = (2, 3)
    dtype = "torch.float32"

    @property
    def device(self):
        return "cuda:0"

    def _touch(self, *_):
        touched.append("data")
        raise RuntimeError("the data was touched")

    __repr__ = __str__ = __format__ = item = tolist = numpy = __array__ = __len__ = __iter__ = _touch
    __bool__ = __eq__ = __getitem__ = __float__ = __int__ = _touch
    __hash__ = None


class Loops:
    def __repr__(self):
        while True:
            pass


class LoopsToo(Loops):
    pass


class Sleeps:
    def __repr__(self):
        time.sleep(1_000_000)
        return "slept"


class Deaf:
    def __repr__(self):
        while not released:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.001)
        return "at last"


class Big:
    pass


released = []
ENDLESS = {"loops": (Loops, LoopsToo), "sleeps": (Sleeps,), "deaf": (Deaf,)}


def wait(parameter, *, endless):
    number, text, nothing, many = 10**30, "it's\n" * 100, None, list(range(100))
    nested = {"a": [1, (2.5, True)], b"k": {3}}
    named = collections.namedtuple("Point", "x y")(1, 2)
    speaks, raises, recurses, prints, exits, long = Speaks("up"), Raises(), Recurses(), Prints(), Exits(), Long()
    tensor = Tensor()
    tensors = {"w": [tensor, Tensor()], "of": collections.OrderedDict(b=tensor)}
    plain, settings = Plain(tensor), Settings(0.1, tensor)
    itself = [1]
    itself.append(itself)
    shared = "in a cell"
    last = Speaks("last")
    big = Big()
    seen = weakref.ref(big)

    def inside():
        return shared, parameter

    print("ready", flush=True)
    for line in sys.stdin:
        if line == "drop\n":
            big = None
            print(seen() is None, flush=True)
        elif line == "release\n":
            released.append(1)
            print("released", flush=True)


def outer():
    wait("given", endless=[kind() for name in sys.argv[1:] for kind in ENDLESS[name]])


module_level = 42
outer()
print("touched:", touched)
