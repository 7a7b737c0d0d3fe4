"""What recording a training costs: a step with it and without, in one process, beside hooks and the older probing."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clients import NoAnswer
from environments import ROOT
from table import Budget, Row

PROGRAM = ROOT / "benches/torch_target.py"
MODELS = ("mlp", "transformer")


@dataclass(frozen=True)
class TorchBench:
    # Interpreters that have torch, with ours and with the older one.
    ours: Path
    older: Path | None
    environ: Mapping[str, str]


def steps(bench: TorchBench) -> list[Row]:
    ours = _taken(bench.ours, "ours", bench.environ)
    older = _taken(bench.older, "older", {**bench.environ, "PROBING": "1"}) if bench.older else {}
    rows = []
    for model in MODELS:
        times = ours[model]
        plain = times["plain"]
        ratios: dict[str, float | str] = {way: times[way] / plain for way in ("ours", "hooks")}
        if model in older:
            ratios["older"] = older[model]["older"] / older[model]["plain"]
        how = f"CPU of a step, {plain / 1000:.0f} µs; ours {times['ours'] / 1000 - plain / 1000:+.0f} µs"
        rows.append(Row(f"{model}: every module recorded", "x", ratios, how, Budget("≤ 1.03", 1.03)))
        for way, figure in (
            ("told", "… of that, being told, by C functions that do nothing"),
            ("tensors", "… statistics of all parameters and gradients, each step"),
            ("nan", "… every output, gradient and parameter watched for NaN"),
        ):
            rows.append(Row(figure, "x", {"ours": times[way] / plain}, "the same", compares=False))
    compiled = ours["compiled"]
    how = f"of fullgraph=True, {compiled['graphs']:.0f} graph"
    rows.append(Row("torch.compile: graph breaks", "", {"ours": compiled["breaks"]}, how, Budget("0", 0), False))
    return rows


def _taken(python: Path, which: str, environ: Mapping[str, str]) -> dict[str, dict[str, float]]:
    ran = subprocess.run([python, "-B", PROGRAM, which], env=environ, capture_output=True, text=True)
    if ran.returncode:
        raise NoAnswer(f"the training with {which} has failed: {ran.stderr}")
    found: dict[str, dict[str, float]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def torch_figures(bench: TorchBench) -> Sequence[tuple[str, Callable[[], list[Row]]]]:
    return (("steps of a training", partial(steps, bench)),)
