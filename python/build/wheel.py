"""Builds the wheel: maturin's, plus the native commands and the start-up hook, which maturin alone would leave out.

``pip install .`` builds for release; ``-C profile=quick`` is what the tests use. An editable install is always quick.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).parent.parent.parent
# Named in pyproject.toml: what lies here is installed beside the package.
DATA = ROOT / "target" / "wheel"
HOOK = ROOT / "python" / "probing_start.pth"
# The second is started by the first.
COMMANDS = ("probing", "probing-engine")

Settings = Mapping[str, Any]

# maturin looks for it even when it is asked for the metadata only.
DATA.mkdir(parents=True, exist_ok=True)


def build_wheel(directory: str, settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    """Called by pip to build the wheel into ``directory``."""
    profile = (settings or {}).get("profile", "release")
    with _data(profile):
        return maturin.build_wheel(directory, {"build-args": [*_of_probe(profile), "--strip"]}, metadata_directory)


def build_editable(directory: str, settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    """Called by ``pip install -e``: the package stays in the checkout."""
    profile = (settings or {}).get("profile", "quick")
    with _data(profile):
        return maturin.build_editable(directory, {"build-args": _of_probe(profile)}, metadata_directory)


def _of_probe(profile: str) -> list[str]:
    """What the probe is built with, beside commands of this profile."""
    return ["--profile", f"probe-{profile}"]


@contextmanager
def _data(profile: str) -> Iterator[None]:
    """The data folder, filled for this build; another build of this checkout waits for its turn."""
    with (DATA.parent / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _collect_data(profile)
        yield


def _collect_data(profile: str) -> None:
    subprocess.run(
        ["cargo", "build", "--locked", "--profile", profile, "--package", "probing-cli"], cwd=ROOT, check=True
    )
    shutil.rmtree(DATA, ignore_errors=True)
    scripts, purelib = DATA / "scripts", DATA / "purelib"
    scripts.mkdir(parents=True)
    purelib.mkdir()
    for name in COMMANDS:
        command = scripts / name
        shutil.copy2(_target_folder() / profile / name, command)
        if profile != "release":
            # The release profile has no debug information to take out.
            subprocess.run(["strip", "--strip-debug", os.fspath(command)], check=False)
    shutil.copy2(HOOK, purelib / HOOK.name)


def _target_folder() -> Path:
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=ROOT, check=True, capture_output=True
    )
    return Path(json.loads(metadata.stdout)["target_directory"])
