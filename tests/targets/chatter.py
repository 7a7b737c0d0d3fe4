"""Another thread prints without pause, on both streams, until standard input ends."""

import logging
import sys
import threading

logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)
over = threading.Event()


def chatter():
    number = 0
    while not over.is_set():
        print("chatter", number, flush=True)
        number += 1
        over.wait(0.001)


def helper(text):
    print("helper:", text)
    logging.info("logged: %s", text)


thread = threading.Thread(target=chatter)
print("ready", flush=True)
thread.start()
sys.stdin.read()
over.set()
thread.join()
