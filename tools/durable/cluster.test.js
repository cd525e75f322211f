// The conformance suite on a cluster of three nodes. The requests go to the nodes in turn, so every
// node must know at once what the others have done.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { afterAll, beforeAll } from "vitest";

import { startCluster } from "./server.js";

const options = { baseUrl: "", longPollTimeoutMs: 2000 };
const { fetch } = globalThis;
let cluster;

beforeAll(async () => {
  cluster = await startCluster();
  const [first] = cluster.urls;
  let turn = 0;
  options.baseUrl = `${first}/ds`;
  globalThis.fetch = (input, init) => fetch(String(input).replace(first, cluster.urls[turn++ % 3]), init);
});
afterAll(() => {
  globalThis.fetch = fetch;
  return cluster?.end();
});

runConformanceTests(options);
