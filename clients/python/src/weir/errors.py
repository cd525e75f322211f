"""The errors of the client, as classes that a program can tell apart."""

from __future__ import annotations

import json
import re
from typing import Mapping, Optional


class WeirError(Exception):
    """The base class of all errors of this client."""


class Refused(WeirError):
    """The service refused a request, and sending the same request again would not help.

    A Refused also stands for a temporary refusal, such as a full disk, if the service kept refusing
    until the client gave up.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        type: str = "",
        code: str = "",
        request_id: str = "",
        doc_url: str = "",
        retry_after: float = 0,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message)
        #: HTTP status of the response.
        self.status = status
        #: The category, such as ``not_found_error``.
        self.type = type
        #: Error code for programs, such as ``stream_not_found``.
        self.code = code
        #: Id of the request. Quote it when you ask the operator for help.
        self.request_id = request_id
        #: Link to the explanation of the code.
        self.doc_url = doc_url
        #: Seconds to wait before a retry, if the service asked for it; otherwise 0.
        self.retry_after = retry_after
        #: Whether an attempt of the call may have succeeded: an earlier response was lost, or the service
        #: said that the outcome is unknown.
        self.outcome_unknown = outcome_unknown


class ConnectionFailed(WeirError):
    """The service could not be reached, the connection broke, or a response did not come from Weir."""

    #: Whether the service may have received the request.
    sent = True


def unsent(message: str) -> ConnectionFailed:
    """Returns the error for a request that was not sent, because there is no connection or no key."""
    error = ConnectionFailed(message)
    error.sent = False
    return error


class OutcomeUnknown(ConnectionFailed):
    """A change may or may not have happened: an attempt was sent, and no response says how it ended.

    For a publish, ``idempotency_key`` is the key that was sent. Publish again with the same key to
    find out: the batch is stored at most once.
    """

    def __init__(self, message: str, idempotency_key: str = "") -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key


class StreamReset(WeirError):
    """The stream is not the one that the client knew. Start again from the oldest batch.

    Either the stream was deleted and created again, so that sequence numbers of the old stream mean
    nothing in the new one. Or it was restored from a backup that is older than the position. In that
    case ``before`` and ``now`` are the same.
    """

    def __init__(self, message: str, before: str, now: str) -> None:
        super().__init__(message)
        #: When the stream that the client knew was created.
        self.before = before
        #: When the present stream was created.
        self.now = now


class PublishError(WeirError):
    """A publisher failed. From then on it sends nothing.

    ``reason`` is one of:

    - ``refused``: the service refused the batch; ``__cause__`` is the :class:`Refused`,
    - ``taken``: another publisher stored a batch under this sequence number,
    - ``gap_closed``: the service closed the gap at this sequence number; the batch is not stored,
    - ``evicted``: the stream has moved past this sequence number, and the service no longer knows
      whether the batch was stored there before,
    - ``reset``: the stream was created again, or ends below what this publisher has stored because it
      was restored from a backup,
    - ``given_up``: nothing was acknowledged within ``give_up`` seconds,
    - ``closed``: the publisher is closed.
    """

    def __init__(self, reason: str, message: str, seq: int = -1) -> None:
        super().__init__(message)
        self.reason = reason
        #: Sequence number of the batch that failed; -1 if the error is not about a batch.
        self.seq = seq


#: Statuses after which the same request may succeed.
TEMPORARY = frozenset((408, 425, 429, 500, 502, 503, 504))


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> WeirError:
    """Turns a response that is not a success into an error.

    A response without Weir's error object came from something in between, such as a proxy without a
    backend or the login page of a network. Such a response says nothing about the request, so it
    counts as a failed connection.
    """
    try:
        error = json.loads(body)["error"]
        code, message = error["code"], error["message"]
        # Hosting platforms answer in place of the service with similar objects, but with other codes.
        if not isinstance(code, str) or not re.fullmatch("[a-z_]+", code):
            raise ValueError("not a code of Weir")
    except (ValueError, KeyError, TypeError):
        if 300 <= status < 400 and headers.get("location"):
            return ConnectionFailed(f"redirected to {headers['location']}; use that address as the URL of the client")
        return ConnectionFailed(f"status {status} from something that is not Weir")
    return Refused(
        f"{code}: {message}",
        status=status,
        type=str(error.get("type", "")),
        code=code,
        request_id=headers.get("x-request-id", ""),
        doc_url=str(error.get("doc_url", "")),
        retry_after=retry_after(headers),
        outcome_unknown=headers.get("x-svc-outcome") == "unknown",
    )


def retry_after(headers: Mapping[str, str]) -> float:
    """Returns the seconds that the service asks the client to wait, or 0."""
    text = headers.get("retry-after", "")
    return float(text) if text.isdigit() and len(text) <= 5 else 0.0


def transient(error: Optional[BaseException]) -> bool:
    """Reports whether a retry may succeed."""
    return isinstance(error, ConnectionFailed) or (isinstance(error, Refused) and error.status in TEMPORARY)
