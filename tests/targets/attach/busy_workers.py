"""Main waits for workers that never stop."""

import threading


def work():
    while True:
        pass


workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
print("ready", flush=True)
for worker in workers:
    worker.join()
