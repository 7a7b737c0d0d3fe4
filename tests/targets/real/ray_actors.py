"""Two actors of Ray, each a process of its own, and the driver that has them work."""

import os
import sys

import ray
import rounds


@ray.remote
class Counter:
    def __init__(self, number):
        self.number = number
        self.calls = 0

    def work(self, upto):
        total = sum(number * self.number for number in range(upto))
        self.calls += 1  # @step
        return total

    def pid(self):
        return os.getpid()


if __name__ == "__main__":
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 1024 * 1024,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=sys.argv[1],
    )
    actors = [Counter.remote(number) for number in (2, 3)]
    pids = ray.get([actor.pid.remote() for actor in actors])
    while True:
        totals = ray.get([actor.work.remote(1000) for actor in actors])
        if rounds.add(totals):
            for number, pid in enumerate(pids):
                rounds.say("ready", number, pid)
        if rounds.is_over():
            break
    ray.shutdown()
    rounds.tell()
