"""Connections that stay open and evaluate again and again: ours speaks `docs/protocol.md`, the older one HTTP."""

import http.client
import json
import socket
import struct
from pathlib import Path
from typing import Any, Protocol

PATIENCE_SECONDS = 20.0


class NoAnswer(Exception):
    """A peer did not do what it was asked. The outcome is what the table says instead of a figure."""

    def __init__(self, why: str, *, outcome: str = "no answer") -> None:
        super().__init__(why)
        self.outcome = outcome


class Client(Protocol):
    def evaluate(self, code: str) -> str:
        """The `repr` of the expression's value."""
        ...

    def close(self) -> None: ...


class FramedClient:
    """Ours: length-prefixed JSON on the probe's socket."""

    HEADER = struct.Struct("<II")

    def __init__(self, runtime_dir: Path, pid: int) -> None:
        path = next(runtime_dir.glob(f"{pid}.*/probe.sock"), None)
        if path is None:
            raise NoAnswer(f"no probe in the target: {pid}")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SECONDS)
        self._socket.connect(str(path))
        self._stream = self._socket.makefile("rb")
        self._id = 0
        self._message()  # the hello

    def evaluate(self, code: str) -> str:
        message = self.ask("eval", code=code)
        if message["event"] != "evaluated":
            raise NoAnswer(str(message))
        return str(message.get("value"))

    def ask(self, op: str, **parts: object) -> dict[str, Any]:
        """The answer to a request that has one."""
        self._id += 1
        request = json.dumps({"id": self._id, "op": op, **parts}).encode()
        self._socket.sendall(self.HEADER.pack(len(request), 0) + request)
        return self._message()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _message(self) -> dict[str, Any]:
        json_length, payload_length = self.HEADER.unpack(self._read(self.HEADER.size))
        message: dict[str, Any] = json.loads(self._read(json_length))
        self._read(payload_length)
        return message

    def _read(self, length: int) -> bytes:
        read = self._stream.read(length)
        if len(read) != length:
            raise NoAnswer("the probe hung up")
        return read


class HttpClient(http.client.HTTPConnection):
    """The older one's: HTTP on an abstract socket."""

    def __init__(self, pid: int) -> None:
        super().__init__("localhost", timeout=PATIENCE_SECONDS)
        self._address = f"\0probing-{pid}"

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(self._address)

    def evaluate(self, code: str) -> str:
        try:
            self.request("POST", "/apis/pythonext/eval", code.encode())
            answer = json.loads(self.getresponse().read())
        except (http.client.HTTPException, ValueError) as error:
            raise NoAnswer(str(error)) from error
        return str(answer["output"])
