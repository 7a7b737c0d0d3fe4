"""Two threads, each waiting for the other's lock."""

import threading

locks = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def take(first, second, say):
    with first:
        both.wait()
        say()
        second.acquire()


threading.Thread(target=take, args=(*locks[::-1], lambda: None)).start()
take(*locks, lambda: print("ready", flush=True))
