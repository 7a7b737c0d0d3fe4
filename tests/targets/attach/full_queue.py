"""Main spins in C without the GIL until a line comes, and no more pending calls fit into its queue: argv = library."""

import ctypes
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])


def fill():
    while not library.is_spinning():  # on its way there main would empty the queue
        time.sleep(0.001)
    while ctypes.pythonapi.Py_AddPendingCall(library.nothing, None) == 0:
        pass
    print("ready", flush=True)


threading.Thread(target=fill).start()
library.spin_until_input()
print("back", flush=True)
while True:
    time.sleep(3600)
