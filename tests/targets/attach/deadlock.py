"""Two threads, each waiting for the other's lock."""

import threading

locks = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def take(first: threading.Lock, second: threading.Lock) -> None:
    with first:
        both.wait()
        print("ready" if first is locks[0] else "second", flush=True)
        second.acquire()


threading.Thread(target=take, args=locks[::-1]).start()
take(*locks)
