"""Main sleeps under a seccomp filter that answers EPERM to some system calls, or kills: argv = which."""

import ctypes
import struct
import sys
import time

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, IS, HAS, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
NUMBER, THIRD_ARGUMENT = 0, 32
MMAP, MPROTECT, PTRACE, SIGPENDING, PROT_EXEC = 9, 10, 101, 127, 4

FILTERS = {
    # What a container forbids.
    "ptrace": [(LOAD, 0, 0, NUMBER), (IS, 0, 1, PTRACE), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)],
    "mprotect": [(LOAD, 0, 0, NUMBER), (IS, 0, 1, MPROTECT), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)],
    "deadly": [(LOAD, 0, 0, NUMBER), (IS, 0, 1, SIGPENDING), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)],
    "new code": [
        (LOAD, 0, 0, NUMBER),
        (IS, 0, 3, MMAP),
        (LOAD, 0, 0, THIRD_ARGUMENT),
        (HAS, 0, 1, PROT_EXEC),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    ],
}

instructions = FILTERS[sys.argv[1]]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
program = ctypes.create_string_buffer(struct.pack("HL", len(instructions), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
answers = [
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    libc.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0),
]
print("ready", answers, sep="\n", flush=True)
while True:
    time.sleep(3600)
