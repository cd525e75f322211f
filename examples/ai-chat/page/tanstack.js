// The page for TanStack AI. With React, useChat from @tanstack/ai-react takes the place of ChatClient.

import { durableStreamConnection } from "@durable-streams/tanstack-ai-transport";
import { ChatClient } from "@tanstack/ai-client";

import { chat, listen, show } from "./view.js";

const connection = durableStreamConnection({ sendUrl: `/api/tanstack?chat=${chat}`, readUrl: `/streams/sessions/${chat}` });
const client = new ChatClient({
  threadId: chat,
  connection,
  onMessagesChange: show,
  onConnectionStatusChange: (status) => {
    if (status === "error") setTimeout(() => client.subscribe(), 500); // the connection to the backend broke: continue where it was
  },
});

listen((text) => client.sendMessage(text));
client.subscribe();
