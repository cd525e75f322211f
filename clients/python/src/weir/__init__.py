"""The Python client for Weir, a self-hosted service that stores append-only streams of batches.

    import weir

    client = weir.Client("http://127.0.0.1:8080", key="svc_live_…")
    stream = client.create_stream("orders")
    client.publish(stream, [{"order": 1}])
    for batch in client.subscribe(stream, "oldest"):
        print(batch.seq, batch.events)
"""

from ._types import Ack, Batch, Cursor, Gap, Position, Stream
from .client import Client
from .errors import ConnectionFailed, OutcomeUnknown, PublishError, Refused, StreamReset, WeirError
from .publisher import Publisher, Unacknowledged
from .subscription import Subscription

__all__ = [
    "Ack",
    "Batch",
    "Client",
    "ConnectionFailed",
    "Cursor",
    "Gap",
    "OutcomeUnknown",
    "Position",
    "PublishError",
    "Publisher",
    "Refused",
    "Stream",
    "StreamReset",
    "Subscription",
    "Unacknowledged",
    "WeirError",
]
