// The page for the Vercel AI SDK. With React, useChat from @ai-sdk/react takes the place of the class Chat.

import { createDurableChatTransport } from "@durable-streams/aisdk-transport";
import { AbstractChat } from "ai";

import { chat, listen, show } from "./view.js";

class Chat extends AbstractChat {
  constructor({ messages, ...options }) {
    const state = {
      status: "ready",
      error: undefined,
      get messages() {
        return messages;
      },
      set messages(list) {
        show((messages = list));
      },
      pushMessage: (message) => (state.messages = [...messages, message]),
      popMessage: () => (state.messages = messages.slice(0, -1)),
      replaceMessage: (i, message) => (state.messages = messages.with(i, structuredClone(message))),
      snapshot: (value) => structuredClone(value),
    };
    super({ ...options, state });
    show(messages);
  }
}

const transport = createDurableChatTransport({ api: "/api/aisdk", reconnectApi: `/api/aisdk/resume?chat=${chat}` });
let client;

/** Gets the messages of the chat, and follows an answer that is still being written. */
async function restore() {
  try {
    const messages = await (await fetch(`/api/aisdk/messages?chat=${chat}`)).json();
    client = new Chat({ id: chat, messages, transport, onError: restoreSoon });
  } catch {
    return restoreSoon();
  }
  if (client.lastMessage?.role === "user") await client.resumeStream();
}

/** Restores the chat after the connection to the backend has broken. */
function restoreSoon() {
  setTimeout(restore, 500);
}

listen((text) => client.sendMessage({ text }));
await restore();
