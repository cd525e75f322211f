// The messages that each toolkit expects in a stream: those that begin an answer, one per token, and those that end it.

import { toMessageEchoChunks } from "@durable-streams/tanstack-ai-transport";

export const formats = {
  // The Vercel AI SDK has a stream per answer, which is closed when the answer is complete.
  aisdk: ({ id }) => ({
    path: `answers/${id}`,
    begin: [{ type: "start", messageId: id }, { type: "text-start", id: "text" }],
    token: (delta) => ({ type: "text-delta", id: "text", delta }),
    end: [{ type: "text-end", id: "text" }, { type: "finish" }],
    closes: true,
    isOwn: () => true,
  }),

  // TanStack AI has a stream per chat, with the messages of the user too.
  tanstack: ({ id, chat, message }) => ({
    path: `sessions/${chat}`,
    begin: [
      ...toMessageEchoChunks(message),
      { type: "RUN_STARTED", runId: id, threadId: chat },
      { type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" },
    ],
    token: (delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: id, delta }),
    end: [{ type: "TEXT_MESSAGE_END", messageId: id }, { type: "RUN_FINISHED", runId: id, threadId: chat, finishReason: "stop" }],
    closes: false,
    isOwn: ({ messageId, runId }) => [id, message.id].includes(messageId ?? runId),
  }),
};
