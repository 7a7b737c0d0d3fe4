"""Makes functions of the expressions of points. Runs inside the target, called by expression.rs alone.

An expression becomes a function of the local names that it mentions: then it costs a call and no dictionary of locals,
and what is nested in it (comprehensions, lambdas) finds them, too.
"""

from _ast import (
    AST,
    Call,
    Constant,
    Expression,
    FormattedValue,
    JoinedStr,
    Lambda,
    Load,
    Name,
    PyCF_ONLY_AST,
    Tuple,
    arg,
    arguments,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _ast import expr
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType, FunctionType
    from typing import Any

FUNCTION: Any = type(lambda: None)
# What calls the parts of a text, by a name that no program has.
PART = "__probing_part__"
_eval = eval
_compile: Any = compile


def condition(source: str) -> "Formula":
    """Make a formula of an expression."""
    return Formula(_parsed(source), {})


def template(text: str, part: "Callable[[Callable[[], str]], str]") -> "Formula":
    """Make a formula of a text with ``{expression}`` in it, as f-strings have them.

    Each expression is called by ``part``, which gives the error in its place when it fails.
    """
    return Formula(_joined(text, _called), {PART: part})


class Formula:
    """An expression in the names of a frame."""

    def __init__(self, tree: expr, given: dict[str, Any]) -> None:
        self._tree = tree
        # What it is called with beside variables.
        self._given = given
        self._mentioned = {node.id for node in _nodes(tree) if type(node) is Name}
        self._code = _compile(_placed(Expression(tree)), "<probing>", "eval", 0, True)

    def function_in(self, code: CodeType, names: dict[str, Any]) -> tuple[FunctionType, tuple[str, ...]]:
        """Make it a function of the variables of a code object, in a module's names."""
        variables = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        wanted = tuple(name for name in dict.fromkeys(variables) if name in self._mentioned)
        names_of_all = [*wanted, *self._given]
        parameters = arguments(
            posonlyargs=[], args=[arg(arg=name) for name in names_of_all], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        tree = _placed(Expression(Lambda(args=parameters, body=self._tree)))
        maker = _compile(tree, "<probing>", "eval", 0, True)
        inner = next(constant for constant in maker.co_consts if type(constant) is type(maker))
        return FUNCTION(inner, names, None, tuple(self._given.values())), wanted

    def value_in(self, frame: FrameType) -> object:
        """Evaluate it where not all variables are bound, or there are no variables."""
        return _eval(self._code, {**frame.f_globals, **frame.f_locals, **self._given})


def _parsed(source: str) -> expr:
    tree: expr = _compile(f"({source.strip()}\n)", "<probing>", "eval", PyCF_ONLY_AST, True).body
    # Nothing, or a comment, between parentheses of ours is an empty tuple.
    if type(tree) is Tuple and not tree.elts and tree.col_offset == 0:
        raise SyntaxError("the expression is empty")
    return tree


def _called(part: expr) -> expr:
    """Have a part of a text called by itself."""
    body = JoinedStr(values=[part])
    nothing = arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    call = Call(func=Name(id=PART, ctx=Load()), args=[Lambda(args=nothing, body=body)], keywords=[])
    return FormattedValue(value=call, conversion=-1, format_spec=None)


def _joined(text: str, made: "Callable[[expr], expr]" = lambda part: part) -> expr:
    """Read a text as an f-string is read; ``made`` of each expression in it."""
    parts: list[Any] = []
    literal = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at : at + 2] == char * 2:
            literal += char
            at += 2
        elif char == "{":
            parts.append(Constant(value=literal))
            literal = ""
            part, at = _field(text, at + 1)
            parts.append(made(part))
        elif char == "}":
            raise SyntaxError("a single } in the text: write }} for the character itself")
        else:
            literal += char
            at += 1
    parts.append(Constant(value=literal))
    return JoinedStr(values=parts)


def _field(text: str, begin: int) -> tuple[expr, int]:
    end = _end_of_expression(text, begin)
    value = _parsed(text[begin:end])
    conversion = -1
    if text[end] == "!":
        if text[end + 1 : end + 2] not in ("r", "s", "a"):
            raise SyntaxError("! must be followed by r, s or a")
        conversion = ord(text[end + 1])
        end += 2
    spec = None
    if text[end : end + 1] == ":":
        close = _end_of_spec(text, end + 1)
        spec = _joined(text[end + 1 : close])
        end = close
    if text[end : end + 1] != "}":
        raise SyntaxError("a { without its }")
    return FormattedValue(value=value, conversion=conversion, format_spec=spec), end + 1


def _end_of_expression(text: str, at: int) -> int:
    """Find the ``}``, ``:`` or ``!`` that ends an expression."""
    depth = 0
    quote = ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif not depth and (char in "}:" or (char == "!" and text[at : at + 2] != "!=")):
            return at
        at += 1
    raise SyntaxError("a { without its }")


def _end_of_spec(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            if not depth:
                return at
            depth -= 1
        at += 1
    raise SyntaxError("a { without its }")


def _nodes(tree: AST) -> Iterator[AST]:
    yield tree
    for field in tree._fields:
        value = getattr(tree, field, None)
        for node in value if isinstance(value, list) else (value,):
            if isinstance(node, AST):
                yield from _nodes(node)


def _placed(tree: AST) -> AST:
    for node in _nodes(tree):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            node.lineno = node.end_lineno = 1  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    return tree
