"""Subscriptions: every batch once and in order, over any number of connections."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import unittest.mock
from typing import Iterator, List

from .fixtures import PATIENCE, Scripted, Server, TestCase, background, refused, response
from .test_client import STREAM, different_key

import weir


def frame(seq: int) -> bytes:
    return b'id: %d\nevent: batch\ndata: {"seq":%d,"ts":"2026-11-15T00:00:00.000Z","events":[]}\n\n' % (seq, seq)


def events(created: str, frames: bytes) -> bytes:
    """Builds the response to a subscription, which ends after these frames."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(frames)}\r\nX-Svc-Stream-Created: {created}\r\n\r\n"
    return head.encode() + frames


def take(batches: Iterator[weir.Batch], count: int) -> List[int]:
    return [next(batches).seq for _ in range(count)]


class SubscriptionTest(TestCase):
    def test_starts(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("x")
        for n in range(1, 6):
            client.publish(stream, [n])
        self.assertEqual(take(iter(client.subscribe(stream, "oldest")), 5), [1, 2, 3, 4, 5])
        self.assertEqual(take(iter(client.subscribe(stream, after=3)), 2), [4, 5])
        self.assertEqual(next(client.subscribe(stream, after=4).events()), 5)
        opened = threading.Event()
        head = client.subscribe(stream, on_open=opened.set)
        background(self, lambda: (opened.wait(PATIENCE), client.publish(stream, [6])))
        self.assertEqual(take(iter(head), 1), [6])
        self.assertEqual(head.position, weir.Position(6, stream.created_at))

    def test_restarts(self) -> None:
        """The server is stopped and killed while a subscription is open. Nothing is missed or repeated."""
        server = Server(self)
        client = server.client(self)
        stream = client.create_stream("x")
        client.publish(stream, [0])
        batches = iter(client.subscribe(stream, "oldest"))
        self.assertEqual(take(batches, 1), [1])
        for n, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
            server.kill(how)
            server.again()
            client.publish(stream, ["after"])
            self.assertEqual(take(batches, 1), [n + 2])

    def test_head_of_an_empty_stream(self) -> None:
        """A subscription at the head of an empty stream gets sequence 0, even if the server restarts before."""
        server = Server(self)
        client = server.client(self)
        stream = client.create_stream("x")
        opened = threading.Semaphore(0)
        batches = iter(client.subscribe(stream, on_open=opened.release))

        def publish() -> None:
            opened.acquire()
            server.kill()
            server.again()
            client.publish_at(stream, 0, ["zero"])

        background(self, publish)
        self.assertEqual(next(batches).events, ["zero"])

    def test_gap(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("x", mode="raw", max_bytes=1 << 20)
        for _ in range(4):
            client.publish(stream, bytes(600_000))
        batches = iter(client.subscribe(stream, after=1))
        gap, batch = next(batches), next(batches)
        self.assertEqual(gap.gap, weir.Gap(2, 3, "evicted"))
        self.assertEqual((batch.seq, batch.data), (4, bytes(600_000)))

    def test_deleted(self) -> None:
        client = Server(self).client(self)
        stream = client.create_stream("x")
        client.publish(stream, [1])
        batches = iter(client.subscribe(stream, "oldest"))
        next(batches)
        client.delete_stream(stream)
        self.assertEqual(list(batches), [])

    def test_closed(self) -> None:
        """A closed stream is read to its end, also by a subscription that starts later."""
        client = Server(self).client(self)
        stream = client.create_stream("x")
        client.publish(stream, [1])
        waiting = client.subscribe(stream, "oldest")
        batches = iter(waiting)
        next(batches)
        self.assertTrue(client.close_stream(stream).closed)
        self.assertEqual(list(batches), [])
        self.assertEqual(waiting.end_reason, "stream_closed")
        self.assertTrue(client.stream(stream).closed)
        with self.assertRaises(weir.Refused) as refused:
            client.publish(stream, [2])
        self.assertEqual(refused.exception.code, "stream_closed")
        self.assertEqual([b.seq for b in client.subscribe(stream, "oldest")], [1])

    def test_created_again(self) -> None:
        """A saved position of a deleted stream is not applied to a new stream with the same id."""
        client = Server(self).client(self)
        stream = client.create_stream("x", id="x" * 22)
        client.publish(stream, [1])
        subscription = client.subscribe(stream, "oldest")
        next(iter(subscription))
        client.delete_stream(stream)
        client.create_stream("x", id="x" * 22)
        with self.assertRaises(weir.StreamReset):
            next(iter(client.subscribe(stream, after=subscription.position)))

    def test_restored(self) -> None:
        """A stream that was restored from a backup ends below the position of the subscriber."""
        created = "2026-11-15T00:00:00.000Z"
        cursor = [41]

        def answer(request: bytes) -> bytes:
            if b"/cursor " in request:
                return response(200, {"cursor": cursor[0], "updated_at": created}, x_svc_stream_created=created)
            cursor[0] = 3  # the stream is restored, and the connection breaks
            return events(created, frame(42))

        for more in (b"", b"Connection: close\r\n"):
            cursor[0] = 41
            server = Scripted(self, lambda request: answer(request).replace(b"\r\n", b"\r\n" + more, 1))
            subscription = server.client().subscribe(STREAM, after=weir.Position(41, created))
            batches = iter(subscription)
            self.assertEqual(take(batches, 1), [42])
            subscription._retry = 0
            with self.assertRaises(weir.StreamReset) as caught:
                next(batches)
            self.assertEqual((caught.exception.before, caught.exception.now), (created, created))
            self.assertEqual(len(server.requests), 3)

    def test_future(self) -> None:
        """A sequence number in the future is not taken for a position that the stream had reached."""
        server = Scripted(self, lambda request: events("2026-11-15T00:00:00.000Z", b"event: end\ndata: {}\n\n"))
        self.assertEqual(list(server.client().subscribe(STREAM, after=41)), [])
        self.assertEqual(len(server.requests), 1)

    def test_slow_loop(self) -> None:
        """The time that a loop takes for a batch does not count as time without an answer."""
        server = Scripted(self, lambda request: None if len(server.requests) == 2 else events("", frame(len(server.requests))))
        subscription = server.client().subscribe(STREAM, "oldest", give_up=60)
        subscription._retry = 0
        clock = [0.0]
        with unittest.mock.patch("weir.subscription.time.monotonic", lambda: clock[0]):
            batches = iter(subscription)
            self.assertEqual(take(batches, 1), [1])
            clock[0] += 3600
            self.assertEqual(take(batches, 1), [3])

    def test_close(self) -> None:
        """Another thread can end a subscription that waits."""
        client = Server(self).client(self)
        stream = client.create_stream("x")
        opened = threading.Event()
        subscription = client.subscribe(stream, on_open=opened.set)
        background(self, lambda: opened.wait(PATIENCE) and subscription.close())  # type: ignore[func-returns-value]
        self.assertEqual(list(subscription), [])

    def test_close_after_connection_close(self) -> None:
        """close ends a waiting subscription, even if the response has the header field Connection: close."""
        opened = threading.Event()
        server = Scripted(self, lambda request: b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hello\n\n")
        subscription = server.client().subscribe(STREAM, on_open=opened.set, silence=PATIENCE)
        batches: List[weir.Batch] = []
        loop = threading.Thread(target=lambda: batches.extend(subscription), daemon=True)
        loop.start()
        self.assertTrue(opened.wait(PATIENCE))
        subscription.close()
        loop.join(PATIENCE / 4)
        self.assertEqual((loop.is_alive(), batches), (False, []))

    def test_close_between_heartbeats(self) -> None:
        """A subscription that was ended does not read on, although more heartbeats have arrived."""
        server = Scripted(self, lambda request: b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b": hello\n\n" * 3)
        subscription = server.client().subscribe(STREAM)
        signs = subscription._follow()
        self.assertEqual([next(signs), next(signs)], [None, None])
        subscription.close()
        self.assertEqual(list(signs), [])

    def test_not_weir(self) -> None:
        """Responses that did not come from Weir do not end a subscription. It ends after ``give_up`` seconds."""
        answers = [response(404, b"no ingress"), response(200, b"<html>"), response(403, b"")]
        server = Scripted(self, lambda request: answers.pop(0) if answers else None)
        retries: List[weir.WeirError] = []
        client = server.client()
        subscription = client.subscribe(STREAM, give_up=5, on_retry=lambda error, _: retries.append(error))
        subscription._retry = 0.05
        with self.assertRaises(weir.ConnectionFailed):
            next(iter(subscription))
        self.assertGreaterEqual(len(retries), 4)

    def test_refused(self) -> None:
        client = Server(self).client(self)
        with self.assertRaises(weir.Refused) as caught:
            next(iter(client.subscribe("z" * 22)))
        self.assertEqual(caught.exception.code, "stream_not_found")

    def test_refused_keys(self) -> None:
        """A subscription asks for another key once. It does not go on while each new key is refused too."""
        server = Scripted(self, lambda request: refused(*((404, "stream_not_found") if len(server.requests) > 9 else (401, "invalid_api_key"))))
        with self.assertRaises(weir.Refused) as caught:
            next(iter(server.client(different_key).subscribe(STREAM)))
        self.assertEqual((caught.exception.code, len(server.requests)), ("invalid_api_key", 2))

    def test_restored_server(self) -> None:
        """After a restore from an older backup, publishers and subscriptions end with an error that says so."""
        server = Server(self)
        client = server.client(self)
        stream = client.create_stream("x")
        publisher = client.publisher(stream, batch_events=1)
        publisher.add(1)
        publisher.flush()
        backup = os.path.join(tempfile.mkdtemp(prefix="weir-python-"), "backup.tar")
        self.addCleanup(shutil.rmtree, os.path.dirname(backup))
        server.run("backup", backup)
        publisher.add(2)
        publisher.flush()
        subscription = client.subscribe(stream, "oldest")
        batches = iter(subscription)
        self.assertEqual(take(batches, 2), [1, 2])
        server.kill()
        shutil.rmtree(server.data)
        server.run("restore", backup)
        server.again()
        with self.assertRaises(weir.StreamReset):
            next(batches)
        with self.assertRaises(weir.StreamReset):
            next(iter(client.subscribe(stream, after=subscription.position)))
        publisher.add(3)
        with self.assertRaises(weir.PublishError) as caught:
            publisher.close()
        self.assertEqual((caught.exception.reason, caught.exception.seq), ("reset", 3))
