"""Main is inside an import, and stays there."""

import os
import sys
import tempfile

MODULE = """
import json, time
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""

with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "slow_module.py"), "w") as file:
        file.write(MODULE)
    sys.path.insert(0, folder)
    import slow_module  # noqa: F401
