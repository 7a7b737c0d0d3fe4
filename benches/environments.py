"""Virtual environments in the cache folder: one for each peer and a bare one, all on the same Python."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDER = ("probing==0.2.4", "ipykernel")
DEBUGPY = ("debugpy==1.8.22",)
HYPNO = ("hypno==1.1.0",)
MADBG = ("madbg==1.3.2",)
PY_SPY = ("py-spy==0.4.3",)
PYSTACK = ("pystack==1.7.2",)
DUCKDB = ("duckdb==2.0.0",)
# Needs `sys.monitoring`.
DOWHEN = ("dowhen==0.1.0",)
VIZTRACER = ("viztracer==1.1.1",)
# The Python to compare on, if it is there.
PREFERRED = "3.12"


@dataclass(frozen=True)
class OnePython:
    """One of the Pythons on which tools are compared."""

    version: str
    # That of an environment with all that are compared.
    python: Path
    environ: Mapping[str, str]

    @property
    def has_monitoring(self) -> bool:
        return tuple(map(int, self.version.split("."))) >= (3, 12)


def prepare_debuggers() -> dict[str, Path]:
    """For each Python its version, and an interpreter with our wheel and the debuggers that are compared with it."""
    found = {}
    for version, python in _pythons().items():
        folder = _folder(f"debuggers-{version}")
        has_monitoring = tuple(map(int, version.split("."))) >= (3, 12)
        try:
            _make(folder, (*DEBUGPY, *VIZTRACER, *(DOWHEN if has_monitoring else ())), python)
        except subprocess.CalledProcessError:
            print(f"    no debuggers for Python {version} (no network?); going on without it", file=sys.stderr)
            continue
        for wheel in _folder("wheel").glob("*.whl"):
            _quietly(folder / "bin/python", "-m", "pip", "install", "--no-deps", "--force-reinstall", wheel)
        found[version] = folder / "bin/python"
    return found


def prepare_torch(name: str, requirements: tuple[str, ...] | None) -> Path | None:
    """An interpreter that has torch, with something from PyPI or with our wheel; None without torch."""
    found = subprocess.run([ROOT / "scripts/torch-environment", "--find"], capture_output=True, text=True)
    torch = found.stdout.strip()
    if found.returncode or not torch:
        return None
    folder = _folder(name)
    try:
        _make(folder, requirements or (), torch)
    except subprocess.CalledProcessError:
        print("    it cannot be installed (no network?); going on without it", file=sys.stderr)
        return None
    packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
    where = subprocess.run([torch, "-c", packages], check=True, capture_output=True, text=True).stdout
    own = subprocess.run([folder / "bin/python", "-c", packages], check=True, capture_output=True, text=True).stdout
    (Path(own.strip()) / "torch.pth").write_text(where)
    if requirements is None:
        for wheel in _folder("wheel").glob("*.whl"):
            _quietly(folder / "bin/python", "-m", "pip", "install", "--no-deps", "--force-reinstall", wheel)
    return folder / "bin/python"


def prepare_bare() -> Path:
    """An environment with nothing in it; its interpreter."""
    folder = _folder("bare")
    _make(folder, ())
    return folder / "bin/python"


def prepare_ours() -> Path:
    """An environment with the wheel of this checkout, built for release; its folder."""
    folder = _folder("ours")
    _make(folder, ())
    print("==> building our wheel for release (the first time takes a minute or two)", file=sys.stderr, flush=True)
    wheels = _folder("wheel")
    shutil.rmtree(wheels, ignore_errors=True)
    _quietly(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, ".")
    for wheel in wheels.glob("*.whl"):
        _quietly(folder / "bin/python", "-m", "pip", "install", "--no-deps", "--force-reinstall", wheel)
    return folder


def prepare_peer(name: str, requirements: tuple[str, ...]) -> Path | None:
    """An environment with something from PyPI; its folder, or None when it cannot be had."""
    folder = _folder(name)
    try:
        _make(folder, requirements)
    except subprocess.CalledProcessError:
        print("    it cannot be installed (no network?); going on without it", file=sys.stderr)
        return None
    return folder


def pinned(requirements: Sequence[str]) -> str:
    """The version of the first of them."""
    return requirements[0].partition("==")[2]


def _make(folder: Path, requirements: tuple[str, ...], python: str | None = None) -> None:
    """Makes the environment, unless a finished one made from the same is there."""
    python = python or _base_python()
    made_from = f"{python} {' '.join(requirements)}\n"
    mark = folder / "made-from"
    if mark.exists() and mark.read_text() == made_from:
        return
    contents = " and ".join(requirements) or "nothing in it"
    print(f"==> making the environment {folder.name}, with {contents}", file=sys.stderr, flush=True)
    _quietly(python, "-m", "venv", "--clear", folder)
    if requirements:
        _quietly(folder / "bin/python", "-m", "pip", "install", "--retries", "1", *requirements)
    mark.write_text(made_from)


@cache
def _pythons() -> dict[str, str]:
    found = subprocess.run([ROOT / "scripts/pythons"], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in found.splitlines())


def _base_python() -> str:
    pythons = _pythons()
    return pythons.get(PREFERRED) or list(pythons.values())[-1]


def _folder(name: str) -> Path:
    return Path(os.environ["PROBING_CACHE"]) / "peers" / name


def _quietly(*command: str | Path) -> None:
    subprocess.run([ROOT / "scripts/quietly", *command], cwd=ROOT, check=True)
