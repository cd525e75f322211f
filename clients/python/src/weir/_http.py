"""Requests to one service: addresses, keys, retries."""

from __future__ import annotations

import http.client
import random
import socket
import ssl
import threading
import time
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Union
from urllib.parse import urlsplit

from .errors import ConnectionFailed, OutcomeUnknown, Refused, WeirError, refusal, transient, unsent

#: An API key, or a function that returns one. The function is called again when the service refuses
#: the key, so that keys can be short-lived or rotated.
Key = Union[str, Callable[[], str], None]

CONNECT_TIMEOUT = 10.0
PIECE = 64 << 10  # maximum number of bytes that are handed to a socket at once


class Answer(NamedTuple):
    """A response with its body. The names of the header fields are in lower case."""

    status: int
    headers: Dict[str, str]
    body: bytes


def lower(headers: Mapping[str, str]) -> Dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def backoff(failures: int, longest: float = 5.0) -> float:
    """Returns how long to wait after this many failures in a row.

    That is 25 to 50 ms after the first failure, and twice as long after each further one, up to ``longest``.
    """
    return float(min(0.05 * 2.0 ** min(failures - 1, 20), longest) * (0.5 + random.random() / 2))


class Keys:
    """The key of a client. It is safe for use by several threads."""

    def __init__(self, key: Key) -> None:
        self._source = key
        self._lock = threading.Lock()
        self._known: Optional[str] = None

    def __repr__(self) -> str:  # a key must not end up in a log
        return "Keys(…)"

    def get(self) -> str:
        """Returns the key, or an empty string if there is none.

        It raises ConnectionFailed if the program's key function fails, because the function may need the
        network too and may succeed later.
        """
        with self._lock:
            if self._known is None:
                try:
                    key = self._source() if callable(self._source) else self._source or ""
                except Exception as error:
                    raise unsent(f"cannot get a key: {error}") from error
                if not isinstance(key, str) or not key.isascii() or any(c <= " " for c in key):
                    raise ValueError("the API key is not a string, or contains characters that no key has")
                self._known = key
            return self._known

    def renew(self, refused: str) -> bool:
        """Asks the program's key function for another key, and reports whether there is one."""
        if not callable(self._source):
            return False
        with self._lock:
            if self._known == refused:
                self._known = None
        return self.get() != refused


class Endpoint:
    """The address of a service."""

    def __init__(self, url: str, key: Key, context: Optional[ssl.SSLContext], timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the URL of a service looks like http://127.0.0.1:8080, not {url!r}")
        self.host: str = parts.hostname
        self.port: int = parts.port or (443 if parts.scheme == "https" else 80)
        self.authority: str = parts.netloc.rpartition("@")[2]
        self.base: str = parts.path.rstrip("/")
        self.keys = Keys(key)
        self.timeout = timeout
        self.context = (context or ssl.create_default_context()) if parts.scheme == "https" else None

    def connect(self, limit: float = CONNECT_TIMEOUT) -> socket.socket:
        """Opens a connection, encrypted if the URL says so. It takes at most ``limit`` seconds, and at most CONNECT_TIMEOUT."""
        try:
            plain = socket.create_connection((self.host, self.port), min(limit, CONNECT_TIMEOUT))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context is None:
                return plain
            try:
                return self.context.wrap_socket(plain, server_hostname=self.host)
            except BaseException:
                plain.close()
                raise
        except (OSError, ssl.SSLError) as error:
            raise unsent(f"cannot connect to {self.authority}: {error}") from error

    def headers(self, key: str, more: Mapping[str, str] = {}) -> Dict[str, str]:
        """Returns the header fields that every request has, together with the fields in ``more``."""
        fields = {"Host": self.authority, "User-Agent": "weir-python"}
        if key:
            fields["Authorization"] = "Bearer " + key
        fields.update(more)
        return fields


class Caller:
    """Sends single requests, and retries them if that may help. It is safe for use by several threads."""

    def __init__(self, endpoint: Endpoint, give_up: float) -> None:
        self.endpoint = endpoint
        self.give_up = give_up
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []
        self._closed = False

    def close(self) -> None:
        """Closes idle connections. A call that is still running closes its connection when it ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: Mapping[str, str] = {},
        *,
        changes: bool = False,
        idempotency_key: str = "",
        give_up: Optional[float] = None,
        check: Optional[Callable[[Answer], object]] = None,
    ) -> Answer:
        """Sends a request until it succeeds, fails for good, or ``give_up`` seconds have passed.

        ``check`` raises ConnectionFailed if a response with a success status did not come from Weir. If
        ``changes`` is set and a response may have been lost, the error after ``give_up`` seconds is
        OutcomeUnknown.
        """
        if give_up is None:
            give_up = self.give_up
        deadline = time.monotonic() + give_up
        failures, renewed = 0, False
        unknown = False  # whether a response was lost, or said that the outcome is unknown
        failed = False  # whether the service failed, perhaps after it had made the change
        while True:
            try:
                key = self.endpoint.keys.get()
                try:
                    answer = self.once(method, path, body, self.endpoint.headers(key, headers), deadline)
                    if not 200 <= answer.status < 300:
                        raise refusal(answer.status, answer.headers, answer.body)
                    if check is not None:
                        check(answer)
                    return answer
                except Refused as error:
                    # Only one new key is tried. If each new key were refused too, these retries, which come
                    # without a pause, would never end.
                    if error.status != 401 or renewed or not self.endpoint.keys.renew(key):
                        raise
                    renewed = True
            except WeirError as error:
                unknown = unknown or isinstance(error, ConnectionFailed) and error.sent
                if isinstance(error, Refused):
                    unknown = unknown or error.outcome_unknown
                    error.outcome_unknown = changes and (unknown or failed)
                    failed = failed or error.status >= 500
                if not transient(error):
                    raise
                failures += 1
                pause = max(backoff(failures), error.retry_after if isinstance(error, Refused) else 0)
                if time.monotonic() + pause < deadline:
                    time.sleep(pause)
                    continue
                if unknown and changes:
                    raise OutcomeUnknown(
                        f"no acknowledgement within {give_up:g} s, so the outcome is unknown; last error: {error}",
                        idempotency_key,
                    ) from error
                raise

    def once(
        self, method: str, path: str, body: Optional[bytes], headers: Mapping[str, str], deadline: float
    ) -> Answer:
        """Sends a request once. The connection is kept for the next request if the service allows it.

        Each step of the request, such as sending one piece of the body, may take the time from the start
        of the request to ``deadline``, but at least a second. A request with a large body has many steps,
        so it may end after the deadline.
        """
        limit = max(deadline - time.monotonic(), 1.0)
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = http.client.HTTPConnection(self.endpoint.host, self.endpoint.port)
            connection.sock = self.endpoint.connect(limit)
        try:
            connection.sock.settimeout(min(self.endpoint.timeout, limit))
            fields = dict(headers)
            if body is not None:
                fields["Content-Length"] = str(len(body))
            # The timeout of a socket applies to each piece of the body as a whole. Pieces are small, so a
            # slow connection fails only if it carries next to nothing.
            connection.request(method, self.endpoint.base + path, body=_pieces(body), headers=fields)
            response = connection.getresponse()
            answer = Answer(response.status, lower(dict(response.getheaders())), response.read())
            close = response.will_close
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionFailed(f"{method} {path}: {error or type(error).__name__}") from error
        except BaseException:
            connection.close()
            raise
        with self._lock:
            close = close or self._closed
            if not close:
                self._idle.append(connection)
        if close:
            connection.close()
        return answer


def _pieces(body: Optional[bytes]) -> Optional[Iterator[bytes]]:
    """Returns the body in pieces. http.client sends each piece with a call of its own."""
    if body is None:
        return None
    whole = body
    return (whole[at : at + PIECE] for at in range(0, len(whole), PIECE))
