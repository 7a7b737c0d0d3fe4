"""Calls small functions as fast as it can; who calls whom is in their names: `a_b` is called by `a`."""


def loop_a_b(x):
    return x


def loop_a(x):
    return loop_a_b(x)


def loop_c_d(x):
    return x


def loop_c(x):
    return loop_c_d(x)


def loop_e(x):
    yield x


def loop_f(n):
    return n if n < 2 else loop_f(n - 1) + loop_f(n - 2)


def loop():
    while True:
        loop_a(1)
        loop_c(1)
        for _ in loop_e(1):
            pass
        loop_f(5)


print("ready", flush=True)
loop()
