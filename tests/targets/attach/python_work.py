"""Main calls functions and makes objects."""


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


print("ready", flush=True)
while True:
    fib(15)
    sorted({str(i): [i] for i in range(200)})
