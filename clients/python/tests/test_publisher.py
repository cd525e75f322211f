"""Tests that a publisher stores every event once and in order, and that every acknowledgement is true."""

from __future__ import annotations

import json
import threading
import unittest.mock
from typing import Any, Callable, Dict, List, Optional

from .fixtures import KEY, PATIENCE, Scripted, Server, TestCase, refused, response
from .test_client import OBJECT, STREAM, ack, different_key

import weir


def stored(client: weir.Client, stream: weir.Stream) -> List[Any]:
    """Returns all events of a stream, and checks that no sequence number is missing."""
    last, events = client.cursor(stream).cursor, []
    if last == 0:
        return []
    expected = None
    for batch in client.subscribe(stream, "oldest"):
        assert batch.gap is None and expected in (None, batch.seq), f"batch {batch.seq} instead of {expected}"
        expected = batch.seq + 1
        events += batch.events
        if batch.seq == last:
            return events
    raise AssertionError("the subscription ended")


class PublisherTest(TestCase):
    def test_many(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("many")
        acks: List[weir.Ack] = []
        with client.publisher(stream, batch_events=7, on_ack=acks.append) as publisher:
            for n in range(5000):
                publisher.add(n)
            publisher.flush()
            self.assertEqual(publisher.unacknowledged(), [])
            self.assertEqual(publisher.acknowledged, acks[-1].seq)
        self.assertEqual([a.seq for a in acks], list(range(1, len(acks) + 1)))
        self.assertEqual(stored(client, stream), list(range(5000)))
        with client.publisher(stream) as publisher:  # continues where the stream ends
            publisher.add(5000)
        self.assertEqual(stored(client, stream), list(range(5001)))

    def test_raw(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("raw", mode="raw")
        with client.publisher(stream) as publisher:
            publisher.add_bytes(b"a")
            publisher.add_bytes(b"")
            with self.assertRaises(TypeError):
                publisher.add(1)
        self.assertEqual([client.batch(stream, n).data for n in (1, 2)], [b"a", b""])

    def test_kills(self) -> None:
        """The server is killed three times while a program publishes."""
        server = Server(self)
        client = server.client(self)
        stream = client.create_stream("kills")
        with client.publisher(stream, batch_events=5) as publisher:
            for n in range(12000):
                publisher.add(n)
                if n % 3000 == 2999:
                    server.kill()
                    server.again()
        self.assertEqual(stored(client, stream), list(range(12000)))

    def test_two_publishers(self) -> None:
        """Of two publishers one fails, although both send the same events. No event is lost silently."""
        client = Server(self).client(self)
        stream = client.create_stream("two")
        first, second = client.publisher(stream), client.publisher(stream)
        first.add("same")
        first.close()
        second.add("same")
        with self.assertRaises(weir.PublishError) as caught:
            second.close()
        self.assertEqual((caught.exception.reason, caught.exception.seq), ("taken", 1))
        self.assertEqual([u.seq for u in second.unacknowledged()], [1])

    def test_evicted(self) -> None:
        """A batch whose number was already evicted gets an error, not an acknowledgement."""
        client = Server(self).client(self)
        stream = client.create_stream("small", max_bytes=1 << 20, mode="raw")
        for _ in range(3):
            client.publish(stream, bytes(900_000))
        publisher = client.publisher(stream, start_at=1)
        publisher.add_bytes(b"x")
        with self.assertRaises(weir.PublishError) as caught:
            publisher.close()
        self.assertEqual(caught.exception.reason, "evicted")
        self.assertEqual(len(publisher.unacknowledged()), 1)

    def test_closed(self) -> None:
        """A batch in a closed gap fails with the reason gap_closed, and so does a late batch 0."""
        client = Server(self, "--gap-grace", "1ms").client(self)
        stream = client.create_stream("closed")
        client.publish_at(stream, 5, ["above"])
        next(iter(client.subscribe(stream, "oldest")))  # once batch 5 is delivered, the gap below it is closed
        for seq in (0, 3):
            publisher = client.publisher(stream, start_at=seq)
            publisher.add("late")
            with self.assertRaises(weir.PublishError) as caught:
                publisher.close()
            self.assertEqual((caught.exception.reason, caught.exception.seq), ("gap_closed", seq))

    def test_renumbers(self) -> None:
        """A publisher continues above a gap that another program has left and the service has closed."""
        client = Server(self, "--gap-grace", "1ms").client(self)
        stream = client.create_stream("renumbered")
        acks: List[weir.Ack] = []
        with client.publisher(stream, batch_events=1, on_ack=acks.append) as publisher:
            for n in (1, 2):
                publisher.add(n)
            publisher.flush()
            name = publisher.id
            client.publish_at(stream, 50, ["other"])
            next(iter(client.subscribe(stream, after=2)))  # once batch 50 is delivered, the gap below it is closed
            for n in range(3, 40):
                publisher.add(n)
        self.assertEqual([a.seq for a in acks], [1, 2, *range(51, 88)])
        self.assertNotEqual(publisher.id, name)
        self.assertEqual([client.batch(stream, a.seq).events for a in acks], [[n] for n in range(1, 40)])

    def test_renumbers_when_the_service_closes_the_connection(self) -> None:
        """A service that refuses a large body also closes the connection. The publisher does not send it there again."""
        paths: List[bytes] = []

        def answer(request: bytes) -> Optional[bytes]:
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            paths.append(request.split(b" ")[1].rpartition(b"/")[2])
            if paths[-1] == b"1":
                return refused(409, "invalid_sequence", message="the gap is closed", Connection="close")
            return response(202, ack(51))

        client = Scripted(self, answer).client()
        for _ in range(20):  # the end of the connection arrives together with the refusal in some of them
            paths.clear()
            publisher = client.publisher(STREAM)
            publisher.add(1)
            publisher.close(PATIENCE)
            self.assertEqual((paths, publisher.acknowledged), ([b"1", b"publish"], 51))

    def test_does_not_renumber_a_batch_that_may_be_stored(self) -> None:
        """A batch whose outcome is unknown keeps its number: under another one it could be stored twice."""
        tries = 0

        def answer(request: bytes) -> Optional[bytes]:
            nonlocal tries
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            tries += 1
            return refused(409, "invalid_sequence", message="the gap is closed") if tries > 1 else None

        publisher = Scripted(self, answer).client().publisher(STREAM)
        publisher.add(1)
        with self.assertRaises(weir.PublishError) as caught:
            publisher.close()
        self.assertEqual((caught.exception.reason, tries), ("gap_closed", 2))
        self.assertEqual([(u.seq, u.key) for u in publisher.unacknowledged()], [(1, "")])

    def test_key_of_an_unacknowledged_batch(self) -> None:
        """If the service has stored a batch under a number of its choice, and no response says so, the key is known."""
        keys: List[bytes] = []

        def answer(request: bytes) -> Optional[bytes]:
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            if b"/publish " not in request:
                return refused(409, "invalid_sequence", message="the gap is closed")
            keys.append(request.lower().partition(b"idempotency-key: ")[2].partition(b"\r\n")[0])
            return None

        publisher = Scripted(self, answer).client().publisher(STREAM, give_up=0.5)
        publisher.add(1)
        with self.assertRaises(weir.PublishError) as caught:
            publisher.close()
        self.assertEqual(caught.exception.reason, "given_up")
        self.assertEqual({key.decode() for key in keys}, {publisher.unacknowledged()[0].key})

    def test_start_at(self) -> None:
        """The program may leave a gap on purpose below the first batch."""
        client = Server(self).client(self)
        stream = client.create_stream("holes")
        with client.publisher(stream, start_at=10, batch_events=1) as publisher:
            for n in range(20):
                publisher.add(n)
        self.assertEqual(client.cursor(stream).cursor, 29)

    def test_rate_limit(self) -> None:
        """A rate limit slows a publisher down and does not end it."""
        count = 0

        def answer(request: bytes) -> Optional[bytes]:
            nonlocal count
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            count += 1
            if count in (3, 5):
                return refused(429, "rate_limited", retry_after="0")
            seq = int(request.split(b" ")[1].rpartition(b"/")[2])
            return response(202, ack(seq), x_svc_publisher=identity(request))

        scripted = Scripted(self, answer)
        retries: List[weir.WeirError] = []
        with scripted.client().publisher(STREAM, batch_events=1, on_retry=lambda e, _: retries.append(e)) as publisher:
            for n in range(10):
                publisher.add(n)
        self.assertIn("rate_limited", str(retries[0]))

    def test_never_invents_an_acknowledgement(self) -> None:
        """Nothing but an acknowledgement of this batch counts, however many other responses come first."""
        wrong = [
            response(200, b"<html>"),
            response(200, {"status": "ok"}),
            response(202, ack(2)),
            response(202, ack(1, stream_id="t" * 22)),
            response(404, b"x"),
            response(200, b"", Transfer_Encoding="identity"),
            None,
        ]

        def answer(request: bytes) -> Optional[bytes]:
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            if wrong:
                return wrong.pop(0)
            return response(200, ack(1, duplicate=True), x_svc_publisher=identity(request))

        scripted = Scripted(self, answer)
        acks: List[weir.Ack] = []
        with scripted.client().publisher(STREAM, on_ack=acks.append) as publisher:
            publisher.add(1)
        self.assertEqual([(a.seq, a.duplicate) for a in acks], [(1, True)])
        self.assertEqual(wrong, [])

    def test_old_server(self) -> None:
        """A server without x-svc-publisher is refused, because it cannot promise that there are no gaps."""
        scripted = Scripted(self, lambda request: response(200, OBJECT) if request.startswith(b"GET") else response(202, ack(1)))
        publisher = scripted.client().publisher(STREAM)
        publisher.add(1)
        with self.assertRaisesRegex(weir.PublishError, "too old"):
            publisher.close()

    def test_give_up(self) -> None:
        """The publisher gives up on time if the server is silent, refuses everything, or closes every connection."""
        over = threading.Event()
        self.addCleanup(over.set)

        def silent() -> None:
            over.wait()

        cases: Dict[str, Callable[[], Optional[bytes]]] = {
            "silent": silent,
            "refusing": lambda: refused(503, "storage_unavailable"),
            "none": lambda: None,
        }
        for name, react in cases.items():
            with self.subTest(name):
                server = Scripted(self, lambda request: response(200, OBJECT) if request.startswith(b"GET") else react())
                failed = threading.Event()
                publisher = server.client().publisher(STREAM, give_up=0.3, on_error=lambda _: failed.set())
                publisher.add(1)
                self.assertTrue(failed.wait(PATIENCE))
                with self.assertRaises(weir.PublishError) as caught:
                    publisher.add(2)
                self.assertEqual(caught.exception.reason, "given_up")
                self.assertEqual([u.seq for u in publisher.unacknowledged()], [1])
                publisher.abort()

    def test_failing_on_error(self) -> None:
        """on_error is called once, even if it raises. The publisher keeps the reason of its failure."""
        server = Scripted(self, lambda request: response(200, OBJECT) if request.startswith(b"GET") else refused(403, "project_forbidden"))
        reported: List[weir.PublishError] = []
        raised: List[Any] = []

        def on_error(error: weir.PublishError) -> None:
            reported.append(error)
            raise RuntimeError("a fault of the program")

        with unittest.mock.patch("threading.excepthook", raised.append):
            publisher = server.client().publisher(STREAM, on_error=on_error)
            publisher.add(1)
            with self.assertRaises(weir.PublishError):
                publisher.close()
        self.assertEqual((len(reported), len(raised)), (1, 1))
        self.assertEqual(publisher.error, reported[0])

    def test_backpressure(self) -> None:
        """add waits while the buffer is full, and an abort ends the wait."""
        publisher = Scripted(self, lambda r: response(200, OBJECT) if r.startswith(b"GET") else None).client().publisher(STREAM, buffer=10)
        publisher.add("0123456789012345")  # larger than the buffer, which is empty
        with self.assertRaises(TimeoutError):
            publisher.add(1, timeout=0.01)
        publisher.abort()
        with self.assertRaises(weir.PublishError) as caught:
            publisher.add(2)
        self.assertEqual(caught.exception.reason, "closed")
        self.assertEqual([json.loads(u.body) for u in publisher.unacknowledged()], [{"events": ["0123456789012345"]}])

    def test_key_rotation(self) -> None:
        """A key that is revoked while a publisher is open is replaced."""
        server = Server(self)
        made = json.loads(server.run("key", "create", "--json", "--project", "a", "--kind", "live"))
        keys = [made.get("secret") or made["key"], KEY]
        client = server.client(self, key=lambda: keys.pop(0))
        stream = client.create_stream("rotation")
        with client.publisher(stream, batch_events=1) as publisher:
            for n in range(100):
                publisher.add(n)
                if n == 50:
                    publisher.flush()
                    server.run("key", "revoke", made["id"])
        self.assertEqual(stored(client, stream), list(range(100)))

    def test_failing_key_function(self) -> None:
        """A key function that fails once delays a publisher and does not end it."""
        refusals, asked = 0, 0

        def answer(request: bytes) -> Optional[bytes]:
            nonlocal refusals
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            if b"Bearer old" in request:
                refusals += 1
                return refused(401, "key_revoked")
            return response(202, ack(1), x_svc_publisher=identity(request))

        def ask() -> str:
            nonlocal asked
            asked += 1
            if asked in (2, 3):  # while the publisher renews the key, and when it connects again
                raise OSError("no network")
            return "old" if asked == 1 else "new"

        retries: List[str] = []
        client = Scripted(self, answer).client(ask)
        with client.publisher(STREAM, on_retry=lambda error, _: retries.append(str(error))) as publisher:
            publisher.add(1)
        self.assertEqual((retries, refusals, asked), (["cannot get a key: no network"] * 2, 1, 4))

    def test_refused_keys(self) -> None:
        """A publisher asks for another key once. It fails when that key is refused too."""
        refusals = 0

        def answer(request: bytes) -> Optional[bytes]:
            nonlocal refusals
            if request.startswith(b"GET"):
                return response(200, OBJECT)
            refusals += 1
            if refusals > 4:
                return response(202, ack(1), x_svc_publisher=identity(request))
            return refused(401, "invalid_api_key")

        publisher = Scripted(self, answer).client(different_key).publisher(STREAM)
        publisher.add(1)
        with self.assertRaises(weir.PublishError) as caught:
            publisher.close()
        self.assertEqual((caught.exception.reason, refusals), ("refused", 2))

    def test_reset(self) -> None:
        """If the stream ends below what the publisher has stored, it was restored or created again: the publisher fails."""
        client = Server(self).client(self)
        stream = client.create_stream("reset", id="r" * 22)
        publisher = client.publisher(stream, batch_events=1)
        for n in range(3):
            publisher.add(n)
        publisher.flush()
        client.delete_stream(stream)
        client.create_stream("reset", id="r" * 22)
        publisher.add(3)
        with self.assertRaises(weir.PublishError) as caught:
            publisher.close()
        self.assertEqual(caught.exception.reason, "reset")

    def test_created_again(self) -> None:
        """A stream that was created again is an error, whether or not it already holds the next batch (D39)."""
        client = Server(self).client(self)
        for filled in (1, 2):
            stream = client.create_stream("again")
            publisher = client.publisher(stream, batch_events=1)
            publisher.add(1)
            publisher.flush()
            again = stream
            while again.created_at == stream.created_at:  # until the creation time, in milliseconds, differs
                client.delete_stream(stream)
                again = client.create_stream("again", id=stream.id)
            for n in range(filled):
                client.publish(stream, [n])
            publisher.add("lost")
            with self.assertRaises(weir.PublishError) as caught:
                publisher.close()
            self.assertEqual((caught.exception.reason, caught.exception.seq), ("reset", 2))
            self.assertEqual([u.seq for u in publisher.unacknowledged()], [2])


def identity(request: bytes) -> str:
    for line in request.split(b"\r\n"):
        if line.lower().startswith(b"x-svc-publisher:"):
            return line.partition(b":")[2].strip().decode()
    return ""
