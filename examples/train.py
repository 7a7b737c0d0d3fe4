"""A small training loop that never ends, which the demo and the README debug.

It needs nothing but Python. After a while its loss turns NaN, as losses do.
"""

import math
import random
import time

learning_rate = 0.1
weights = [random.uniform(-1, 1) for _ in range(4)]
loss = math.inf
step = 0


def batch():
    """Eight points of a line with a little noise; one of them is broken after step 200."""
    points = []
    for index in range(8):
        inputs = [random.uniform(-1, 1) for _ in weights]
        target = sum(inputs) + random.gauss(0, 0.01)
        if step > 200 and index == 3:
            target = math.nan
        points.append((inputs, target))
    return points


def train_step(points):
    """One step of gradient descent; returns the loss."""
    total = 0.0
    for inputs, target in points:
        error = sum(w * x for w, x in zip(weights, inputs, strict=True)) - target
        total += error * error
        for i, x in enumerate(inputs):
            weights[i] -= learning_rate * error * x / len(points)
    return total / len(points)


if __name__ == "__main__":
    while True:
        step += 1
        loss = train_step(batch())
        time.sleep(0.01)
