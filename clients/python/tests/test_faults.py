"""Random faults between the client and a server with default settings.

WEIR_SCHEDULES is the number of schedules, 3 by default. WEIR_SEED repeats the schedules of a failed run.
"""

from __future__ import annotations

import os
import random
import threading
import time
import urllib.error
import urllib.request
from typing import Dict, List, Optional, Tuple

from .fixtures import KEY, PATIENCE, Disk, Faults, Server, TestCase

import weir

EVENTS = 3000


class FaultsTest(TestCase):
    def test_schedules(self) -> None:
        """Every event is stored once and in order, delivered once and in order, and every acknowledgement is true."""
        seed = int(os.environ.get("WEIR_SEED") or random.randrange(2**53))
        self.killed = self.full = self.limited = 0
        disk = Disk(self)
        server = Server(self, disk=disk if disk.mounted else None)
        count = int(os.environ.get("WEIR_SCHEDULES") or 3)
        for n in range(count):
            with self.subTest(f"WEIR_SEED={seed + n} WEIR_SCHEDULES=1"):
                self.schedule(server, disk, seed + n)
        print(
            f"{count} schedules from WEIR_SEED={seed}: server killed in {self.killed},",
            f"disk full in {self.full}, rate limit lowered in {self.limited}",
        )

    def schedule(self, server: Server, disk: Disk, seed: int) -> None:
        proxy = Faults(self, server.address)
        chance = random.Random(seed)
        near = server.client(self, give_up=PATIENCE)
        stream = near.create_stream("faults")
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

        # A kill begins a new window of the rate limit. So after 16 schedules with kills come 16 without, in
        # which windows can end.
        kill = chance.random() < 0.9 and seed // 16 % 2 == 0
        full = chance.random() < 0.25 and disk.mounted
        limited = chance.random() < 0.5
        more, hold = chance.choice((1, 20, 100)), chance.choice((0, 0.5, 2))

        def faults() -> None:
            try:
                proxy.do(play={"seed": seed, "steps": 4})
                if kill:
                    self.killed += 1
                    server.kill()
                    server.again()
                proxy.do(play={"seed": seed + 2**32, "steps": 2})
            except BaseException as error:
                failures.append(error)

        def shortages() -> None:
            try:
                if full:
                    self.full += fill(server, near, disk, hold)
                if limited:
                    self.limited += limit(server, more, hold)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, daemon=True) for work in (follow, faults, shortages)]
        for thread in threads:
            thread.start()
        acks: List[weir.Ack] = []
        size = chance.choice((1, 200, 5000))
        with client.publisher(stream, batch_events=chance.choice((1, 10, 1000)), on_ack=acks.append) as publisher:
            for n in range(EVENTS):
                publisher.add([n, "x" * (size if n % 100 == 0 else 1)])
        for thread in threads:
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "the subscriber or a fault hangs")
        self.assertEqual(failures, [])
        self.assertEqual([a.seq for a in acks], list(range(1, len(acks) + 1)))
        self.assertEqual([b.seq for b in seen], list(range(1, len(acks) + 1)))
        self.assertEqual([event[0] for batch in seen for event in batch.events], list(range(EVENTS)))
        near.delete_stream(stream)  # frees space, because the disk is small


def send(server: Server, method: str, path: str, body: Optional[bytes] = None) -> Tuple[int, Dict[str, str]]:
    """Sends a request once. The status is 0 if there is no response, because the server was killed."""
    fields = {"Authorization": "Bearer " + KEY, "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(server.url + path, body, fields, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
            return response.status, {name.lower(): value for name, value in response.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, {}
    except OSError:
        return 0, {}


def fill(server: Server, near: weir.Client, disk: Disk, hold: float) -> bool:
    """Fills the disk of a server for a while. Returns whether the server refused a batch."""
    stream = near.create_stream("fill", mode="raw")
    disk.do(fill=True)
    status = 202  # a full disk still stores some batches, because the journal has space left in its own files
    for _ in range(1000):
        if status != 202:
            break
        status, _fields = send(server, "POST", f"/v1/streams/{stream.id}/publish", bytes(4096))
    time.sleep(hold)
    disk.do(fill=False)
    near.delete_stream(stream)
    return status == 503


def limit(server: Server, more: int, hold: float) -> bool:
    """Lowers the rate limit of the key for a while, to a little more than what the key has used.

    Limited clients wait for the end of the window, so this function does nothing unless the window ends soon.
    """
    _status, fields = send(server, "GET", "/v1/streams")
    if not fields:
        return False  # the server was killed
    most, left, reset = (int(fields["x-ratelimit-" + name]) for name in ("limit", "remaining", "reset"))
    if reset - time.time() > 15:
        return False
    server.configure(f"rate-live = {most - left + more}\n")
    time.sleep(hold)
    server.configure("")
    return True
