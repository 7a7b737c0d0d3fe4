"""Main never leaves the bytecode loop."""

print("ready", flush=True)
while True:
    pass
