// One random schedule of faults. It runs in Node and, as text, in the page of a browser, so it uses nothing but its arguments.

/**
 * Publishes and subscribes at the same time, and returns what both saw. Every `refuse`-th request is refused as the service
 * does it at a rate limit and when its disk is full.
 *
 * @param {typeof import("../src/index.js").Client} Client
 * @param {import("../src/index.js").ClientOptions} settings
 * @param {{stream: string, events: number, batchEvents: number, inFlight: number, size: number, refuse: number}} work
 */
export async function publishAndSubscribe(Client, settings, { stream, events, batchEvents, inFlight, size, refuse }) {
  const send = settings.fetch ?? fetch;
  let requests = 0;
  const limited = (url, init) => {
    if (++requests % refuse > 0) return send(url, init);
    const [status, code] = (requests / refuse) % 2 ? [429, "rate_limited"] : [503, "storage_unavailable"];
    return Promise.resolve(new Response(JSON.stringify({ error: { code, message: "a test" } }), { status, headers: { "retry-after": "1" } }));
  };
  const client = new Client({ ...settings, timeout: 5000, giveUp: 120_000, fetch: limited });
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
