"""Replaces and changes its locals all the time; what can be in each is known from its name."""

import sys
import time

pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0


def spin():
    growing, table = [], {}
    number = 2_000_000
    while True:
        number += 2
        text = f"<{number}>"
        wide = f"名{number}"
        half = number / 4
        huge = number << 100
        pair = [number, -number]
        record = (text, {"n": number})
        growing.append(number)
        table[number] = text
        if len(growing) > 20:
            growing = []
            table.clear()
        if pause:
            time.sleep(pause)


print("ready", flush=True)
spin()
