"""Single calls: retries, keys, and answers that did not come from Weir."""

from __future__ import annotations

import secrets
import threading
from typing import Any, List, Optional

from .fixtures import KEY, Scripted, Server, TestCase, refused, response

import weir

STREAM = "s" * 22
OBJECT = {
    "id": STREAM, "name": "n", "created_at": "2026-01-01T00:00:00.000Z", "retention_seconds": 60,
    "max_bytes": 1048576, "cursor": 0, "bytes_stored": 0, "mode": "json",
}  # fmt: skip


def ack(seq: int = 1, **more: object) -> object:
    return {"stream_id": STREAM, "seq": seq, "accepted": 1, "cursor": seq, "duplicate": False, **more}


def different_key() -> str:
    """A key function that returns another key each time."""
    return "svc_live_" + secrets.token_hex(16)


class ClientTest(TestCase):
    def test_round_trip(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("orders", retention_seconds=3600, max_bytes=1 << 20)
        self.assertEqual((stream.name, stream.retention_seconds, stream.max_bytes, stream.mode), ("orders", 3600, 1 << 20, "json"))
        events = [{"ä": 1}, "text", None, 1.5, [True]]
        first = client.publish(stream, events, idempotency_key="one")
        again = client.publish(stream, ["other"], idempotency_key="one")
        self.assertEqual((first.seq, first.accepted, first.duplicate), (1, 5, False))
        self.assertEqual((again.seq, again.accepted, again.duplicate), (1, 5, True))
        self.assertEqual(client.publish_at(stream, 2, [2]).seq, 2)
        self.assertEqual(client.batch(stream, 1).events, events)
        self.assertEqual(client.cursor(stream).cursor, 2)
        self.assertEqual(client.stream(stream).cursor, 2)
        more = {client.create_stream(f"s{n}").id for n in range(105)}  # more than a page
        self.assertLessEqual(more | {stream.id}, {s.id for s in client.streams()})
        client.delete_stream(stream)
        with self.assertRaises(weir.Refused) as caught:
            client.stream(stream)
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "stream_not_found"))
        self.assertTrue(caught.exception.request_id.startswith("req_"))

    def test_raw(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("bytes", mode="raw")
        self.assertEqual(client.publish(stream, b"\x00\xff").accepted, 1)
        batch = client.batch(stream, 1)
        self.assertEqual((batch.data, batch.content_type), (b"\x00\xff", "application/octet-stream"))

    def test_lost_response(self) -> None:
        """A publish whose response is lost is sent again with the same key."""
        answers = [None, None, response(202, ack())]
        server = Scripted(self, lambda request: answers.pop(0))
        server.client().publish(STREAM, [1])
        keys = {line for request in server.requests for line in request.split(b"\r\n") if line.startswith(b"Idempotency-Key")}
        self.assertEqual((len(server.requests), len(keys)), (3, 1))

    def test_closed_during_a_call(self) -> None:
        """A call that ends after its client was closed keeps no connection open."""

        def answer(request: bytes) -> bytes:
            client.close()
            return response(202, ack())

        client = weir.Client(Scripted(self, answer).url)
        self.assertEqual(client.publish(STREAM, [1]).seq, 1)
        del client, answer  # the fixture fails the test if this leaves a connection open

    def test_outcome_unknown(self) -> None:
        """When the client gives up, the error has the key with which the program can find out more."""
        server = Scripted(self, lambda request: None)
        with self.assertRaises(weir.OutcomeUnknown) as caught:
            server.client(give_up=0.2).publish(STREAM, [1])
        self.assertIn(caught.exception.idempotency_key.encode(), server.requests[0])

    def test_service_does_not_know_the_outcome(self) -> None:
        """The service can say that the outcome is unknown. Other refusals mean that nothing was stored."""
        fields = {"x_svc_outcome": "unknown"}
        server = Scripted(self, lambda request: refused(503, "storage_unavailable", **fields))
        with self.assertRaises(weir.OutcomeUnknown) as caught:
            server.client(give_up=0.2).publish(STREAM, [1])
        self.assertIn(caught.exception.idempotency_key.encode(), server.requests[0])
        fields.clear()
        with self.assertRaises(weir.Refused):
            server.client(give_up=0.2).publish(STREAM, [1])

    def test_not_weir(self) -> None:
        """A response that did not come from Weir is neither a success nor a refusal."""
        garbage = [
            response(200, b"<html>welcome to this hotel</html>"),
            response(200, {"status": "ok"}),
            response(202, ack(stream_id="t" * 22)),
            response(404, b"no such ingress"),
            response(404, {"error": {"code": "404", "message": "The page could not be found"}}),
            response(403, b"forbidden"),
            response(521, b""),
        ]
        server = Scripted(self, lambda request: garbage.pop(0) if garbage else response(202, ack()))
        self.assertEqual(server.client().publish(STREAM, [1]).seq, 1)
        self.assertEqual(len(server.requests), 8)

    def test_foreign_success(self) -> None:
        """A login page that answers every request with 200 is not taken for a stream, a list, a batch or a deletion."""
        foreign = [b'{"status":"ok"}', b'{"status":"ok"}', b"<html>"]
        batch = {"seq": 7, "ts": "2026-01-01T00:00:00.000Z", "events": [1]}
        calls: List[Any] = [
            (lambda client: client.stream(STREAM).name, response(200, OBJECT), "n"),
            (lambda client: [s.name for s in client.streams()], response(200, {"data": [OBJECT]}), ["n"]),
            (lambda client: client.batch(STREAM, 7).events, response(200, batch), [1]),
            (lambda client: client.delete_stream(STREAM), b"HTTP/1.1 204 X\r\n\r\n", None),
        ]
        for call, right, want in calls:
            answers: List[bytes] = [response(200, text) for text in foreign] + [right]
            server = Scripted(self, lambda request: answers.pop(0))
            self.assertEqual(call(server.client()), want)
            self.assertEqual(answers, [])

    def test_redirect(self) -> None:
        server = Scripted(self, lambda request: response(308, b"", Location="https://elsewhere.example/"))
        with self.assertRaises(weir.ConnectionFailed) as caught:
            server.client(give_up=0.1).stream(STREAM)
        self.assertIn("https://elsewhere.example/", str(caught.exception))

    def test_temporary_refusal(self) -> None:
        answers = [refused(503, "storage_unavailable"), refused(429, "rate_limited", retry_after="0"), response(200, OBJECT)]
        server = Scripted(self, lambda request: answers.pop(0))
        self.assertEqual(server.client().stream(STREAM).name, "n")

    def test_created_before(self) -> None:
        """If a create is answered by 'taken' because an earlier attempt got through, the stream is returned."""
        answers = [None, refused(409, "stream_name_taken"), response(200, OBJECT)]
        server = Scripted(self, lambda request: answers.pop(0))
        self.assertEqual(server.client().create_stream("n").id, STREAM)
        answers[:] = [None, refused(409, "stream_name_taken"), response(200, OBJECT)]
        self.assertEqual(server.client().create_stream("n", id=STREAM).id, STREAM)

    def test_taken(self) -> None:
        """A stream that this call cannot have created is not returned."""
        taken = refused(409, "stream_name_taken")
        cases: List[List[Optional[bytes]]] = [
            [taken],
            [refused(429, "rate_limited", retry_after="0"), taken],  # no attempt was carried out
            [None, taken, response(200, dict(OBJECT, name="other"))],
            [None, taken, refused(403, "project_forbidden")],
        ]
        for answers in cases:
            server = Scripted(self, lambda request: answers.pop(0))
            with self.assertRaises(weir.Refused) as caught:
                server.client().create_stream("n", id=STREAM)
            self.assertEqual((caught.exception.code, answers), ("stream_name_taken", []))

    def test_taken_unknown(self) -> None:
        """If the client cannot find out whether it has created the stream, it does not say that the name is taken."""
        answers: List[Optional[bytes]] = [None, refused(409, "stream_name_taken")]
        busy = refused(503, "storage_unavailable")
        server = Scripted(self, lambda request: answers.pop(0) if answers else busy)
        with self.assertRaises(weir.Refused) as caught:
            server.client(give_up=0.5).create_stream("n", id=STREAM)
        self.assertEqual(caught.exception.code, "storage_unavailable")

    def test_deleted_before(self) -> None:
        """A delete is a success if the stream is gone because an earlier attempt got through."""
        gone = refused(404, "stream_not_found")
        answers = [None, gone]
        server = Scripted(self, lambda request: answers.pop(0))
        server.client().delete_stream(STREAM)
        for refusals in ([gone], [refused(429, "rate_limited", retry_after="0"), gone]):
            answers[:] = refusals
            with self.assertRaises(weir.Refused) as caught:
                server.client().delete_stream(STREAM)
            self.assertEqual((caught.exception.code, caught.exception.outcome_unknown), ("stream_not_found", False))

    def test_key_function(self) -> None:
        """When the service refuses a key, the client asks the key function for another one."""
        server = Server(self)
        keys = ["svc_live_" + "b" * 32, KEY]
        client = server.client(self, key=lambda: keys.pop(0))
        client.create_stream("x")
        self.assertEqual(keys, [])
        with self.assertRaises(weir.Refused):
            server.client(self, key="svc_live_" + "b" * 32).create_stream("x")

    def test_refused_keys(self) -> None:
        """A call asks for another key once. It does not go on while each new key is refused too."""
        server = Scripted(self, lambda request: response(200, OBJECT) if len(server.requests) > 9 else refused(401, "invalid_api_key"))
        client = server.client(different_key)
        with self.assertRaises(weir.Refused) as caught:
            client.stream(STREAM)
        self.assertEqual((caught.exception.code, len(server.requests)), ("invalid_api_key", 2))

    def test_failing_key_function(self) -> None:
        """A function that fails or returns no key is asked again. A key that is not valid is not remembered."""
        keys: List[Any] = [OSError("no network"), "first", OSError("no network"), "second", None, "two words", "third"]

        def ask() -> Any:
            key = keys.pop(0)
            if isinstance(key, OSError):
                raise key
            return key

        answers = [refused(401, "invalid_api_key"), response(200, OBJECT), refused(401, "invalid_api_key")]
        server = Scripted(self, lambda request: answers.pop(0) if answers else response(200, OBJECT))
        client = server.client(ask)
        self.assertEqual(client.stream(STREAM).name, "n")
        for _ in range(2):
            with self.assertRaises(ValueError):
                client.stream(STREAM)
        self.assertEqual(client.stream(STREAM).name, "n")
        sent = [line[-6:].strip() for request in server.requests for line in request.split(b"\r\n") if line.startswith(b"Authorization")]
        self.assertEqual((sent, keys), ([b"first", b"second", b"second", b"third"], []))

        def fail() -> str:
            raise OSError("no network")

        with self.assertRaisesRegex(weir.ConnectionFailed, "cannot get a key: no network") as caught:
            server.client(fail, give_up=0.1).delete_stream(STREAM)
        self.assertNotIsInstance(caught.exception, weir.OutcomeUnknown)  # nothing was sent

    def test_hanging_server(self) -> None:
        """A server that accepts connections and never answers does not delay give_up."""
        over = threading.Event()
        self.addCleanup(over.set)

        def hang(request: bytes) -> None:
            over.wait()

        server = Scripted(self, hang)
        client = server.client(timeout=3600, give_up=0.1)
        with self.assertRaises(weir.OutcomeUnknown):
            client.publish(STREAM, [1])
        with self.assertRaises(weir.ConnectionFailed):
            server.client(timeout=3600, give_up=3600).publisher(STREAM, give_up=0.1)
        with self.assertRaises(weir.ConnectionFailed):
            next(iter(client.subscribe(STREAM, silence=3600, give_up=0.1)))
        with self.assertRaises(weir.ConnectionFailed):
            next(iter(client.subscribe(STREAM, after=weir.Position(1, "x"), silence=3600, give_up=0.1)))

    def test_large_body(self) -> None:
        """A body is sent in pieces, because the timeout of a socket applies to all that is sent at once."""
        client = Server(self).client(self)
        stream = client.create_stream("x", mode="raw")
        sizes: List[int] = []

        class Measured:
            def __init__(self, sock: Any) -> None:
                self._sock = sock

            def __getattr__(self, name: str) -> Any:
                return getattr(self._sock, name)

            def sendall(self, data: bytes) -> None:
                sizes.append(len(data))
                self._sock.sendall(data)

        client.close()  # so that the next request opens a connection
        endpoint = client._caller.endpoint
        connect = endpoint.connect
        endpoint.connect = lambda *limit: Measured(connect(*limit))  # type: ignore
        body = bytes(range(256)) * 4096
        self.assertEqual(client.publish(stream, body).seq, 1)
        self.assertLessEqual(max(sizes), 64 << 10)
        self.assertEqual(client.batch(stream, 1).data, body)
        self.assertEqual(client.publish(stream, b"").seq, 2)

    def test_arguments(self) -> None:
        for url in ("127.0.0.1:8080", "ftp://x", "http://x?y"):
            with self.assertRaises(ValueError):
                weir.Client(url)
        client = weir.Client("http://127.0.0.1:1", give_up=0)
        wrong: List[Any] = ["text", 1, None]
        for events in wrong:
            with self.assertRaises(TypeError):
                client.publish(STREAM, events)
        for value in (float("nan"), "\ud800"):
            with self.assertRaises(ValueError):
                client.publish(STREAM, [value])
        for seq in (-1, 2**53, True):
            with self.assertRaises(ValueError):
                client.batch(STREAM, seq)
