"""Eight threads call down chains of their own as fast as they can; `c3_a` of thread 3 alone calls `c3_a_b`."""

import sys
import threading

THREADS = 8
CHAIN = """
def c{n}_a_b_c(x):
    return x

def c{n}_a_b(x):
    return c{n}_a_b_c(x)

def c{n}_a(x):
    return c{n}_a_b(x)

def c{n}_d(x):
    yield x
    yield x

def c{n}_e_f(x):
    return sorted((3, x, 1), key=c{n}_e_f_g)

def c{n}_e_f_g(x):
    return -x

def c{n}_e(x):
    return [c{n}_e_f(y) for y in (x, x)]

def c{n}():
    while True:
        c{n}_a(1)
        for _ in c{n}_d(1):
            pass
        c{n}_e(2)
"""

# Threads change places often.
sys.setswitchinterval(0.0001)
names: dict = {}
for number in range(THREADS):
    exec(compile(CHAIN.format(n=number), f"chain{number}.py", "exec"), names)
    threading.Thread(target=names[f"c{number}"], name=f"chain-{number}", daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
