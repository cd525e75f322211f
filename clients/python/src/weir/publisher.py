"""Publishes many events to one stream."""

from __future__ import annotations

import collections
import http.client
import io
import secrets
import selectors
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Deque, List, Optional, Union

from ._http import CONNECT_TIMEOUT, PIECE, Answer, Caller, backoff, lower
from ._types import Ack, Stream, encode, join, parse_ack, parse_json
from .errors import ConnectionFailed, PublishError, Refused, WeirError, refusal, transient

MAX_BODY = 8 << 20

# The refusals after which a batch is certainly not stored.
NOT_STORED = ("sequence_not_next", "invalid_sequence", "rate_limited")


@dataclass(frozen=True)
class Unacknowledged:
    """A batch that may or may not be stored."""

    #: The sequence number of the batch. It means nothing if the first unacknowledged batch has a key: then the service
    #: chooses the number of that batch, and the other batches get the numbers after it.
    seq: int
    #: Whether the batch was sent at least once.
    sent: bool
    #: The number of events in it; 1 for a raw batch.
    events: int
    #: The body, ready to be sent again: JSON with a member ``events``, or raw bytes.
    body: bytes
    #: The idempotency key under which the batch was sent, if the service chooses its number after a closed gap.
    key: str = ""


class _Flight:
    """A batch that has a sequence number and is not acknowledged."""

    def __init__(self, seq: int, body: bytes, events: int) -> None:
        self.seq, self.body, self.events = seq, body, events
        self.sent = False
        self.unsure = False  # an attempt got no response, or one that leaves open whether the batch is stored
        self.key = ""  # idempotency key, if the service has to choose the sequence number


class Publisher:
    """Publishes events to one stream, in the order in which they are added.

    Events are grouped into batches, and batches are numbered from the cursor of the stream. All requests
    go over one connection, one after the other, without waiting for responses. If the connection
    breaks, the publisher connects again and resends what was not acknowledged, so every event is stored
    once and in order. Every request asks the service to store the batch only after its predecessor, so
    no fault can leave a gap. If another program has left a gap above the last batch, and the service has
    closed it, the publisher continues above the gap.

    A stream has one publisher at a time. Programs that share a stream use :meth:`Client.publish`.

    The methods can be called by several threads. Use the publisher as a context manager, or call
    :meth:`close`: both return when everything is stored.
    """

    def __init__(
        self,
        caller: Caller,
        path: str,
        stream: Stream,
        start: int,
        fixed: bool,
        *,
        batch_events: int = 1000,
        batch_bytes: int = 256 << 10,
        linger: float = 0.005,
        in_flight: int = 64,
        buffer: int = 16 << 20,
        give_up: Optional[float] = None,
        on_ack: Optional[Callable[[Ack], None]] = None,
        on_retry: Optional[Callable[[WeirError, float], None]] = None,
        on_error: Optional[Callable[[PublishError], None]] = None,
    ) -> None:
        if not (batch_events >= 1 and batch_bytes >= 1 and 1 <= in_flight <= 1024 and buffer >= 1):
            raise ValueError("batch_events, batch_bytes, in_flight and buffer must be at least 1, and in_flight at most 1024")
        #: Identifies this publisher to the service, which stores it with every batch. It changes after a closed gap.
        self.id = secrets.token_hex(12)
        self._caller, self._endpoint = caller, caller.endpoint
        self._path, self._stream, self._mode, self._created = path, stream.id, stream.mode, stream.created_at
        self._batch_events, self._batch_bytes, self._linger = batch_events, batch_bytes, linger
        self._in_flight, self._buffer, self._give_up = in_flight, buffer, give_up
        self._on_ack, self._on_retry, self._on_error = on_ack, on_retry, on_error
        self._changed = threading.Condition()
        self._group: List[bytes] = []  # encoded events that have no sequence number yet
        self._group_bytes = 0
        self._group_due = 0.0  # when the group is sent even if it is not full
        self._flushing = 0  # number of calls that wait for everything to be stored
        self._window: Deque[_Flight] = collections.deque()  # unacknowledged batches, in order of the sequence numbers
        self._next = start
        self._fixed = fixed  # the program chose the number of the first batch, so the publisher changes no numbers
        self._leap = fixed  # the first batch may leave a gap on purpose, because the program chose its number
        self._held = 0  # bytes that were added and are not acknowledged
        self._acked: Optional[int] = None
        self._renewed = False  # whether the key was renewed since the last acknowledgement
        self._progress = time.monotonic()  # time of the last acknowledgement, or of the first batch after a pause
        self._error: Optional[PublishError] = None
        self._closing = False
        self._bell, self._ring = socket.socketpair()  # a byte that is sent to _ring wakes the thread, which waits for _bell
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="weir publisher", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:  # the program failed: do not wait for a service that may be the reason
            self.abort()

    @property
    def error(self) -> Optional[PublishError]:
        """Why the publisher failed; None while it works."""
        return self._error

    @property
    def acknowledged(self) -> Optional[int]:
        """The highest sequence number up to which all batches of this publisher are stored."""
        return self._acked

    def add(self, event: Any, timeout: Optional[float] = None) -> None:
        """Adds an event. Waits while the buffer is full, because the service cannot keep up.

        It raises TimeoutError if there is no room within ``timeout`` seconds. The event is not added then.
        """
        if self._mode != "json":
            raise TypeError("this is a raw stream: use add_bytes")
        self._add(encode(event), timeout)

    def add_bytes(self, data: Union[bytes, bytearray, memoryview], timeout: Optional[float] = None) -> None:
        """Adds a batch to a raw stream. Like :meth:`add`, it may wait."""
        if self._mode != "raw":
            raise TypeError("this is a json stream: use add")
        self._add(bytes(data), timeout)

    def _add(self, data: bytes, timeout: Optional[float]) -> None:
        if len(data) + 13 > MAX_BODY:
            raise ValueError(f"an event of {len(data)} bytes does not fit into a body of {MAX_BODY}")
        with self._changed:
            # An event larger than the buffer is accepted once the buffer is empty.
            if not self._changed.wait_for(lambda: self._has_room(len(data)), timeout):
                raise TimeoutError("no room for the event: the service does not keep up")
            self._check()
            if self._mode == "raw":
                self._enqueue(data, 1)
            else:
                if self._group and self._group_bytes + len(data) > self._batch_bytes:
                    self._cut()
                if not self._group:
                    self._group_due = time.monotonic() + self._linger
                self._group.append(data)
                self._group_bytes += len(data) + 1
                if len(self._group) >= self._batch_events or self._group_bytes >= self._batch_bytes:
                    self._cut()
            self._held += len(data)
            self._wake()

    def _has_room(self, size: int) -> bool:
        return bool(self._error) or self._closing or self._held == 0 or self._held + size <= self._buffer

    def flush(self, timeout: Optional[float] = None) -> None:
        """Returns when everything that was added is stored. Raises TimeoutError if that takes too long."""
        with self._changed:
            self._flushing += 1
            self._wake()
            try:
                done = self._changed.wait_for(lambda: self._error or self._closing or self._is_empty(), timeout)
            finally:
                self._flushing -= 1
            if not self._is_empty():
                self._check()
            if not done:
                raise TimeoutError("not everything is stored yet")

    def _is_empty(self) -> bool:
        return not (self._group or self._window)

    def close(self, timeout: Optional[float] = None) -> None:
        """Stores everything that was added, then ends the publisher."""
        try:
            self.flush(timeout)
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends the publisher at once. :meth:`unacknowledged` returns the batches that are not known to be stored."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def unacknowledged(self) -> List[Unacknowledged]:
        """Returns the batches that are not known to be stored, in order. There are none after a successful close."""
        with self._changed:
            if self._group:
                self._cut()
            return [Unacknowledged(f.seq, f.sent, f.events, f.body, f.key) for f in self._window]

    def _check(self) -> None:
        if self._error:
            raise self._error
        if self._closing:
            raise PublishError("closed", "the publisher is closed")

    def _cut(self) -> None:
        """Turns the group into a batch. Called with the lock held."""
        self._enqueue(join(self._group), len(self._group))
        self._group, self._group_bytes = [], 0

    def _enqueue(self, body: bytes, events: int) -> None:
        if not self._window:
            self._progress = time.monotonic()
        self._window.append(_Flight(self._next, body, events))
        self._next += 1

    def _wake(self) -> None:
        try:
            self._ring.send(b"!")
        except OSError:  # earlier bytes fill the buffer, so the thread wakes up anyway; or the thread has ended
            pass

    # The methods below run in the thread of the publisher.

    def _run(self) -> None:
        failures = 0
        try:
            while self._wait_for_work():
                before = self._acked
                try:
                    _Connection(self).carry()
                except PublishError:
                    raise
                except WeirError as error:
                    failures = 1 if self._acked != before else failures + 1
                    pause = max(backoff(failures), error.retry_after if isinstance(error, Refused) else 0)
                    if self._on_retry:
                        self._on_retry(error, pause)
                    self._pause(pause, error)
        except PublishError as error:
            self._fail(error)
        except BaseException as error:  # raised by on_ack or on_retry
            failed = PublishError("refused", f"the publisher stopped: {error}")
            failed.__cause__ = error
            self._fail(failed)
        finally:
            self._bell.close()
            self._ring.close()

    def _fail(self, error: PublishError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
        if self._on_error:
            self._on_error(error)

    def _wait_for_work(self) -> bool:
        """Waits until there is a batch to send. Returns False when the publisher ends."""
        while True:
            with self._changed:
                if self._closing:
                    return False
                wait = self._cut_due()
                if self._window:
                    return True
            self._sleep(wait)

    def _cut_due(self) -> Optional[float]:
        """Turns the group into a batch if it is time. Otherwise returns the seconds until then.

        Called with the lock held.
        """
        if not self._group:
            return None
        left = self._group_due - time.monotonic()
        if left > 0 and not self._flushing:
            return left
        self._cut()
        return None

    def _sleep(self, seconds: Optional[float]) -> None:
        """Waits for the bell, for at most this long."""
        _ready([self._bell], [], seconds)
        self._hush()

    def _hush(self) -> None:
        try:
            while self._bell.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _pause(self, seconds: float, error: WeirError) -> None:
        """Waits before the next connection. It ends early if the publisher is closed or gives up."""
        end = time.monotonic() + seconds
        while not self._closing:
            self._give_up_if_due(error)
            left = end - time.monotonic()
            if left <= 0:
                return
            due = self._due()
            self._sleep(left if due is None else min(left, max(due - time.monotonic(), 0)))

    def _due(self) -> Optional[float]:
        """Returns when the publisher gives up, unless a batch is acknowledged before."""
        return None if self._give_up is None or not self._window else self._progress + self._give_up

    def _give_up_if_due(self, error: Optional[WeirError]) -> None:
        due = self._due()
        if due is not None and time.monotonic() >= due:
            reason = f"; last error: {error}" if error else ""
            failed = PublishError(
                "given_up", f"nothing was acknowledged for {self._give_up:g} s{reason}", self._window[0].seq
            )
            failed.__cause__ = error
            raise failed

    def _renumber(self, refusal: PublishError) -> None:
        """Lets the service choose the number of the first waiting batch, because its number is in a closed gap.

        The other waiting batches get the numbers after it. If one of the batches may already be stored,
        it could be stored twice or out of order, so the publisher fails instead. The publisher also gets
        a new id, so that it does not mistake a batch under an old number for one under a new number.
        """
        with self._changed:
            if any(flight.unsure for flight in self._window):
                raise refusal
            self.id = secrets.token_hex(12)
            self._window[0].key = secrets.token_hex(12)

    def _stored(self, ack: Ack) -> None:
        """Takes the lowest batch out of the window."""
        with self._changed:
            if self._window[0].key:  # the service chose its number, so the others continue from there
                for n, later in enumerate(self._window):
                    later.seq = ack.seq + n
                self._next = ack.seq + len(self._window)
            flight = self._window.popleft()
            self._held -= len(flight.body) - (12 + flight.events if self._mode == "json" else 0)
            if not self._window and not self._group:
                self._held = 0
            self._acked, self._progress, self._leap = flight.seq, time.monotonic(), False
            self._renewed = False
            self._changed.notify_all()
        if self._on_ack:
            self._on_ack(ack)


class _Connection:
    """One connection of a publisher: requests go out one after the other, responses return in order."""

    def __init__(self, publisher: Publisher) -> None:
        self.p = publisher
        self.key = publisher._endpoint.keys.get()
        self.out = memoryview(b"")  # the rest of the request that is being written
        self.sent: Deque[_Flight] = collections.deque()  # batches that are written or being written, and have no response
        self.received = bytearray()
        self.moved = time.monotonic()  # when a byte was last written or read
        self.gap: Optional[PublishError] = None  # the lowest batch is in a closed gap; the others in flight still need a response

    def carry(self) -> None:
        """Sends batches and reads responses. Returns when there is nothing left to do.

        It raises PublishError if the publisher has failed, and another WeirError if a new connection
        may help.
        """
        due = self.p._due()
        sock = self.p._endpoint.connect(CONNECT_TIMEOUT if due is None else max(due - time.monotonic(), 0.001))
        try:
            sock.setblocking(False)
            while True:
                if not self._fill():
                    return
                self._wait(sock)
                self._write(sock)
                if not self._read(sock):
                    self._skip_gap()
                    return
        except (OSError, http.client.HTTPException) as error:
            if self._skip_gap():
                return
            raise ConnectionFailed(f"the connection broke: {error or type(error).__name__}") from error
        finally:
            for flight in self.sent:
                flight.unsure = True
            sock.close()

    def _fill(self) -> bool:
        """Chooses the next request. Returns False when the publisher ends."""
        p = self.p
        with p._changed:
            if p._closing:
                return False
            self.wait = p._cut_due()
        if self.gap is not None and not self._skip_gap():
            return True
        with p._changed:
            most = 1 if p._leap or p._window and p._window[0].key else p._in_flight
            if self.out or len(self.sent) >= most or len(self.sent) == len(p._window):
                return True
            flight = p._window[len(self.sent)]
            if not self.sent:
                self.moved = time.monotonic()
            flight.sent = True
        self.sent.append(flight)
        fields = p._endpoint.headers(
            self.key,
            {
                "Content-Type": "application/json" if p._mode == "json" else "application/octet-stream",
                "Content-Length": str(len(flight.body)),
            },
        )
        if flight.key:
            fields["Idempotency-Key"] = flight.key
        else:
            fields["X-Svc-Publisher"] = p.id
            if not p._leap:
                fields["X-Svc-Contiguous"] = "true"
        head = f"POST {p._endpoint.base}{p._path}/{'publish' if flight.key else flight.seq} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.out = memoryview(head.encode() + b"\r\n" + flight.body)
        return True

    def _wait(self, sock: socket.socket) -> None:
        """Waits until the socket can be used, the bell rings, or a time limit passes."""
        p = self.p
        limits = [self.wait]
        now = time.monotonic()
        if self.sent:
            limits.append(self.moved + p._endpoint.timeout - now)
        due = p._due()
        if due is not None:
            limits.append(due - now)
        seconds = min((max(limit, 0) for limit in limits if limit is not None), default=None)
        if isinstance(sock, ssl.SSLSocket) and sock.pending():
            seconds = 0
        _ready([sock, p._bell], [sock] if self.out else [], seconds)
        p._hush()
        p._give_up_if_due(None)
        if self.sent and time.monotonic() >= self.moved + p._endpoint.timeout:
            raise ConnectionFailed(f"the connection carried nothing for {p._endpoint.timeout:g} s")

    def _write(self, sock: socket.socket) -> None:
        while self.out:
            try:
                n = sock.send(self.out[:PIECE])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            self.out = self.out[n:]
            self.moved = time.monotonic()

    def _read(self, sock: socket.socket) -> bool:
        """Reads what has arrived. Returns False if the service closed a connection that was not in use."""
        while True:
            try:
                data = sock.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            if not data:
                if self.sent:
                    raise ConnectionFailed("the service closed the connection")
                return False
            self.moved = time.monotonic()
            self.received += data
            while True:
                answer = self._take()
                if answer is None:
                    break
                self._settle(answer)

    def _take(self) -> Optional[Answer]:
        """Takes one whole response out of the received bytes, if there is one."""
        if b"\r\n\r\n" not in self.received:
            if len(self.received) > 1 << 20:
                raise ConnectionFailed("a response is not from Weir: its header is too large")
            return None
        source = _Received(self.received)
        response = http.client.HTTPResponse(source, method="POST")  # type: ignore[arg-type]
        try:
            response.begin()
            if response.length is None and not response.chunked:
                raise ConnectionFailed(f"a response is not from Weir: status {response.status} without a length")
            body = response.read()
        except http.client.IncompleteRead:
            return None
        del self.received[: source.tell()]
        return Answer(response.status, lower(dict(response.getheaders())), body)

    def _settle(self, answer: Answer) -> None:
        """Handles the response to the lowest batch. It raises if the batch must be sent again or the publisher fails."""
        p = self.p
        if not self.sent:
            raise ConnectionFailed("a response without a request")
        flight = self.sent[0]
        if answer.status not in (200, 202):
            self._settle_refusal(refusal(answer.status, answer.headers, answer.body))
            return
        if self.gap is not None:  # the batch is stored, but one below it is not
            flight.unsure = True
            self.sent.popleft()
            return
        ack = parse_ack(answer.body, p._stream, None if flight.key else flight.seq)
        created = answer.headers.get("x-svc-stream-created", p._created)
        if created != p._created:
            raise PublishError("reset", f"batch {flight.seq}: the stream was created again at {created}", flight.seq)
        stored = answer.headers.get("x-svc-publisher", "")
        if stored != p.id and not flight.key:
            if not ack.duplicate:
                raise PublishError("refused", "the service does not know x-svc-publisher: it is too old", flight.seq)
            raise PublishError("taken", f"another publisher stored batch {flight.seq}", flight.seq)
        self.sent.popleft()
        p._stored(ack)

    def _skip_gap(self) -> bool:
        """Renumbers the batches if the lowest one is in a closed gap and none of them waits for a response.

        It is also called when the connection has ended, because the service closes the connection when it
        refuses a large body.
        """
        if self.gap is None or self.sent:
            return False
        self.p._renumber(self.gap)
        self.gap = None
        return True

    def _settle_refusal(self, error: WeirError) -> None:
        """Handles a refusal of the lowest batch that has no response yet."""
        flight = self.sent[0]
        if isinstance(error, Refused) and error.code in NOT_STORED:
            self.sent.popleft()
        elif self.gap is not None:
            flight.unsure = True
            self.sent.popleft()
        if self.gap is not None:
            return
        failed = self._refused(flight, error)
        if not (isinstance(failed, PublishError) and failed.reason == "gap_closed") or self.p._fixed:
            raise failed
        self.gap = failed

    def _refused(self, flight: _Flight, error: WeirError) -> WeirError:
        """Turns a refusal into the error that carry raises.

        After a temporary refusal, the publisher closes the connection and sends this batch and all later
        batches again. The service has stored none of them, because each may only follow its predecessor.
        """
        p = self.p
        if not isinstance(error, Refused) or transient(error):
            return error
        if error.status == 401 and not p._renewed and p._endpoint.keys.renew(self.key):
            p._renewed = True
            return ConnectionFailed("the key was renewed")
        if error.code == "sequence_not_next":
            cursor = parse_json(p._caller.call("GET", p._path + "/cursor").body).get("cursor")
            if isinstance(cursor, int) and cursor + 1 >= flight.seq:
                return ConnectionFailed("the predecessor was stored in the meantime")
            failed = PublishError("reset", f"the stream ends at {cursor}, below batch {flight.seq}: it was reset", flight.seq)
        elif error.code == "invalid_sequence":
            reason = "gap_closed" if "closed" in str(error) else "evicted"
            failed = PublishError(reason, f"batch {flight.seq}: {error}", flight.seq)
        else:
            failed = PublishError("refused", f"batch {flight.seq}: {error}", flight.seq)
        failed.__cause__ = error
        return failed


class _Received(io.BytesIO):
    """Lets http.client parse a response from memory. After ``close``, which does nothing, ``tell`` still works."""

    def makefile(self, mode: str) -> "_Received":
        return self

    def close(self) -> None:
        pass


def _ready(reading: List[socket.socket], writing: List[socket.socket], seconds: Optional[float]) -> None:
    """Waits until one of the sockets can be read or written, for at most this long."""
    with selectors.DefaultSelector() as selector:
        for sock in reading:
            selector.register(sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if sock in writing else 0))
        selector.select(seconds)
