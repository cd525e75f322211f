// Compiled but never run: it checks the types of the package as a TypeScript program sees them.

import { Client, ConnectionError, PublishError, WeirError } from "weir-client";
import type { Ack, Batch, Gap, Position, Publisher, Stream, SubscribeOptions, Subscription } from "weir-client";

export async function use(signal: AbortSignal): Promise<void> {
  const client = new Client({ url: "http://127.0.0.1:8080", key: async () => "svc_test_", giveUp: 3000 });
  const stream: Stream = await client.createStream({ name: "x", mode: "raw" }, { signal });
  const at: Date = stream.createdAt;
  for await (const one of client.streams({ pageSize: 10 })) await client.deleteStream(one);
  const ack: Ack = await client.publish(stream, [1, "two", { at }], { idempotencyKey: "mine" });
  const duplicate: boolean = (await client.publishAt(stream.id, ack.seq + 1, new Uint8Array(3))).duplicate;
  const publisher: Publisher = await client.publisher(stream, { inFlight: 8, onAck: ({ seq }) => void seq.toFixed(), signal });
  await publisher.add({ duplicate });
  await publisher.addBytes(new ArrayBuffer(3));
  await publisher.close({ signal });
  const options: SubscribeOptions = { cursor: "oldest", onRetry: (error, wait) => void (error.message + wait.toFixed()) };
  const subscription: Subscription<{ item: string }> = client.subscribe<{ item: string }>(stream, options);
  for await (const { item } of subscription.events({ onGap: ({ from }) => void from.toFixed() })) void item.length;
  const readable: ReadableStream<{ item: string }> = client.subscribe<{ item: string }>(stream, { after: 7 }).readable();
  await readable.cancel();
  // @ts-expect-error: the events have no such member
  for await (const { price } of subscription.events()) void price;
  for await (const batch of subscription) {
    const same: Batch<{ item: string }> = batch;
    const gap: Gap | undefined = same.gap;
    const bytes: Uint8Array | undefined = batch.data;
    const position: Position | undefined = subscription.position;
    if (position) client.subscribe(stream, { after: position });
    void [gap, bytes, position];
  }
  try {
    // @ts-expect-error: not a valid mode
    await client.createStream({ name: "x", mode: "text" });
    // @ts-expect-error: a sequence number must be passed as after, not as cursor
    client.subscribe(stream, { cursor: 0 });
    // @ts-expect-error: events come in an array
    await client.publish(stream, "x");
  } catch (error) {
    if (error instanceof WeirError) void [error.code, error.status.toFixed(), error.requestId, error.docUrl, error.retryAfter];
    if (error instanceof PublishError && error.reason === "taken") void error.seq.toFixed();
    if (error instanceof ConnectionError) void [error.cause, error.outcomeUnknown, error.idempotencyKey.length];
  }
}
