"""Starts the program that its argument names, as launchers do."""

import subprocess
import sys

sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))
