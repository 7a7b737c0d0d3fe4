"""What recording costs each operation of a process group, and whether all are seen: as JSON."""

import json
import os
import tempfile
import time

import torch
import torch.distributed as dist

from probing import _probe

OPERATIONS = 1000
ROUNDS = 9


def round_of(count: int) -> float:
    """Seconds of one operation."""
    tensor = torch.ones(16)
    begun = time.thread_time()
    for _ in range(count):
        dist.all_reduce(tensor)
    return (time.thread_time() - begun) / count


def main() -> None:
    with tempfile.NamedTemporaryFile() as meeting:
        dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
        plain = traced = float("inf")
        round_of(OPERATIONS)
        _probe.trace_begin("collective_ops")
        before = dist.group.WORLD._get_sequence_number_for_group()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        for _ in range(10):
            model(torch.ones(2, 8)).sum().backward()
        made = dist.group.WORLD._get_sequence_number_for_group() - before
        _probe.trace_end("collective_ops")
        for _ in range(ROUNDS):
            plain = min(plain, round_of(OPERATIONS))
            _probe.trace_begin("collective_ops")
            traced = min(traced, round_of(OPERATIONS))
            _probe.trace_end("collective_ops")
        print(
            json.dumps({"pid": os.getpid(), "made": made, "plain": plain, "traced": traced, "before": before}),
            flush=True,
        )
        input()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
