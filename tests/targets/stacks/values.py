"""Threads whose locals are of every kind; prints them as it sees them itself, then waits for the end of its input."""

import collections
import dataclasses
import enum
import json
import sys
import threading
import time
import types

held = threading.Lock()
held.acquire()
answer = 42
_private = ("module", 1)


class Model:
    def __init__(self):
        self.layers = [1, 2]

    def method(self):
        kept = self.layers
        held.acquire()
        return kept


@dataclasses.dataclass
class Settings:
    rate: float
    name: str
    inner: object = None


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 5


class Text(str):
    pass


class Odd(list):
    __slots__ = ("extra",)


Point = collections.namedtuple("Point", "x y")


def numbers():
    none, yes, no, dots, not_implemented = None, True, False, ..., NotImplemented
    zero, one, minus = 0, 1, -1
    digit, digits, many = 2**30 - 1, 2**30, -(2**60)
    edge, huge, minus_huge = 2**63, 10**150, -(3**300)
    floats = [0.0, -0.0, 0.1, 1e16, 1e15, 1.5e-5, 5e-324, float("inf"), float("-inf"), float("nan")]
    complexes = [1 + 2j, 2j, -1.5j, complex(0.0, float("nan"))]
    ranges = [range(3), range(1, 10, 2), range(-(2**70), 0)]
    held.acquire()


def texts():
    empty, ascii, latin, wide, widest = "", "plain", "né", "名前", "😀 x"
    derived, derived_wide = Text("dérivé"), Text("名" * 20)
    quotes, both, escapes = "it's", 'it\'s "so"', "a\n\t\r\\\x00\x1b\x7f"
    spaces, odd = "a\xa0b\u2028\u200b", "\udc80\ud800\U0010ffff"
    long = "0123456789" * 20
    data, binary, no_data = b"bytes", bytes(range(40)), b""
    held.acquire()


def containers():
    nothing = [[], (), {}, set(), frozenset()]
    single, triple = (1,), (1, "two", [3.0])
    mixed = {"a": 1, 2: [3], (4,): {5: "six"}, None: ()}
    members = [{1}, frozenset({"x"}), {2, 3}]
    removed = {n: -n for n in range(8)}
    for n in range(6):
        del removed[n]
    shrunk = set(range(8)) - {0, 1, 2, 3, 4}
    shrunk.discard(7)
    ordered, default = collections.OrderedDict(a=1), collections.defaultdict(list, b=[2])
    odd = Odd([1, 2])
    point = Point(1, Point(2, 3))
    items = {"k": 1}.items()
    iterator = iter([1])
    held.acquire()


def recursive():
    loop = [1]
    loop.append(loop)
    table = {}
    table["self"], table["list"] = table, [table]
    pair = ([],)
    pair[0].append(pair)
    held.acquire()


def objects():
    model, settings = Model(), Settings(0.5, "adam", Settings(1.0, "inner"))
    full = Model()
    full.__dict__["more"] = 1
    colours, level = [Colour.RED, Colour.BLUE], Level.LOW
    function, method, builtin, module = numbers, Model().method, len, json
    classes = [Model, int, Colour, types.FunctionType]
    error, empty_error = ValueError("x", 1), KeyError()
    simple = types.SimpleNamespace(a=1)
    held.acquire()


def unbound(flag=False):
    gone = 1
    del gone
    if flag:
        never = 2
    try:
        raise ValueError
    except ValueError as error:
        seen = error.args
    held.acquire()
    return gone, never, seen


def arguments(first, /, second, *rest, keyword=1, **named):
    held.acquire()


def call_arguments():
    arguments(1, [2], 3, 4, keyword=5, a=6, b={"c": 7})


def cells(argument=1, plain=2):
    shared, later = "shared", None

    def inner(own):
        nonlocal later
        later = [own]

        def innermost():
            return shared, argument, later, held.acquire(), unset

        innermost()

    inner(3)
    unset = 4


def comprehension():
    outer = 1
    return [[held.acquire(), outer] for number in range(3) for other in "ab"]


def generator_expression():
    return sum(held.acquire() for number in [7, 8])


def generate(start):
    sent = yield start
    held.acquire()
    yield sent


def generator():
    running = generate([1])
    next(running)
    running.send("sent")


async def wait_async(level):
    if level:
        await wait_async(level - 1)
    held.acquire()


def coroutine():
    wait_async(2).send(None)


def class_body():
    outside = 1

    class Body:
        """Not shown."""

        attribute = [outside]
        other = {"x": attribute}

        def method(self):
            return __class__

        held.acquire()


def execute():
    exec("made = [1]\nheld.acquire()", {"held": held, "known": 2}, {"given": 3})


def execute_alone():
    exec("made = [1]\nheld.acquire()", {"held": held, "known": 2})


def use_method():
    Model().method()


def use_lambda():
    return (lambda first, second=2: held.acquire())(1)


WIDE = "; ".join(f"name_{number} = {number}" for number in range(99))


def many():
    exec(f"def wide():\n {WIDE}\n held.acquire()\nwide()", {"held": held})


PLACES = [
    numbers,
    texts,
    containers,
    recursive,
    objects,
    unbound,
    call_arguments,
    cells,
    comprehension,
    generator_expression,
    generator,
    coroutine,
    class_body,
    execute,
    execute_alone,
    use_method,
    use_lambda,
    many,
]


def written(value, around=()):
    """What is shown of a value: its `repr`, but for objects that need code of theirs for it."""
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes, type(...), type(NotImplemented)):
        return repr(value)
    if kind is Text:
        return str.__repr__(value)
    if any(value is other for other in around):
        return {list: "[...]", tuple: "(...)"}.get(kind, "{...}")
    around = (*around, value)

    def all_of(items):
        return ", ".join(written(item, around) for item in items)

    if isinstance(value, enum.Enum):
        return f"<{kind.__qualname__}.{value.name}: {value.value!r}>"
    if isinstance(value, (list, tuple)):
        text = all_of(value) + ("," if kind is tuple and len(value) == 1 else "")
        name = "" if kind in (list, Odd, tuple) else kind.__qualname__
        return f"[{text}]" if isinstance(value, list) else f"{name}({text})"
    if isinstance(value, dict):
        text = ", ".join(f"{written(key, around)}: {written(item, around)}" for key, item in value.items())
        return f"{{{text}}}" if kind is dict else f"{kind.__qualname__}({{{text}}})"
    if isinstance(value, (set, frozenset)):
        text = f"{{{all_of(value)}}}" if value else ""
        return text if kind is set and value else f"{kind.__name__}({text})"
    return written_object(value, kind, all_of)


def written_object(value, kind, all_of):
    if kind is range:
        return repr(value)
    if isinstance(value, type):
        return f"<class '{value.__qualname__}'>"
    if kind is types.FunctionType:
        return f"<function {value.__qualname__}>"
    if kind is types.MethodType:
        return f"<bound method of <function {value.__func__.__qualname__}>>"
    if kind is types.BuiltinFunctionType:
        return f"<built-in function {value.__name__}>"
    if kind is types.ModuleType:
        return f"<module '{value.__name__}'>"
    if isinstance(value, BaseException):
        return f"{kind.__qualname__}({all_of(value.args)})"
    if kind is Settings:
        fields = [f"{name}={all_of([item])}" for name, item in vars(value).items()]
        return f"Settings({', '.join(fields)})"
    return f"<{kind.__qualname__} object at {id(value):#x}>"


def is_shown(name, value):
    is_own = name.startswith("__") and name.endswith("__")
    definitions = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    return not is_own and not isinstance(value, definitions)


def locals_of(frame):
    variables = dict(frame.f_locals)
    if not frame.f_code.co_flags & 1:
        variables = {name: value for name, value in variables.items() if is_shown(name, value)}
    return {name: [written(value), type(value).__qualname__] for name, value in variables.items()}


def frames(frame):
    while frame:
        yield frame.f_code.co_name, locals_of(frame)
        frame = frame.f_back


threads = [threading.Thread(target=place, daemon=True, name=place.__name__) for place in PLACES]
for thread in threads:
    thread.start()
previous = {}
while True:
    now = {ident: [frame.f_lasti for frame in [frame]] for ident, frame in sys._current_frames().items()}
    now.pop(threading.get_ident())
    if now == previous and len(now) == len(threads):
        break
    previous = now
    time.sleep(0.05)
truth = {ident: list(frames(frame)) for ident, frame in sys._current_frames().items()}
truth.pop(threading.get_ident())
print("ready", flush=True)
print(json.dumps({"names": {thread.ident: thread.name for thread in threads}, "frames": truth}), flush=True)
sys.stdin.readline()  # @here
