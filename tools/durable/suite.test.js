import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { inject } from "vitest";

runConformanceTests({ baseUrl: inject("url"), longPollTimeoutMs: 2000 });
