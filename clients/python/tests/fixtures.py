"""Test fixtures: a real server, and scripted servers that misbehave."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from typing import Any, Callable, List, Optional

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))

import weir  # noqa: E402

KEY = "svc_live_a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0"
PATIENCE = 120.0  # seconds that a test waits at most; so long that it ends only if something is broken


def binary() -> str:
    found = os.environ.get("WEIR_BINARY")
    if not found:
        found = str(ROOT / "bin" / "weir-clients")
        if not os.environ.get("WEIR_BUILT"):
            subprocess.run(["go", "build", "-o", found, "./cmd/weir"], cwd=ROOT, check=True)
            os.environ["WEIR_BUILT"] = "1"
    return found


class TestCase(unittest.TestCase):
    """A test that fails if it leaves a connection, a file or a process open."""

    def setUp(self) -> None:
        leaks: List[str] = []
        report = sys.unraisablehook

        # Python raises a ResourceWarning while it deletes an object. An error raised there does not reach the test,
        # so this hook collects it.
        def collect(error: Any) -> None:
            if isinstance(error.exc_value, ResourceWarning):
                leaks.append(str(error.exc_value))
            else:
                report(error)

        caught = warnings.catch_warnings()
        caught.__enter__()
        warnings.simplefilter("error", ResourceWarning)
        sys.unraisablehook = collect

        def check() -> None:
            gc.collect()
            sys.unraisablehook = report
            caught.__exit__(None, None, None)
            self.assertEqual(leaks, [])

        self.addCleanup(check)  # the first cleanup to be added runs last


def background(test: unittest.TestCase, work: Callable[[], Any]) -> None:
    """Runs ``work`` in a thread. The cleanup waits for the thread before it closes clients and servers made earlier."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    test.addCleanup(thread.join, PATIENCE)


class Server:
    """A running ``weir serve`` with its own data directory. After the test, it is stopped, and the directory is removed."""

    def __init__(self, test: unittest.TestCase, *flags: str, disk: Optional["Disk"] = None) -> None:
        self._own = tempfile.mkdtemp(prefix="weir-python-")
        self.data = disk.data if disk is not None else os.path.join(self._own, "data")
        self._config = pathlib.Path(self._own, "weir.toml")
        self._config.write_text("")
        self.flags = ("--config", str(self._config), *flags)
        self.process: Optional[subprocess.Popen[str]] = None
        self._starting = threading.Lock()  # held during a start, because SIGHUP would end a server that does not handle signals yet
        test.addCleanup(self.remove)
        self.serve("127.0.0.1:0")

    def serve(self, address: str) -> None:
        with self._starting:
            self._serve(address)

    def _serve(self, address: str) -> None:
        self.process = subprocess.Popen(
            [
                *(binary(), "serve", "--data", self.data, "--http", address, "--https", "off", "--metrics", "off"),
                *("--log-format", "json", "--demo=false", "--bootstrap-keys", "a:" + KEY, *self.flags),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        log = []
        for line in self.process.stderr:
            log.append(line)
            if '"msg":"ready"' in line:
                break
        else:
            raise RuntimeError("weir serve did not start:\n" + "".join(log))
        self.url: str = json.loads(line)["http"]
        self.address = self.url.partition("//")[2]
        self._log = threading.Thread(target=self.process.stderr.read, daemon=True)  # ends with the process
        self._log.start()

    def again(self) -> None:
        """Starts the server again at the same address."""
        self.serve(self.address)

    def kill(self, how: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait()
        self._log.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill(signal.SIGTERM)
        shutil.rmtree(self._own, ignore_errors=True)

    def configure(self, text: str) -> None:
        """Makes the server read a configuration file with this text."""
        with self._starting:
            self._config.write_text(text)
            assert self.process is not None
            self.process.send_signal(signal.SIGHUP)

    def run(self, *args: str) -> str:
        """Runs an operator command, and returns its output."""
        command = [binary(), *args, "--data", self.data]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def client(self, test: unittest.TestCase, **options: Any) -> weir.Client:
        client = weir.Client(self.url, options.pop("key", KEY), **options)
        test.addCleanup(client.close)
        return client


class FaultProcess:
    """The process that simulates a bad network and a small disk for the tests of all clients."""

    def __init__(self) -> None:
        program = os.environ.get("WEIR_FAULTPROXY")
        if not program:
            program = str(ROOT / "bin" / "weir-faultproxy")
            subprocess.run(["go", "build", "-o", program, "./internal/faultnet/faultproxy"], cwd=ROOT, check=True)
            os.environ["WEIR_FAULTPROXY"] = program
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, **command: Any) -> Any:
        """Sends a command to the process, and returns its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def end(self) -> None:
        self._process.communicate()


class Faults(FaultProcess):
    """A fault proxy in front of a server."""

    def __init__(self, test: unittest.TestCase, backend: str) -> None:
        super().__init__()
        test.addCleanup(self.end)
        self.url = "http://" + self.do(start={"Backend": backend, "HTTP": True})["address"]


class Disk(FaultProcess):
    """A small disk that can be filled up, so that a server with its data on it refuses batches.

    ``mounted`` is false if this process may not mount a disk.
    """

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__()
        at = tempfile.mkdtemp(prefix="weir-python-")
        test.addCleanup(os.rmdir, at)
        test.addCleanup(self.end)  # unmounts the disk
        self.mounted = self.do(disk=at).get("mounted", False)
        self.data = os.path.join(at, "data")


class Scripted:
    """A server whose answers come from the test: it calls ``answer`` with the bytes of each request."""

    def __init__(self, test: unittest.TestCase, answer: Callable[[bytes], Optional[bytes]]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self.requests: List[bytes] = []
        self._test = test
        self._answer = answer
        self._open: List[socket.socket] = []
        test.addCleanup(self._close)
        threading.Thread(target=self._accept, daemon=True).start()

    def client(self, key: Any = None, **options: Any) -> weir.Client:
        client = weir.Client(self.url, key, **options)
        self._test.addCleanup(client.close)
        return client

    def _close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionResetError), connection, connection.makefile("rb") as reader:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = reader.readline()
                    if not line:
                        return
                    head += line
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                request = head + reader.read(length)
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:  # hang up without a response
                    return
                try:
                    connection.sendall(answer)
                except OSError:
                    return
                if b"\r\nConnection: close\r\n" in answer:
                    return


def response(status: int, body: Any, **fields: str) -> bytes:
    """Builds a response. ``body`` is bytes, or a value that is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def refused(status: int, code: str, message: str = "no", **fields: str) -> bytes:
    """Builds an error of the service."""
    return response(status, {"error": {"type": "x", "code": code, "message": message}}, **fields)
