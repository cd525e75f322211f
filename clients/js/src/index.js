// The client for Weir, for browsers and Node. README.md has an introduction.

export { Client } from "./client.js";
export { ConnectionError, GapError, PublishError, ResetError, WeirError } from "./errors.js";
export { Publisher } from "./publisher.js";
export { Subscription } from "./subscription.js";

/** @typedef {import("./publish.js").Ack} Ack */
/** @typedef {import("./client.js").ClientOptions} ClientOptions */
/** @typedef {import("./client.js").NewStream} NewStream */
/** @typedef {import("./client.js").PageOptions} PageOptions */
/** @typedef {import("./client.js").Stream} Stream */
/** @typedef {import("./client.js").StreamChange} StreamChange */
/**
 * @template [T=any]
 * @typedef {import("./payload.js").Batch<T>} Batch
 */
/** @typedef {import("./payload.js").Gap} Gap */
/**
 * @template [T=any]
 * @typedef {import("./payload.js").Page<T>} Page
 */
/** @typedef {import("./publisher.js").PublisherOptions} PublisherOptions */
/** @typedef {import("./publisher.js").Unacknowledged} Unacknowledged */
/** @typedef {import("./subscription.js").SubscribeOptions} SubscribeOptions */
/** @typedef {import("./subscription.js").Position} Position */
