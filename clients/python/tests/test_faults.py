"""Random faults between the client and a server with default settings.

WEIR_SCHEDULES is the number of schedules, 3 by default. WEIR_SEED repeats those of a failed run.
"""

from __future__ import annotations

import os
import random
import threading
import unittest
from typing import List

from .fixtures import KEY, PATIENCE, Faults, Server

import weir

EVENTS = 3000


class FaultsTest(unittest.TestCase):
    def test_schedules(self) -> None:
        """Every event is stored once and in order, delivered once and in order, and every acknowledgement is true."""
        seed = int(os.environ.get("WEIR_SEED") or random.randrange(2**53))
        server = Server(self)
        for n in range(int(os.environ.get("WEIR_SCHEDULES") or 3)):
            with self.subTest(f"WEIR_SEED={seed + n} WEIR_SCHEDULES=1"):
                self.schedule(server, seed + n)

    def schedule(self, server: Server, seed: int) -> None:
        proxy = Faults(self, server.address)
        chance = random.Random(seed)
        stream = server.client(self).create_stream("faults")
        client = weir.Client(proxy.url, KEY, timeout=5)
        self.addCleanup(client.close)

        seen: List[weir.Batch] = []
        failures: List[BaseException] = []

        def follow() -> None:
            try:
                count = 0
                for batch in client.subscribe(stream, "oldest", silence=5):
                    seen.append(batch)
                    count += len(batch.events)
                    if count >= EVENTS:
                        return
            except BaseException as error:
                failures.append(error)

        def faults() -> None:
            try:
                proxy.do(play={"seed": seed, "steps": 4})
                if chance.random() < 0.5:
                    server.kill()
                    server.again()
                proxy.do(play={"seed": seed + 2**32, "steps": 2})
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, daemon=True) for work in (follow, faults)]
        for thread in threads:
            thread.start()
        acks: List[weir.Ack] = []
        size = chance.choice((1, 200, 5000))
        with client.publisher(stream, batch_events=chance.choice((1, 10, 1000)), on_ack=acks.append) as publisher:
            for n in range(EVENTS):
                publisher.add([n, "x" * (size if n % 100 == 0 else 1)])
        for thread in threads:
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "the subscriber or the proxy hangs")
        self.assertEqual(failures, [])
        self.assertEqual([a.seq for a in acks], list(range(1, len(acks) + 1)))
        self.assertEqual([b.seq for b in seen], list(range(1, len(acks) + 1)))
        self.assertEqual([event[0] for batch in seen for event in batch.events], list(range(EVENTS)))
