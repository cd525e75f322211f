import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { afterAll, beforeAll } from "vitest";

import { startJournal } from "./server.js";

const options = { baseUrl: "", longPollTimeoutMs: 2000 };
let server;

beforeAll(async () => {
  server = await startJournal();
  options.baseUrl = `${server.urls[0]}/ds`;
});
afterAll(() => server?.end());

runConformanceTests(options);
