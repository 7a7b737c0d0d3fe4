"""The wheel as pip installs it: what is in it, that it works from where it lies, that nothing is left of it."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel that this environment was made with."""
    source = distribution("probing-debugger").read_text("direct_url.json")
    assert source, "probing was not installed from a file"
    return Path(unquote(urlparse(json.loads(source)["url"]).path))


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


@pytest.fixture
def clean(tmp_path: Path) -> dict[str, str]:
    """The environment without our variables, with a runtime folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PROBING", "PYTHON"))}
    return {**kept, "PROBING_DIR": str(tmp_path / "run")}


def pip(venv: Path, *arguments: str | Path) -> None:
    subprocess.run([venv / "bin" / "python", "-m", "pip", "--quiet", *arguments], check=True)


def test_an_installed_wheel_works_and_leaves_nothing_when_it_goes(
    wheel: Path, venv: Path, clean: dict[str, str]
) -> None:
    before = {path for path in venv.rglob("*") if "__pycache__" not in path.parts}
    pip(venv, "install", "--no-deps", "--no-compile", wheel)
    command = venv / "bin" / "probing"
    assert command.read_bytes()[:4] == b"\x7fELF", "the command is not the native one"

    def run(*words: str | Path, **variables: str) -> str:
        ran = subprocess.run(words, env={**clean, **variables}, check=True, capture_output=True, text=True)
        assert ran.stderr == ""
        return ran.stdout

    assert run(command, "--version").startswith("probing ")
    look = "import sys; print('probing._probe' in sys.modules)"
    python = venv / "bin" / "python"
    assert run(python, "-c", look) == "False\n"
    assert run(python, "-c", look, PROBING="0") == "False\n"
    assert run(python, "-c", look, PROBING="1") == "True\n"
    # The command finds the package beside itself and brings it to an interpreter that does not have it.
    bare = sys._base_executable
    assert run(command, "run", "--", bare, "-c", look) == "True\n"

    pip(venv, "uninstall", "--yes", "probing-debugger")
    after = {path for path in venv.rglob("*") if "__pycache__" not in path.parts}
    assert after == before


def test_the_hook_is_one_line_that_looks_at_two_variables() -> None:
    (hook,) = (file for file in distribution("probing-debugger").files or [] if file.suffix == ".pth")
    (line,) = hook.read_text().splitlines()
    assert line.startswith("import os; ")
    assert "PROBING" in line
    assert "PROBING_PORT" in line


def test_importing_the_package_does_nothing(clean: dict[str, str]) -> None:
    code = "import sys, threading, probing; print('probing._probe' in sys.modules, threading.active_count())"
    ran = subprocess.run([sys.executable, "-c", code], env=clean, check=True, capture_output=True, text=True)
    assert ran.stdout == "False 1\n"


def test_public_names_are_few_and_typed() -> None:
    import probing

    functions = [name for name in probing.__all__ if name.islower()]
    assert functions == [
        "__version__",
        "breakpoint",
        "connect",
        "debugger",
        "event",
        "hook_tensor",
        "probe",
        "record",
        "span",
        "start",
        "step",
        "stop",
        "table",
        "torch",
        "trace",
    ]
    assert probing.__version__ == distribution("probing-debugger").version
    assert (Path(probing.__file__).parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = probing.nothing


def test_a_probe_that_cannot_listen_says_why_and_what_to_do(tmp_path: Path, clean: dict[str, str]) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    code = "import probing\ntry: probing.start()\nexcept OSError as error: print(error)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "PROBING_DIR": str(folder)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == (f"private folder is open to others (mode 755): {folder}\nhint: run: chmod 700 {folder}\n")
    assert ran.stderr == ""
