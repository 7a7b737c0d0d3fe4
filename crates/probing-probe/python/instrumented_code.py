"""Makes code that calls out where it comes to a line, has written a variable, begins or ends.

For Pythons without `sys.monitoring`. Runs inside the target, called by sites.rs alone. The code made is a function's
own with some calls more: same names, same lines, same handlers. A call of a line stands exactly where a trace function
would be told of it; one of a variable right behind what writes it, as part of the same line. A call when a function
ends stands in front of each return, and in a handler around all of it, which raises again what it has told of.
"""

import sys
from _weakref import ref
from gc import get_referrers
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType
    from typing import Any

    # What is called when a function begins, and with what it returns, or is left by.
    Ends = tuple[object, object, object]
    # A line, its end, and the columns; a part that is not known is None.
    Position = tuple[int | None, int | None, int | None, int | None]

IS_311 = sys.version_info >= (3, 11)
NOWHERE: Position = (None, None, None, None)
NOP, LOAD_CONST, FOR_ITER, JUMP_FORWARD, EXTENDED_ARG = 9, 100, 93, 110, 144
# Forward and relative in 3.11, absolute in 3.10.
POP_JUMP_IF_FALSE = 114
RETURN_VALUE, RERAISE, RAISE_VARARGS = 83, 119, 130
# What is on top is swapped with what is below; what is below is asked for an item.
SWAP, SWAP_ARGUMENT = (99, 2) if IS_311 else (2, 0)
BINARY_SUBSCR, BINARY_SUBSCR_CACHES = 25, 4 if IS_311 else 0
if IS_311:
    CACHE, PUSH_EXC_INFO, SEND, RESUME, PRECALL, KW_NAMES = 0, 35, 123, 151, 166, 172
    ABSOLUTE: frozenset[int] = frozenset()
    # JUMP_BACKWARD_NO_INTERRUPT, JUMP_BACKWARD, POP_JUMP_BACKWARD_IF_….
    BACKWARD = frozenset((134, 140, 173, 174, 175, 176))
    # JUMP_IF_…_OR_POP, POP_JUMP_FORWARD_IF_….
    FORWARD = frozenset((FOR_ITER, JUMP_FORWARD, 111, 112, POP_JUMP_IF_FALSE, 115, SEND, 128, 129))
    SETUPS: frozenset[int] = frozenset()
    # What follows is not come to from there.
    LEAVES = frozenset((RETURN_VALUE, RERAISE, RAISE_VARARGS, JUMP_FORWARD, 134, 140))
    # Nothing stands between them and what they prepare.
    PREPARES = frozenset((KW_NAMES, PRECALL))
    # An exception that is caught is not lost in front of this one.
    CATCHES = PUSH_EXC_INFO
else:
    GEN_START, POP_BLOCK, SETUP_FINALLY = 129, 87, 122
    CACHE = SEND = RESUME = CATCHES = -1
    # JUMP_IF_…_OR_POP, JUMP_ABSOLUTE, POP_JUMP_IF_…, JUMP_IF_NOT_EXC_MATCH.
    ABSOLUTE = frozenset((111, 112, 113, POP_JUMP_IF_FALSE, 115, 121))
    BACKWARD = frozenset()
    # The others are SETUP_WITH, SETUP_ASYNC_WITH.
    SETUPS = frozenset((SETUP_FINALLY, 143, 154))
    FORWARD = SETUPS | {FOR_ITER, JUMP_FORWARD}
    LEAVES = frozenset((RETURN_VALUE, RERAISE, RAISE_VARARGS, JUMP_FORWARD, 113))
    PREPARES = frozenset()
JUMPS = ABSOLUTE | BACKWARD | FORWARD

# Blocks of 3.10 that a frame has room for: ours is one more.
MAX_BLOCKS = 20
# What is on the stack in a handler of 3.10 that puts two more there.
HANDLER_STACK = 8

# Flags of code objects, as `inspect` knows them.
OPTIMIZED, NESTED = 0x1, 0x10
# What compiles functions by their code, and what keeps frames out of sight.
CONFUSED = {"torch._dynamo.convert_frame", "greenlet"}
# The names of their codes and of their frames.
SLEEPERS: dict[type, tuple[str, str]] = {
    GeneratorType: ("gi_code", "gi_frame"),
    CoroutineType: ("cr_code", "cr_frame"),
    AsyncGeneratorType: ("ag_code", "ag_frame"),
}
# All that has code, and is no frame.
KINDS = (FunctionType, *SLEEPERS)


class Instruction:
    """One instruction, with its prefixes and caches."""

    __slots__ = ("argument", "at", "caches", "opcode", "position", "target", "units")

    def __init__(self, opcode: int, argument: int, position: Position, caches: int = 0) -> None:
        self.opcode = opcode
        self.argument = argument
        self.position = position
        self.caches = caches
        # Where it stands, and how many units of two bytes it takes.
        self.at = 0
        self.units = 0
        # What it jumps to.
        self.target: Instruction | None = None

    def line(self) -> int | None:
        return self.position[0]

    def jump(self) -> int:
        """Tell the argument that leads to its target."""
        assert self.target is not None
        distance = self.target.at - (0 if self.opcode in ABSOLUTE else self.at + self.units - self.caches)
        argument = -distance if self.opcode in BACKWARD else distance
        if argument < 0:
            raise ValueError("a jump leads to the wrong side")
        return argument

    def encoded(self) -> bytes:
        argument = self.argument if self.target is None else self.jump()
        prefixes = self.units - self.caches - 1
        parts = [(EXTENDED_ARG, argument >> 8 * place & 0xFF) for place in range(prefixes, 0, -1)]
        parts += [(self.opcode, argument & 0xFF), *[(0, 0)] * self.caches]
        return b"".join(map(bytes, parts))


class Sites:
    """Code on its way to having calls in it."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._own = list(_decoded(code))
        at = {it.at: it for it in self._own}
        self._handlers = [(at[start], at.get(end), at[target], rest) for start, end, target, rest in _handlers(code)]
        self._caught = {
            id(target) for body, target in self._guarded() if any(it.line() != target.line() for it in body)
        }
        self._sources: dict[int, list[Instruction]] = {}
        for it in self._own:
            if it.target is not None and it.opcode not in SETUPS:
                self._sources.setdefault(id(it.target), []).append(it)
        self._constants = list(code.co_consts)
        self._made: list[Instruction] = []
        self._calls: list[Instruction] = []
        # Where what came of a call is looked at.
        self._turns: list[int] = []
        # The calls in front of an instruction.
        self._before: dict[int, Instruction] = {}
        # What is run when an exception leaves the function, and the first instruction that may raise one.
        self._handler: list[Instruction] = []
        self._first = 0

    def made(
        self, lines: dict[int, object], start: object | None, writes: dict[int, object], ends: Ends | None
    ) -> tuple[CodeType, list[int]]:
        """Give the code, and the offsets of the calls at lines in it, in their order."""
        called, left, unwound = ends or (None, None, None)
        own = self._own if ends is None else list(self._with_returns(left))
        entry = _entry(own)
        last: Instruction | None = None
        for index, it in enumerate(own):
            if index == entry:
                if ends is not None:
                    self._ask(called, NOWHERE)
                    self._guard(unwound)
                # Arguments are written before the first line.
                self._follow(writes.get(it.at * 2), NOWHERE)
                # What is told of the start is told of its line, too.
                last = self._call(start, it.position) if start is not None else None
            probe = lines.get(it.line() or 0) if index >= entry else None
            if probe is not None:
                self._meet(probe, it, last)
            self._made.append(it)
            if index >= entry:
                # Whoever jumps to what follows has written nothing.
                self._follow(writes.get((it.at + it.units) * 2), it.position)
            last = it
        self._made += self._handler
        for place in self._turns:
            self._made[place].target = self._made[place + 2]
        for it in self._own:
            before = self._before.get(id(it.target))
            if before is not None and it.target is not None and self._leads_to_call(it, it.target):
                it.target = before
        _place(self._made)
        return self._replaced(), [it.at * 2 for it in self._calls]

    def _with_returns(self, left: object) -> Iterator[Instruction]:
        """Give all instructions, with a call in front of each return."""
        for it in self._own:
            if it.opcode != RETURN_VALUE:
                yield it
                continue
            # Whoever jumps to the return comes to the call.
            returns = Instruction(RETURN_VALUE, it.argument, it.position)
            for made in (*self._shown(it, left, returns), returns):
                # Nothing is written here.
                made.at = it.at + it.units
                yield made

    def _shown(self, first: Instruction, probe: object, after: Instruction) -> list[Instruction]:
        """Ask a probe whether it wants what is on top of the stack, and show it that if so: it gives it back."""
        constant, position = self._constant(probe), first.position
        first.opcode, first.argument = LOAD_CONST, constant
        turn = Instruction(POP_JUMP_IF_FALSE, 0, position)
        turn.target = after
        load, swap = Instruction(LOAD_CONST, constant, position), Instruction(SWAP, SWAP_ARGUMENT, position)
        return [first, turn, load, swap, Instruction(BINARY_SUBSCR, 0, position, BINARY_SUBSCR_CACHES)]

    def _guard(self, unwound: object) -> None:
        """Put a handler around all that follows."""
        again = Instruction(RERAISE, 1, NOWHERE)
        if IS_311:
            self._handler = [*self._shown(Instruction(NOP, 0, NOWHERE), unwound, again), again]
        else:
            if sum(it.opcode in SETUPS for it in self._own) >= MAX_BLOCKS:
                raise ValueError("a frame may have no room for one more block")
            # An exception lies below its class.
            up, down = Instruction(SWAP, 0, NOWHERE), Instruction(SWAP, 0, NOWHERE)
            self._handler = [up, *self._shown(Instruction(NOP, 0, NOWHERE), unwound, down), down, again]
            setup = Instruction(SETUP_FINALLY, 0, NOWHERE)
            setup.target = up
            self._made.append(setup)
        self._first = len(self._made)

    def _guarded(self) -> Iterator[tuple[list[Instruction], Instruction]]:
        """Give what runs under each handler, with the handler."""
        for start, end, target, _ in self._handlers:
            stop = self._own[-1].at + 1 if end is None else end.at
            yield [it for it in self._own if start.at <= it.at < stop], target
        for index, it in enumerate(self._own):
            if it.opcode in SETUPS and it.target is not None:
                body = self._own[index + 1 :]
                ends = (place for place, inside in enumerate(body) if inside.opcode == POP_BLOCK)
                yield body[: next(ends, len(body))], it.target

    def _meet(self, probe: object, it: Instruction, last: Instruction | None) -> None:
        """Put a call in front of an instruction if a trace function would be told of its line there."""
        if it.opcode in (CATCHES, RESUME) or (last is not None and last.opcode in PREPARES):
            return
        falls = last is None or last.opcode not in LEAVES
        comes_down = falls and (last is None or last.line() != it.line() or last.opcode == CATCHES)
        jumps = self._sources.get(id(it), ())
        if not comes_down and id(it) not in self._caught and not any(_is_told(source, it) for source in jumps):
            return
        if falls and not comes_down:
            over = Instruction(JUMP_FORWARD, 0, it.position)
            over.target = it
            self._made.append(over)
        self._before[id(it)] = self._call(probe, it.position)

    def _leads_to_call(self, it: Instruction, target: Instruction) -> bool:
        return id(target) in self._caught if it.opcode in SETUPS else _is_told(it, target)

    def _call(self, probe: object, position: Position) -> Instruction:
        call = self._ask(probe, position)
        self._calls.append(call)
        return call

    def _follow(self, probe: object | None, position: Position) -> None:
        """Put a call behind a write, if somebody wants to know of it."""
        if probe is not None:
            self._ask(probe, position)

    def _ask(self, probe: object, position: Position) -> Instruction:
        call = Instruction(LOAD_CONST, self._constant(probe), position)
        # To ask whether it is true is the call. Whoever traces only from here on is told of the line that begins: what
        # is true leads there through no line.
        self._turns.append(len(self._made) + 1)
        self._made += (call, Instruction(POP_JUMP_IF_FALSE, 0, position), Instruction(NOP, 0, NOWHERE))
        return call

    def _constant(self, probe: object) -> int:
        self._constants.append(probe)
        return len(self._constants) - 1

    def _replaced(self) -> CodeType:
        code = self._code
        first = code.co_firstlineno
        stack = max(code.co_stacksize + 2, HANDLER_STACK) if self._handler else code.co_stacksize + 1
        changes: dict[str, object] = {
            "co_code": b"".join(it.encoded() for it in self._made),
            "co_consts": tuple(self._constants),
            "co_stacksize": stack,
        }
        if IS_311:
            changes["co_linetable"] = bytes(_locations(self._made, first))
            changes["co_exceptiontable"] = bytes(self._exceptions())
        else:
            changes["co_linetable"] = bytes(_lines(self._made, first))
        return code.replace(**changes)  # type: ignore[arg-type]

    def _exceptions(self) -> Iterator[int]:
        for begin, stop, handler, rest in self._covered():
            for part, mark in ((begin, 0x80), (stop - begin, 0), (handler, 0), (rest, 0)):
                yield from _big(part, mark)

    def _covered(self) -> list[tuple[int, int, int, int]]:
        """Tell what is under which handler: from, to, the handler, and what is on the stack."""
        last = self._made[-1]
        end = self._handler[0].at if self._handler else last.at + last.units
        covered = []
        for start, stop, target, rest in self._handlers:
            handler = self._before.get(id(target), target) if id(target) in self._caught else target
            begin = self._before.get(id(start), start)
            covered.append((begin.at, end if stop is None else self._before.get(id(stop), stop).at, handler.at, rest))
        if self._handler:
            # What is under none is under ours, with nothing on the stack but where it was raised.
            at = self._made[self._first].at
            for first, after, *_ in (*sorted(covered), (end, end)):
                if at < first:
                    covered.append((at, first, end, 1))
                at = max(at, after)
        return sorted(covered)


def with_sites(
    code: CodeType,
    lines: dict[int, object],
    start: object | None,
    writes: dict[int, object],
    ends: Ends | None,
) -> tuple[CodeType, list[int]]:
    """Make code that calls what `lines` has for each, `start` first of all, and `writes` behind what ends at an offset.

    With the offsets of the calls at lines.
    """
    return Sites(code).made(lines, start, writes, ends)


def _is_told(source: Instruction, target: Instruction) -> bool:
    """Tell whether a trace function is told of a line that is jumped to."""
    return source.line() != target.line() or (target.at <= source.at and target.opcode != SEND)


def _entry(own: list[Instruction]) -> int:
    """Tell which instruction is the first that can be traced."""
    if IS_311:
        return next((index + 1 for index, it in enumerate(own) if it.opcode == RESUME), 0)
    return int(own[0].opcode == GEN_START)


def _positions(code: CodeType) -> list[Position]:
    if IS_311:
        return list(code.co_positions())
    found: list[Position] = []
    for start, end, line in code.co_lines():
        found += [(line, None, None, None)] * ((end - start) // 2)
    return found


def _decoded(code: CodeType) -> Iterable[Instruction]:
    raw = code.co_code
    positions = _positions(code)
    own: list[Instruction] = []
    at = argument = begin = 0
    while at < len(raw) // 2:
        opcode, part = raw[2 * at], raw[2 * at + 1]
        argument = argument << 8 | part
        at += 1
        if opcode == EXTENDED_ARG:
            continue
        caches = 0
        while 2 * at < len(raw) and raw[2 * at] == CACHE:
            caches += 1
            at += 1
        it = Instruction(opcode, argument, positions[begin], caches)
        it.at, it.units = begin, at - begin
        own.append(it)
        begin, argument = at, 0
    places = {it.at: it for it in own}
    for it in own:
        if it.opcode in JUMPS:
            distance = -it.argument if it.opcode in BACKWARD else it.argument
            origin = 0 if it.opcode in ABSOLUTE else it.at + it.units - it.caches
            it.target = places[origin + distance]
    return own


def _place(made: list[Instruction]) -> None:
    """Give each instruction its place. One that needs a prefix more keeps it, so that there is an end."""
    for it in made:
        it.units = 1 + it.caches + _prefixes(it.argument if it.target is None else 0)
    is_settled = False
    while not is_settled:
        at = 0
        for it in made:
            it.at = at
            at += it.units
        is_settled = True
        for it in made:
            if it.target is not None:
                units = 1 + it.caches + _prefixes(it.jump())
                if units > it.units:
                    it.units, is_settled = units, False


def _prefixes(argument: int) -> int:
    return (argument > 0xFF) + (argument > 0xFFFF) + (argument > 0xFFFFFF)


def _handlers(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """Read what 3.11 has for handlers: from, to, the handler, and what is on the stack."""
    table = iter(code.co_exceptiontable if IS_311 else b"")

    def number(first: int) -> int:
        value = first & 0x3F
        while first & 0x40:
            first = next(table)
            value = value << 6 | first & 0x3F
        return value

    for first in table:
        start = number(first)
        length, target, rest = number(next(table)), number(next(table)), number(next(table))
        yield start, start + length, target, rest


def _big(value: int, mark: int) -> Iterator[int]:
    """Write a number, its large parts first."""
    parts = [value & 0x3F]
    while value := value >> 6:
        parts.insert(0, value & 0x3F | 0x40)
    parts[0] |= mark
    return iter(parts)


def _ranges(made: list[Instruction]) -> Iterator[tuple[Position, int]]:
    """Put neighbours of one position together: that, and their units."""
    position, units = made[0].position, 0
    for it in made:
        if it.position != position:
            yield position, units
            position, units = it.position, 0
        units += it.units
    yield position, units


def _lines(made: list[Instruction], line: int) -> Iterator[int]:
    """Write the lines as 3.10 has them."""
    for (own, *_), units in _ranges(made):
        size, change = units * 2, -128
        if own is not None:
            change, line = own - line, own
            while not -127 <= change <= 127:
                step = 127 if change > 0 else -127
                yield from (0, step & 0xFF)
                change -= step
        while size > 254:
            yield from (254, change & 0xFF)
            size -= 254
            change = -128 if own is None else 0
        yield from (size, change & 0xFF)


def _locations(made: list[Instruction], line: int) -> Iterator[int]:
    """Write the positions as 3.11 has them."""
    for (own, end, column, end_column), units in _ranges(made):
        while units > 0:
            size = min(units, 8)
            units -= size
            if own is None:
                yield 0x80 | 15 << 3 | size - 1
                continue
            change, line = own - line, own
            is_long = end is not None and column is not None and end_column is not None
            yield 0x80 | (14 if is_long else 13) << 3 | size - 1
            yield from _small(-change << 1 | 1 if change < 0 else change << 1)
            if end is not None and column is not None and end_column is not None:
                for part in (end - own, column + 1, end_column + 1):
                    yield from _small(part)


def _small(value: int) -> Iterator[int]:
    """Write a number, its small parts first."""
    while value > 0x3F:
        yield value & 0x3F | 0x40
        value >>= 6
    yield value


def entry_line(code: CodeType) -> int:
    """Tell the line that a function begins with."""
    own = list(_decoded(code))
    return own[_entry(own)].line() or code.co_firstlineno


def lines_in(code: CodeType) -> list[int]:
    """Tell the lines that a function can come to."""
    own = list(_decoded(code))
    return sorted({line for it in own[_entry(own) :] if (line := it.line())})


def may_have_twin(code: CodeType, are_all: bool) -> bool:
    """Tell whether functions can be given other code in place of this, and nobody is confused.

    Not where all have to have it: those inside functions are made anew all the time.
    """
    is_plain = bool(code.co_flags & OPTIMIZED) and not (are_all and code.co_flags & NESTED)
    return is_plain and not CONFUSED.intersection(sys.modules)


def holders(codes: tuple[CodeType, ...], walk: Iterator[list[Any]] | None) -> tuple[list[Any], list[Any]]:
    """Give weak references to the functions that have one of these codes, and to generators that run one."""
    functions: dict[int, Any] = {}
    sleepers: dict[int, Any] = {}
    # Between two pieces, other threads run.
    for piece in walk or [get_referrers(*codes)]:
        for holder in piece:
            kind = type(holder)
            if kind is FunctionType and any(holder.__code__ is code for code in codes):
                functions[id(holder)] = ref(holder)
            elif kind in SLEEPERS and any(getattr(holder, SLEEPERS[kind][0]) is code for code in codes):
                sleepers[id(holder)] = ref(holder)
    return list(functions.values()), list(sleepers.values())


def note(functions: list[Any], function: FunctionType) -> None:
    """Add a function to those that have some code."""
    if not any(held() is function for held in functions):
        functions.append(ref(function))


def wait(sleepers: list[Any]) -> bool:
    """Tell whether one of these is still there, and has not ended."""
    found = (held() for held in sleepers)
    return any(one is not None and getattr(one, SLEEPERS[type(one)][1]) is not None for one in found)


def give(functions: list[Any], codes: tuple[CodeType, ...], code: CodeType) -> None:
    """Give functions that have one of these codes another."""
    for held in functions:
        function = held()
        if function is not None and any(function.__code__ is one for one in codes):
            function.__code__ = code
