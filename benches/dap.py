"""The Debug Adapter Protocol, as far as it takes to have debugpy evaluate something, or stop at a line.

`dap.py PORT CODE` is what stands beside a command: it connects, evaluates, prints what came of it, and leaves.
"""

import json
import socket
import sys
import time
from typing import Any

from clients import PATIENCE_SECONDS, NoAnswer


class DapClient:
    """One client of debugpy's adapter. Like an editor, it sends each message at one go."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._answer(self._send("initialize", adapterID="bench", pathFormat="path"))
        attached = self._send("attach", justMyCode=False)
        while not any(event["event"] == "initialized" for event in self._events):
            self._read()
        self._answer(self._send("configurationDone", restart=False))
        self._answer(attached)

    @classmethod
    def waited_for(cls, port: int) -> "DapClient":
        """One of an adapter that is about to listen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return cls(port)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def break_at(self, path: str, line: int, *, condition: str | None = None, log: str | None = None) -> None:
        """One breakpoint in this file, and no other."""
        asked = {"line": line, "condition": condition, "logMessage": log}
        asked = {name: value for name, value in asked.items() if value is not None}
        self._answer(self._send("setBreakpoints", source={"path": path}, breakpoints=[asked]))

    def evaluate(self, code: str) -> str:
        answer = self._answer(self._send("evaluate", expression=code, context="repl"))
        return str(answer["result"])

    def printed(self, length: int) -> str:
        """What evaluated code printed, when so much of it has come. (The program prints it, too.)"""
        pieces: list[str] = []
        while True:
            outputs = [event["body"] for event in self._events if event["event"] == "output"]
            pieces += [output["output"] for output in outputs if output["category"] == "stdout"]
            self._events.clear()
            if sum(map(len, pieces)) >= length:
                return "".join(pieces)
            self._read()

    def close(self) -> None:
        self._answer(self._send("disconnect", terminateDebuggee=False))
        self._stream.close()
        self._socket.close()

    def _send(self, command: str, **arguments: object) -> int:
        self._number += 1
        request = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(request).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return self._number

    def _answer(self, number: int) -> dict[str, Any]:
        """The answer to a request."""
        while number not in self._answers:
            self._read()
        answer = self._answers.pop(number)
        if not answer["success"]:
            raise NoAnswer(answer["message"])
        return dict(answer.get("body") or {})

    def _read(self) -> None:
        """The next message: an answer, or an event."""
        length = 0
        while line := self._stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not length:
            raise NoAnswer("the adapter hung up")
        message: dict[str, Any] = json.loads(self._stream.read(length))
        if message["type"] == "event":
            self._events.append(message)
        else:
            self._answers[message["request_seq"]] = message


def main(port: str, code: str, length: str = "0") -> None:
    """Evaluates the code; prints so many characters of what it printed, and its value."""
    client = DapClient(int(port))
    value = client.evaluate(code)
    print(client.printed(int(length)) if int(length) else value, end="" if int(length) else "\n")
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
