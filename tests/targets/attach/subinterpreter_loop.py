"""Main never leaves the bytecode loop of a second interpreter."""

try:
    from _interpreters import create, exec  # 3.13
except ImportError:
    from _xxsubinterpreters import create
    from _xxsubinterpreters import run_string as exec

second = create()
exec(second, "print('ready', flush=True)\nwhile True: pass")
