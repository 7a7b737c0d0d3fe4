"""What recording adds to an operation of a process group, and whether all of DDP's are seen: as JSON.

    collectives_target.py call      dist.all_reduce, which returns when the operation is over
    collectives_target.py ddp       as DDP asks for its gradients, from C++: torch has to be asked whether it is over
    collectives_target.py backlog   the same beside as many that are not over as are ever waited for

An operation of gloo's takes ten times what is looked for, and that varies: so it is made many times in short turns,
with and without, one after the other, and what counts is the median of the differences within pairs.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import repeat

import torch
import torch.distributed as dist

from probing import _probe

PAIRS = 301
OPERATIONS = 50
# Not counted: the interpreter adapts its code to what is switched.
UNCOUNTED = 16
# More than are waited for at once.
BACKLOG = 1100
STEPS = 10


class Turn:
    """Microseconds of one operation: in the thread that asks for it, and in all others."""

    def __init__(self, operate: Callable[[], object]) -> None:
        for _ in repeat(None, UNCOUNTED):
            operate()
        process, thread = time.process_time_ns(), time.thread_time_ns()
        for _ in repeat(None, OPERATIONS):
            operate()
        own = time.thread_time_ns() - thread
        self.own = own / OPERATIONS / 1e3
        self.others = (time.process_time_ns() - process - own) / OPERATIONS / 1e3


def measured(operate: Callable[[], object], first: int) -> dict[str, list[float]]:
    """Quartiles, each: what it takes, what is added to it, and what is added in other threads."""
    plain, added, others = [], [], []
    for pair in range(PAIRS):
        turns = {}
        for is_on in (pair % 2 == 0, pair % 2 == 1):
            if is_on:
                _probe.trace_begin("collective_ops")
                for _ in repeat(None, first):
                    operate()
            turns[is_on] = Turn(operate)
            if is_on:
                _probe.trace_end("collective_ops")
        plain.append(turns[False].own)
        added.append(turns[True].own - turns[False].own)
        others.append(turns[True].others - turns[False].others)
    return {
        "plain": statistics.quantiles(plain, n=4),
        "added": statistics.quantiles(added, n=4),
        "others": statistics.quantiles(others, n=4),
    }


def trained() -> dict[str, int]:
    """The numbers of DDP's operations while they are recorded."""
    group = dist.group.WORLD
    _probe.trace_begin("collective_ops")
    before = group._get_sequence_number_for_group()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(STEPS):
        model(torch.ones(2, 8)).sum().backward()
    made = group._get_sequence_number_for_group() - before
    _probe.trace_end("collective_ops")
    return {"before": before, "made": made}


def main(kind: str) -> None:
    # Threads of gloo's do the work. On one processor they and ours take turns: to wake them costs the same each time.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.NamedTemporaryFile() as meeting:
        if kind == "backlog":
            from torch.testing._internal.distributed.fake_pg import FakeStore

            # Its operations do nothing, and never say that they are over.
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        else:
            dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
        tensor = torch.ones(16)
        tensors, group = [tensor], dist.group.WORLD
        told: dict[str, object] = {"pid": os.getpid()}
        operations: dict[str, Callable[[], object]] = {
            "call": lambda: dist.all_reduce(tensor),
            "ddp": lambda: group.allreduce(tensors).wait(),
            "backlog": lambda: group.allreduce(tensors).wait(),
        }
        Turn(operations[kind])
        told.update(measured(operations[kind], BACKLOG if kind == "backlog" else 0))
        if kind == "call":
            # Last: its rows are still there then.
            told.update(trained())
        print(json.dumps(told), flush=True)
        input()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
