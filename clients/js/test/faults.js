// Publishes and subscribes while random faults occur. The function runs in Node, and its source text is also put into the page
// of a browser, so it uses nothing but its arguments.

/**
 * Publishes and subscribes at the same time, and returns what both saw.
 *
 * @param {typeof import("../src/index.js").Client} Client
 * @param {import("../src/index.js").ClientOptions} settings
 * @param {{stream: string, events: number, batchEvents: number, inFlight: number, size: number}} work
 */
export async function publishAndSubscribe(Client, settings, { stream, events, batchEvents, inFlight, size }) {
  const client = new Client({ ...settings, timeout: 5000, giveUp: 120_000 });
  const seen = [];
  const numbers = [];
  const following = (async () => {
    for await (const batch of client.subscribe(stream, { cursor: "oldest", silence: 5000 })) {
      seen.push(batch.gap ? `gap ${batch.gap.from} to ${batch.gap.to}` : batch.seq);
      for (const [n] of batch.events) numbers.push(n);
      if (numbers.length >= events) break;
    }
  })();
  const acks = [];
  const publisher = await client.publisher(stream, { batchEvents, inFlight, onAck: ({ seq }) => acks.push(seq) });
  for (let n = 0; n < events; n++) await publisher.add([n, "x".repeat(n % 100 === 0 ? size : 1)]);
  await publisher.close();
  await following;
  return { seen, numbers, acks };
}
