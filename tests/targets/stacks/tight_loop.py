"""Spins in one function and says where it is."""


def spin():
    total = 0  # @first
    while True:
        total += 1
        if total > 1000:
            total = 0  # @last


print("ready", flush=True)
spin()  # @here
