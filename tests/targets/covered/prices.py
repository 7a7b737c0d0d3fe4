"""What the tests of this folder are about. Not all of it is covered."""

RATE = 0.5


def price(count):
    if count < 0:
        raise ValueError(count)
    total = 0.0
    for each in range(count):
        total += each * RATE  # @total
    return rounded(total)


def rounded(value):
    if value > 1000:
        return round(value)
    return value  # @rounded


def prices(counts):
    for count in counts:
        yield price(count)  # @yield
