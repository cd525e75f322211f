"""The values that the service stores and returns."""

from __future__ import annotations

import base64
import json
from dataclasses import MISSING, dataclass, field
from datetime import datetime, timezone
from typing import Any, Dict, List, NamedTuple, Optional

from .errors import ConnectionFailed

MAX_SEQ = 2**53 - 1


@dataclass(frozen=True)
class Stream:
    """A stream, as the service describes it."""

    id: str
    name: str
    created_at: str
    retention_seconds: int
    max_bytes: int
    cursor: int
    bytes_stored: int
    mode: str
    #: Time after which the stream is deleted if it is not used. None if it is kept.
    ttl_seconds: Optional[int] = None
    #: Whether the stream takes no more batches.
    closed: bool = False


@dataclass(frozen=True)
class Cursor:
    """The highest sequence number ever stored in a stream, and when that batch was stored."""

    cursor: int
    updated_at: str


@dataclass(frozen=True)
class Ack:
    """An acknowledgement: the batch is on disk."""

    stream_id: str
    seq: int
    #: Number of events of the stored batch; 1 for a raw batch.
    accepted: int
    cursor: int
    #: Whether the batch had been stored before.
    duplicate: bool


@dataclass(frozen=True)
class Gap:
    """Batches that the subscriber can no longer get: ``from_seq`` to ``to_seq``, both included."""

    from_seq: int
    to_seq: int
    #: ``evicted`` or ``lost``
    reason: str


@dataclass(frozen=True)
class Batch:
    """A stored batch, or a gap in front of the next one."""

    #: The sequence number; for a gap, the last sequence number that is missing.
    seq: int
    #: When the batch was stored; None for a gap, and for a raw batch that was fetched singly.
    time: Optional[datetime] = None
    #: The events of a json stream.
    events: List[Any] = field(default_factory=list)
    #: The bytes of a raw stream; None in a json stream.
    data: Optional[bytes] = None
    #: The content type of a raw batch.
    content_type: str = ""
    #: Set if batches are missing here. Then there are no events and no data.
    gap: Optional[Gap] = None


class Position(NamedTuple):
    """The position of a subscription. Save it, and pass it as ``after`` in the next run of the program."""

    #: The last sequence number that was yielded.
    seq: int
    #: When the stream was created. It distinguishes the stream from one that is created later under
    #: the same id.
    created: str


def parse_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


def parse_json(body: bytes) -> Dict[str, Any]:
    """Parses a JSON object. Raises ConnectionFailed for anything else, because it cannot have come from Weir."""
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConnectionFailed("a response is not from Weir: it is not a JSON object")
    return value


def build(kind: Any, value: Dict[str, Any]) -> Any:
    """Builds a dataclass from a JSON object. Ignores members that are not fields of the class."""
    fields = kind.__dataclass_fields__.values()
    try:
        return kind(**{f.name: value[f.name] for f in fields if f.name in value or f.default is MISSING})
    except KeyError as error:
        raise ConnectionFailed(f"a response is not from Weir: it has no {error}") from error


def parse_ack(body: bytes, stream: str, seq: Optional[int]) -> Ack:
    """Parses an acknowledgement. It must be about this stream and, if given, this sequence number."""
    ack: Ack = build(Ack, parse_json(body))
    if ack.stream_id != stream or not isinstance(ack.seq, int) or (seq is not None and ack.seq != seq):
        raise ConnectionFailed("a response is not from Weir: it acknowledges something else")
    return ack


def parse_batch(data: bytes) -> Batch:
    """Parses the JSON object of a batch, which for a raw batch contains the data in base64."""
    value = parse_json(data)
    try:
        seq, time = value["seq"], parse_time(value["ts"])
        if "events" in value:
            return Batch(seq, time, value["events"])
        return Batch(seq, time, data=base64.b64decode(value["data"]), content_type=value["content_type"])
    except (KeyError, ValueError, TypeError) as error:
        raise ConnectionFailed(f"cannot read a batch: {error}") from error


def encode(event: Any) -> bytes:
    """Encodes one event. NaN, infinities and lone surrogates are errors, because they are not JSON."""
    try:
        return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise ValueError("an event contains a lone surrogate, which is not valid Unicode") from error


def join(events: List[bytes]) -> bytes:
    """Builds the body of a publish from encoded events."""
    return b'{"events":[' + b",".join(events) + b"]}"
