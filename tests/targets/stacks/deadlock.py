"""Two threads, two locks, the wrong order. Main waits for them."""

import threading

one, two = threading.Lock(), threading.Lock()
both = threading.Barrier(3)


def first():
    with one:
        both.wait()
        with two:  # @first
            pass


def second():
    with two:
        both.wait()
        with one:  # @second
            pass


threads = [threading.Thread(target=target, daemon=True) for target in (first, second)]
for thread in threads:
    thread.start()
both.wait()
print("ready", flush=True)
threads[0].join()  # @main
