"""Follows a stream."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple, Union

from ._http import Caller, lower
from ._types import MAX_SEQ, Batch, Gap, Position, parse_batch, parse_json
from .errors import ConnectionFailed, Refused, StreamReset, WeirError, refusal, transient

MAX_PAUSE = 30.0
MAX_LINE = 64 << 20  # a batch of 8 MiB is at most 11 MiB of base64, so a line of more than 64 MiB is not from Weir


class Subscription:
    """Yields every batch from its starting point on, each once and in order.

    It reconnects when the connection breaks or the service restarts, and continues after the last batch
    that was yielded. Evicted batches are yielded as one batch with a ``gap``. The loop ends when the
    stream is deleted or expires, when it is closed and read to its end, or when :meth:`close` is
    called. It raises :class:`StreamReset` if the stream was deleted and created again or restored from
    an older backup, and :class:`Refused` if a retry cannot help, for example because the key was
    revoked.

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
            raise ValueError('start is "head" or "oldest"; use after= to continue after a sequence number')
        self._caller, self._path, self._start = caller, path, start
        self._silence, self._give_up = silence, give_up
        self._on_open, self._on_retry = on_open, on_retry
        self._seq: Optional[int] = None
        self._created = ""
        self._reached = False  # whether the stream has reached _seq; a program can also start after a number in the future
        if isinstance(after, tuple):
            self._seq, self._created = after
            self._reached = bool(self._created)
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
        self._socket: Optional[socket.socket] = None  # kept so that close() can shut it down: http.client forgets the socket after a field "Connection: close"

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
        unanswered = time.monotonic()  # the time since which the service has not answered
        while not (self._ended or self._closed.is_set()):
            try:
                left = None if self._give_up is None else self._give_up - (time.monotonic() - unanswered)
                for batch in self._follow(left):
                    if batch is not None:
                        yield batch
                    unanswered = time.monotonic()  # after the yield: the loop may take any time for a batch
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

        If the service refused with a Retry-After, it is that time. Otherwise it is the time of the last
        ``retry`` line, doubled after each further failure, and at most MAX_PAUSE. A random part is added,
        because the service may give many subscribers the same time.
        """
        asked = error.retry_after if isinstance(error, Refused) else 0.0
        doubled = min(max(self._retry, 0.05) * 2 ** min(self._failures, 10), MAX_PAUSE)
        self._failures += 1
        return (asked or doubled) * (1 + random.random() / 2)

    def _follow(self, left: Optional[float] = None) -> Iterator[Optional[Batch]]:
        """Connects once and yields the batches of that connection, and None for each heartbeat.

        ``left`` is the number of seconds until the subscription gives up, unless the service answers.
        """
        endpoint = self._caller.endpoint
        end = None if left is None else time.monotonic() + left
        key = endpoint.keys.get()
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
        response: Optional[http.client.HTTPResponse] = None
        try:
            try:
                if not self._connect(connection, end):
                    return
                if self._reached and self._created and not self._check_position(connection, key, end):
                    return
                path, fields = self._request()
                response = self._ask(connection, key, path, fields)
                if response is None:
                    return
                headers = lower(dict(response.getheaders()))
                if headers.get("content-type", "").partition(";")[0] != "text/event-stream":
                    raise ConnectionFailed("the response is not from Weir: it is not an event stream")
                self._compare(headers.get("x-svc-stream-created", ""))
                self._renewed = False
                with self._lock:
                    if self._socket is not None:
                        self._socket.settimeout(self._silence)
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

    def _connect(self, connection: http.client.HTTPConnection, end: Optional[float]) -> bool:
        """Opens the connection. Returns False if the subscription was closed.

        The service must have answered the request by the time ``end``, which limits every step until then.
        """
        limit = self._silence if end is None else max(min(self._silence, end - time.monotonic()), 0.001)
        sock = connection.sock = self._caller.endpoint.connect(limit)
        sock.settimeout(limit)
        with self._lock:
            self._socket = sock
        return not self._closed.is_set()

    def _ask(
        self, connection: http.client.HTTPConnection, key: str, path: str, fields: Mapping[str, str]
    ) -> Optional[http.client.HTTPResponse]:
        """Sends a GET. Returns the response, or None if the key was refused and there is another one."""
        endpoint = self._caller.endpoint
        connection.request("GET", path, headers=endpoint.headers(key, fields))
        response = connection.getresponse()
        if response.status == 200:
            return response
        with response:
            error = refusal(response.status, lower(dict(response.getheaders())), response.read())
        if isinstance(error, Refused) and error.status == 401 and not self._renewed and endpoint.keys.renew(key):
            self._renewed = True
            return None
        raise error

    def _check_position(self, connection: http.client.HTTPConnection, key: str, end: Optional[float]) -> bool:
        """Raises StreamReset if the stream no longer reaches the position.

        After a restore from an older backup the stream ends earlier. A resumed subscription would wait, and
        then skip what is published up to its old position. The method returns False if there is a new
        key, or if the subscription was closed.
        """
        response = self._ask(connection, key, self._caller.endpoint.base + self._path + "/cursor", {})
        if response is None:
            return False
        with response:
            cursor = parse_json(response.read()).get("cursor")
            created, closing = response.getheader("x-svc-stream-created", ""), response.will_close
        if not isinstance(cursor, int) or self._seq is None:
            raise ConnectionFailed("the response is not from Weir: it is not a cursor")
        self._compare(created)
        if cursor < self._seq:
            raise StreamReset(
                f"the stream ends at {cursor}, below the position {self._seq}: it was restored from a backup",
                self._created,
                self._created,
            )
        return not closing or self._connect(connection, end)

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
                        self._seq, self._reached = batch.seq, True
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
            self._seq, self._reached = int(position), True

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
