"""Follows a stream."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

from ._http import Caller, lower
from ._types import MAX_SEQ, Batch, Gap, Position, parse_batch
from .errors import ConnectionFailed, Refused, StreamReset, WeirError, refusal, transient

MAX_PAUSE = 30.0
MAX_LINE = 64 << 20  # a batch of 8 MiB is at most 11 MiB of base64; more than this is not from Weir


class Subscription:
    """Yields every batch from its starting point on, each once and in order.

    It reconnects when the connection breaks or the service restarts, and continues after the last batch
    that was yielded. Evicted batches are yielded as one batch with a ``gap``. The loop ends when the
    stream is deleted or expires, when it is closed and read to its end, or when :meth:`close` is
    called. It raises :class:`StreamReset` if the stream was deleted and created again, and
    :class:`Refused` if a retry cannot help, for example because the key was revoked.

    It connects when a loop starts. A second loop continues where the first one stopped.
    """

    def __init__(
        self,
        caller: Caller,
        path: str,
        start: str = "head",
        after: Union[int, Position, None] = None,
        *,
        silence: float = 45.0,
        give_up: Optional[float] = None,
        on_open: Optional[Callable[[], None]] = None,
        on_retry: Optional[Callable[[WeirError, float], None]] = None,
    ) -> None:
        if start not in ("head", "oldest"):
            raise ValueError('start is "head" or "oldest"; use after= to continue behind a sequence number')
        self._caller, self._path, self._start = caller, path, start
        self._silence, self._give_up = silence, give_up
        self._on_open, self._on_retry = on_open, on_retry
        self._seq: Optional[int] = None
        self._created = ""
        if isinstance(after, tuple):
            self._seq, self._created = after
        elif after is not None:
            self._seq = after
        if self._seq is not None and not 0 <= self._seq <= MAX_SEQ:
            raise ValueError(f"{self._seq} is not a sequence number")
        self._retry = 1.0  # seconds that the service asks a client to wait before it reconnects
        self._failures = 0
        self._renewed = False  # whether the key was renewed since the last connection that the service accepted
        self._ended = False
        #: Why the service ended the subscription: "stream_deleted", "expired" or "stream_closed". None before that.
        self.end_reason: Optional[str] = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._socket: Optional[socket.socket] = None  # http.client forgets the socket after "Connection: close"

    @property
    def position(self) -> Optional[Position]:
        """The position of the subscription. None until the service has sent the position at which it starts."""
        return None if self._seq is None else Position(self._seq, self._created)

    def close(self) -> None:
        """Ends the subscription. Another thread may call it while a loop waits for the next batch."""
        self._closed.set()
        with self._lock:
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the connection has ended by itself

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def events(self) -> Iterator[Any]:
        """Yields the events of a json stream, one by one. Gaps are skipped."""
        for batch in self:
            yield from batch.events

    def __iter__(self) -> Iterator[Batch]:
        unanswered = time.monotonic()  # since when the service has not answered
        while not (self._ended or self._closed.is_set()):
            try:
                for batch in self._follow():
                    unanswered = time.monotonic()
                    if batch is not None:
                        yield batch
            except WeirError as error:
                if self._closed.is_set():
                    return
                pause = self._pause(error)
                late = self._give_up is not None and time.monotonic() + pause - unanswered >= self._give_up
                if not transient(error) or late:
                    raise
                if self._on_retry:
                    self._on_retry(error, pause)
                self._closed.wait(pause)

    def _pause(self, error: WeirError) -> float:
        """How long to wait before reconnecting.

        It is what the service asked for, doubled after each further failure. A random part is added,
        because the service asks all subscribers for the same time.
        """
        asked = error.retry_after if isinstance(error, Refused) else 0.0
        doubled = min(max(self._retry, 0.05) * 2 ** min(self._failures, 10), MAX_PAUSE)
        self._failures += 1
        return (asked or doubled) * (1 + random.random() / 2)

    def _follow(self) -> Iterator[Optional[Batch]]:
        """Connects once and yields the batches of that connection, and None for each heartbeat."""
        endpoint = self._caller.endpoint
        key = endpoint.keys.get()
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
        connection.sock = endpoint.connect()
        response: Optional[http.client.HTTPResponse] = None
        try:
            with self._lock:
                self._socket = connection.sock
            if self._closed.is_set():
                return
            connection.sock.settimeout(self._silence)
            try:
                path, fields = self._request()
                connection.request("GET", path, headers=endpoint.headers(key, fields))
                response = connection.getresponse()
                headers = lower(dict(response.getheaders()))
                if response.status != 200:
                    error = refusal(response.status, headers, response.read())
                    if isinstance(error, Refused) and error.status == 401 and not self._renewed and endpoint.keys.renew(key):
                        self._renewed = True
                        return
                    raise error
                if headers.get("content-type", "").partition(";")[0] != "text/event-stream":
                    raise ConnectionFailed("the response is not from Weir: it is not an event stream")
                self._compare(headers.get("x-svc-stream-created", ""))
                self._renewed = False
                if self._on_open:
                    self._on_open()
                yield None
                yield from self._frames(response)
            except (OSError, http.client.HTTPException) as error:
                raise ConnectionFailed(f"the connection broke: {error or type(error).__name__}") from error
        finally:
            with self._lock:
                self._socket = None
            connection.close()
            if response is not None:  # after "Connection: close" the response holds the socket open
                response.close()

    def _request(self) -> Tuple[str, Any]:
        fields = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        path = self._caller.endpoint.base + self._path
        if self._seq is not None:
            return path, dict(fields, **{"Last-Event-ID": str(self._seq)})
        return path + ("?cursor=0" if self._start == "oldest" else "?cursor=head"), fields

    def _compare(self, created: str) -> None:
        """Raises StreamReset if the stream was deleted and created again under the same id."""
        if self._created and created and created != self._created:
            raise StreamReset(
                f"the stream was created again at {created}; the known one was created at {self._created}",
                self._created,
                created,
            )
        self._created = created or self._created

    def _frames(self, response: http.client.HTTPResponse) -> Iterator[Optional[Batch]]:
        name, data, position = "", [], None  # type: Tuple[str, List[bytes], Optional[str]]
        first = True
        opened = time.monotonic()
        while True:
            line = response.readline(MAX_LINE)
            if not line.endswith(b"\n"):
                raise ConnectionFailed("the service closed the connection")
            if time.monotonic() - opened > MAX_PAUSE:
                self._failures = 0  # the connection is stable, even if nothing is published
            line = line.rstrip(b"\r\n")
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if field == b"event":
                name = value.decode()
            elif field == b"data":
                data.append(value)
            elif field == b"id":
                position = value.decode()
            elif field == b"retry" and value.isdigit():
                self._retry = int(value) / 1000
            elif not line:
                if first:
                    first = False
                    self._stand(position)
                if data:
                    self._failures = 0
                    batch = self._read(name, b"\n".join(data))
                    if self._ended:
                        return
                    if batch is not None and (self._seq is None or batch.seq > self._seq):
                        self._seq = batch.seq
                        yield batch
                name, data = "", []
            else:
                yield None  # a heartbeat
            if self._closed.is_set():
                return

    def _stand(self, position: Optional[str]) -> None:
        """Takes the position from the first frame.

        If the connection breaks before the first batch, the subscription resumes there. If there is no
        position, nothing was ever stored, so the subscription continues with the oldest batch.
        """
        if self._seq is not None:
            return
        if position is None:
            self._start = "oldest"
        elif position.isdigit() and self._start == "head":
            self._seq = int(position)

    def _read(self, name: str, data: bytes) -> Optional[Batch]:
        if name == "batch":
            return parse_batch(data)
        if name == "end":
            self._ended = True
            self.end_reason = json.loads(data).get("reason")
        elif name == "gap":
            gap = json.loads(data)
            return Batch(seq=gap["to"], gap=Gap(gap["from"], gap["to"], gap["reason"]))
        return None  # an event that this client does not know
