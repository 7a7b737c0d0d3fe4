"""Works once for every line that comes, so that a test decides when a breakpoint is passed.

A number is summed up, `raise` raises and catches, `end` lets an exception out.
"""

import sys
import threading

rate = 0.5


def price_of(item):
    cost = item * 2  # @price
    return cost


def add_up(count, *more, extra=0):
    found = extra  # @begin
    for item in range(count):
        found += price_of(item)  # @sum
    return found  # @end


def fail(word):
    about = word * 2
    raise ValueError(about)  # @raise


def main():
    for line in sys.stdin:
        word = line.strip()
        if word == "raise":
            try:
                fail(word)
            except ValueError as error:
                print("caught", error, flush=True)
        elif word == "end":
            fail(word)
        elif word.startswith("thread"):
            thread = threading.Thread(target=add_up, args=(2,), name=word)
            thread.start()
            thread.join()
            print("joined", flush=True)
        else:
            print("total", add_up(int(word)), flush=True)


print("ready", flush=True)
main()
