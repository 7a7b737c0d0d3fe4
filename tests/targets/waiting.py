"""Main waits in a function of a function, four loaders wait for work, one more thread waits for a lock."""

import queue
import sys
import threading

work = queue.Queue()
lock = threading.Lock()
lock.acquire()


def load():
    work.get()  # @load


def guard():
    with lock:  # @guard
        pass


def epoch():
    wait_for_the_end()  # @epoch


def wait_for_the_end():
    sys.stdin.read()  # @main


threads = [threading.Thread(target=load, name=f"loader-{number}") for number in range(4)]
threads.append(threading.Thread(target=guard, name="guard"))
for thread in threads:
    thread.daemon = True
    thread.start()
print("ready", flush=True)
epoch()
