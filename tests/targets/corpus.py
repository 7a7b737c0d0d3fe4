"""Runs tests of CPython's own, and tells what became of each.

``corpus.py TEST_MODULE [MODULE ...]``: begins with a line of JSON, what there is in these modules: lines of functions,
variables, and functions; then waits for a line of input, runs the tests, tells the outcome of each as JSON, and waits
again. What tests print goes nowhere.
"""

import contextlib
import importlib
import json
import os
import sys
import unittest

own = os.fdopen(os.dup(1), "w")
nowhere = os.open(os.devnull, os.O_WRONLY)


def tell(what):
    print(what if isinstance(what, str) else json.dumps(what), file=own, flush=True)


def codes(code, inside):
    for constant in code.co_consts:
        if type(constant) is type(code):
            own = f"{inside}.{constant.co_name}"
            yield constant, own
            yield from codes(constant, own)


def places(name):
    """The first line of each function's body, and the one in its middle, as files and lines."""
    spec = importlib.util.find_spec(name)
    for code, _ in codes(spec.loader.get_code(name), name):
        lines = sorted({line for _, _, line in code.co_lines() if line} - {code.co_firstlineno})
        if lines:
            yield from {(spec.origin, lines[0]), (spec.origin, lines[len(lines) // 2])}


def variables(name):
    """The last variable of each function, by the function's name and its own; and those of the module by their own."""
    spec = importlib.util.find_spec(name)
    for code, function in codes(spec.loader.get_code(name), name):
        if code.co_varnames and "<" not in function:
            yield function, code.co_varnames[-1]
    for own in vars(sys.modules[name]):
        if not own.startswith("__"):
            yield None, f"{name}.{own}"


def functions(name):
    """The functions that are not left before they end, by name: neither generators nor coroutines."""
    spec = importlib.util.find_spec(name)
    for code, function in codes(spec.loader.get_code(name), name):
        if "<" not in function and code.co_flags & 0x1 and not code.co_flags & (0x20 | 0x80 | 0x200):
            yield function


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.told = {}

    def tell(self, test, outcome):
        self.told.setdefault(str(test), []).append(outcome)

    def addSuccess(self, test):
        self.tell(test, "ok")

    def addSkip(self, test, reason):
        self.tell(test, "skipped")

    def addFailure(self, test, error):
        self.tell(test, f"failed: {error[1]}")

    def addError(self, test, error):
        self.tell(test, f"error: {error[1]!r}")

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.tell(test, f"failed: {error[1]}")

    def addExpectedFailure(self, test, error):
        self.tell(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.tell(test, "unexpected success")


def main(test_module, *others):
    try:
        module = importlib.import_module(f"test.{test_module}")
    except ModuleNotFoundError as missing:
        tell("ready")
        tell({"missing": missing.name})
        return
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    names = (f"test.{test_module}", *others)
    found = {
        "places": [place for name in names for place in places(name)],
        "variables": [variable for name in names for variable in variables(name)],
        "functions": [function for name in names for function in functions(name)],
    }
    tell("ready")
    tell(found)
    sys.__stdin__.readline()
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    outcomes = Outcomes()
    with contextlib.suppress(SystemExit):
        suite.run(outcomes)
    tell(outcomes.told)
    sys.__stdin__.readline()


if __name__ == "__main__":
    import importlib.util

    main(*sys.argv[1:])
