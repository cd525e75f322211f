"""The entry point: a client for one service."""

from __future__ import annotations

import secrets
import ssl
from typing import Any, Dict, Iterator, List, Optional, Union
from urllib.parse import quote, urlencode

from ._http import Answer, Caller, Endpoint, Key
from ._types import MAX_SEQ, Ack, Batch, Cursor, Position, Stream, build, encode, join, parse_ack, parse_batch, parse_json
from .errors import ConnectionFailed, Refused
from .publisher import Publisher
from .subscription import Subscription

StreamOrId = Union[str, Stream]

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Client:
    """A client for one service. It is safe for use by several threads.

    ``key`` is an API key, or a function that returns one; the function is called again when the service
    refuses the key. ``context`` is needed if the certificate of the service is not signed by a known
    authority: ``ssl.create_default_context(cafile="ca.pem")``.

    Calls are repeated when the connection breaks or the service asks for it, for at most ``give_up``
    seconds. That is safe: every change carries a number or a key, so the service makes it only once.
    ``timeout`` is how long a connection may carry nothing before it counts as dead.
    """

    def __init__(
        self,
        url: str,
        key: Key = None,
        *,
        context: Optional[ssl.SSLContext] = None,
        timeout: float = 30.0,
        give_up: float = 20.0,
    ) -> None:
        self._caller = Caller(Endpoint(url, key, context, timeout), give_up)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections of the client. A call that is still running closes its connection when it ends.

        Publishers and subscriptions have connections of their own.
        """
        self._caller.close()

    def create_stream(
        self,
        name: str,
        *,
        id: Optional[str] = None,
        retention_seconds: Optional[int] = None,
        max_bytes: Optional[int] = None,
        mode: str = "json",
        ttl_seconds: Optional[int] = None,
    ) -> Stream:
        """Creates a stream. Without an ``id`` the client chooses one, so that a retry cannot create a second stream."""
        chosen = id or "".join(secrets.choice(_BASE62) for _ in range(22))
        wanted: Dict[str, Any] = {"name": name, "id": chosen, "mode": mode}
        if retention_seconds is not None:
            wanted["retention_seconds"] = retention_seconds
        if max_bytes is not None:
            wanted["max_bytes"] = max_bytes
        if ttl_seconds is not None:
            wanted["ttl_seconds"] = ttl_seconds
        try:
            created: Stream = self._object(Stream, "POST", "/v1/streams", encode(wanted))
        except Refused as error:
            # An earlier attempt may have created the stream. No other client knows an id that this client chose.
            if error.code != "stream_name_taken" or not (error.outcome_unknown or id is None):
                raise
            try:
                found = self.stream(chosen)
            except Refused as failed:
                if failed.status == 429 or failed.status >= 500:  # the name may be taken by this client itself
                    raise
                raise error
            if found.name != name:
                raise
            return found
        return created

    def streams(self) -> Iterator[Stream]:
        """Yields all streams that the key can read, newest first."""
        query = ""
        while True:
            page = parse_json(self._caller.call("GET", "/v1/streams" + query, check=_is_list).body)
            for value in page["data"]:
                stream: Stream = build(Stream, value)
                yield stream
            following = page.get("next_cursor")
            if not following:
                return
            query = "?" + urlencode({"cursor": following})

    def stream(self, stream: StreamOrId) -> Stream:
        """Returns the current state of a stream."""
        found: Stream = self._object(Stream, "GET", _path(stream))
        return found

    def close_stream(self, stream: StreamOrId) -> Stream:
        """Closes a stream for good. It takes no more batches, and its subscriptions end after the last one."""
        closed: Stream = self._object(Stream, "POST", _path(stream) + "/close")
        return closed

    def delete_stream(self, stream: StreamOrId) -> None:
        """Deletes a stream with everything in it."""
        try:
            self._caller.call("DELETE", _path(stream), changes=True, check=_is_empty)
        except Refused as error:
            if error.code != "stream_not_found" or not error.outcome_unknown:
                raise  # otherwise an earlier attempt has deleted the stream

    def cursor(self, stream: StreamOrId) -> Cursor:
        """Returns the highest sequence number of a stream."""
        found: Cursor = self._object(Cursor, "GET", _path(stream) + "/cursor")
        return found

    def batch(self, stream: StreamOrId, seq: int) -> Batch:
        """Fetches one batch. The service does not say when a raw batch was stored, so its time is None."""
        path = f"{_path(stream)}/batches/{_seq(seq)}"
        return _batch(self._caller.call("GET", path, check=lambda answer: _batch(answer, seq)), seq)

    def publish(
        self, stream: StreamOrId, events: Union[List[Any], bytes], *, idempotency_key: Optional[str] = None
    ) -> Ack:
        """Stores a batch under the next sequence number, once, however often it has to be sent.

        ``events`` is a list for a json stream and bytes for a raw one. Several programs can publish to the
        same stream this way.
        """
        key = idempotency_key or secrets.token_urlsafe(18)
        body, fields = _body(events)
        answer = self._caller.call(
            "POST",
            _path(stream) + "/publish",
            body,
            dict(fields, **{"Idempotency-Key": key}),
            changes=True,
            idempotency_key=key,
            check=lambda answer: _acknowledged(answer, stream, None),
        )
        return parse_ack(answer.body, _id(stream), None)

    def publish_at(self, stream: StreamOrId, seq: int, events: Union[List[Any], bytes]) -> Ack:
        """Stores a batch under a sequence number that the program chooses."""
        body, fields = _body(events)
        answer = self._caller.call(
            "POST",
            f"{_path(stream)}/{_seq(seq)}",
            body,
            fields,
            changes=True,
            check=lambda answer: _acknowledged(answer, stream, seq),
        )
        return parse_ack(answer.body, _id(stream), seq)

    def publisher(self, stream: StreamOrId, *, start_at: Optional[int] = None, **options: Any) -> Publisher:
        """Opens a publisher for many events. See :class:`Publisher` for the options.

        ``start_at`` is the sequence number of the first batch. By default it is the one above the cursor,
        so a program that is started again continues where the stream ends. If the option ``give_up`` is set,
        it applies to opening too.
        """
        found: Stream = self._object(Stream, "GET", _path(stream), give_up=options.get("give_up"))
        first = found.cursor + 1 if start_at is None else _seq(start_at)
        return Publisher(self._caller, _path(found), found, first, start_at is not None, **options)

    def subscribe(
        self, stream: StreamOrId, start: str = "head", *, after: Union[int, Position, None] = None, **options: Any
    ) -> Subscription:
        """Follows a stream: ``for batch in client.subscribe(stream)``.

        ``start`` is ``"head"`` (batches published from now on) or ``"oldest"`` (all stored batches first).
        ``after`` continues after a sequence number, or after the :attr:`Subscription.position` of an
        earlier run. See :class:`Subscription` for the other options.
        """
        return Subscription(self._caller, _path(stream), start, after, **options)

    def _object(
        self, kind: Any, method: str, path: str, body: Optional[bytes] = None, give_up: Optional[float] = None
    ) -> Any:
        """Sends a request whose response is one object of this kind."""
        fields = {} if body is None else {"Content-Type": "application/json"}

        def read(answer: Answer) -> Any:
            return build(kind, parse_json(answer.body))

        return read(self._caller.call(method, path, body, fields, changes=body is not None, give_up=give_up, check=read))


def _is_list(answer: Answer) -> None:
    if not isinstance(parse_json(answer.body).get("data"), list):
        raise ConnectionFailed("the response is not from Weir: it is not a list of streams")


def _is_empty(answer: Answer) -> None:
    if answer.status != 204:
        raise ConnectionFailed(f"the response is not from Weir: its status is {answer.status}, and not 204")


def _batch(answer: Answer, seq: int) -> Batch:
    kind = answer.headers.get("content-type", "")
    media = kind.partition(";")[0].strip()
    if media == "application/octet-stream":
        return Batch(seq, data=answer.body, content_type=kind)
    batch = parse_batch(answer.body)
    if media != "application/json" or batch.seq != seq:
        raise ConnectionFailed(f"the response is not from Weir: it is not batch {seq}")
    return batch


def _acknowledged(answer: Answer, stream: StreamOrId, seq: Optional[int]) -> None:
    parse_ack(answer.body, _id(stream), seq)


def _id(stream: StreamOrId) -> str:
    return stream.id if isinstance(stream, Stream) else stream


def _path(stream: StreamOrId) -> str:
    return "/v1/streams/" + quote(_id(stream), safe="")


def _seq(seq: int) -> int:
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
        raise ValueError(f"{seq!r} is not a sequence number")
    return seq


def _body(events: Union[List[Any], bytes]) -> Any:
    if isinstance(events, (bytes, bytearray, memoryview)):
        return bytes(events), {"Content-Type": "application/octet-stream"}
    if not isinstance(events, (list, tuple)):
        raise TypeError("a batch is a list of events, or bytes for a raw stream")
    return join([encode(event) for event in events]), {"Content-Type": "application/json"}
