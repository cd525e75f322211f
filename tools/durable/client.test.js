import { DurableStream } from "@durable-streams/client";
import { expect, test } from "vitest";

import { directory, freePorts, key, start, stop } from "./server.js";

test("the client of the protocol appends, reads, and resumes after the server was killed", async () => {
  const { path: data, remove } = directory();
  const [port] = await freePorts(1);
  let server = await start(data, port);
  const url = `http://127.0.0.1:${port}/ds/orders/2026`;
  const headers = { authorization: `Bearer ${key}` };
  try {
    const stream = await DurableStream.create({ url, headers, contentType: "application/json" });
    for (let n = 0; n < 10; n++) await stream.append(JSON.stringify({ n }));
    const first = await stream.stream({ offset: "-1", live: false });
    expect((await first.json()).map((e) => e.n)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    const offset = first.offset;

    await stop(server, "SIGKILL");
    server = await start(data, port);
    const again = await DurableStream.connect({ url, headers });
    for (let n = 10; n < 15; n++) await again.append(JSON.stringify({ n }));
    const rest = await again.stream({ offset, live: false });
    expect((await rest.json()).map((e) => e.n)).toEqual([10, 11, 12, 13, 14]);
  } finally {
    await stop(server, "SIGTERM");
    remove();
  }
});

test("after a kill, the server still knows the epoch and the last sequence of each producer", async () => {
  const { path: data, remove } = directory();
  const [port] = await freePorts(1);
  let server = await start(data, port);
  const url = `http://127.0.0.1:${port}/ds/producers`;
  const send = (epoch, seq, more = {}) =>
    fetch(url, {
      method: "POST",
      body: `${epoch}.${seq};`,
      headers: { "content-type": "text/plain", "producer-id": "p", "producer-epoch": String(epoch), "producer-seq": String(seq), ...more },
    });
  try {
    expect((await fetch(url, { method: "PUT", headers: { "content-type": "text/plain" } })).status).toBe(201);
    for (let seq = 0; seq < 5; seq++) expect((await send(0, seq)).status).toBe(200);
    expect((await send(1, 0, { "stream-seq": "a" })).status).toBe(200);
    await stop(server, "SIGKILL");
    server = await start(data, port);
    expect((await send(1, 0)).status).toBe(204); // a duplicate
    expect((await send(0, 5)).status).toBe(403); // epoch 0 is over, because epoch 1 has begun
    expect((await send(1, 2)).status).toBe(409); // sequence 1 is missing
    expect((await send(1, 1, { "stream-seq": "a" })).status).toBe(409); // stream-seq is not greater than the last one
    expect((await send(1, 1, { "stream-seq": "b", "stream-closed": "true" })).status).toBe(200);
    await stop(server, "SIGKILL");
    server = await start(data, port);
    const retried = await send(1, 1, { "stream-seq": "b", "stream-closed": "true" });
    expect([retried.status, retried.headers.get("stream-closed")]).toEqual([204, "true"]);
    expect((await send(1, 2)).status).toBe(409);
    const all = await fetch(`${url}?offset=-1`);
    expect([await all.text(), all.headers.get("stream-closed")]).toEqual(["0.0;0.1;0.2;0.3;0.4;1.0;1.1;", "true"]);
  } finally {
    await stop(server, "SIGTERM");
    remove();
  }
});
