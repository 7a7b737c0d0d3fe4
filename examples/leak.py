"""A service that keeps every request it has ever answered.

    python examples/leak.py
    probing -t leak.py leak --for 10s

shows `answer` as the place that grows, and `bytes` as the type.
"""

import time

history = []


def answer(number: int) -> bytes:
    body = b"x" * (2000 + number % 7)
    history.append(body)  # The fault: entries are never removed.
    return body


def main() -> None:
    print("serving", flush=True)
    number = 0
    while True:
        for _ in range(10):
            answer(number)
            number += 1
        time.sleep(0.005)
        if number > 200_000:
            raise SystemExit("out of memory: see what `probing leak` had said")


if __name__ == "__main__":
    main()
