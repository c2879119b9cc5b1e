import { OverwinterError } from "./error.js";
import type { FollowOptions } from "./follow.js";
import type { Http, WebSocketLike } from "./http.js";
import type { StreamItem } from "./types.js";
import { Watchdog } from "./watchdog.js";

/** The subprotocol whose messages are the events of the server-sent event stream. */
const protocol = "overwinter.events.v1";

/** Maximum total length in characters of unconsumed messages, excluding the last one. */
const maxWaiting = 4 << 20;

/** The close code for an expired token. */
const tokenExpired = 4401;

/**
 * Reads one WebSocket until it disconnects. The position is that of the last yielded item. A WebSocket has no
 * backpressure, so it is closed when too many messages are unconsumed, and reopened afterwards.
 */
export async function* overWebSocket(http: Http, sessionId: string, position: { seq: number | undefined }, options: FollowOptions): AsyncGenerator<StreamItem> {
  for (let first = true; ; first = false) {
    const inbox = new Inbox();
    const stop = new AbortController();
    const leave = () => stop.abort(options.signal?.reason);
    options.signal?.throwIfAborted();
    options.signal?.addEventListener("abort", leave, { once: true });
    stop.signal.addEventListener("abort", () => inbox.fail(stop.signal.reason), { once: true });
    const watchdog = new Watchdog(options.silence ?? 45_000, () => stop.abort(new Error("the stream was silent for too long")));
    try {
      await watchdog.during(opened(http, sessionId, position, inbox, stop.signal));
      if (first) options.onConnection?.("open");
      for (;;) {
        const text = await watchdog.during(inbox.next());
        if (text === undefined) break;
        const item = itemOf(text);
        if (item) yield item;
      }
      if (!inbox.full) {
        if (inbox.code === tokenExpired) http.dropToken(sessionId);
        else if (inbox.code >= 4000) await explain(http, sessionId, position, stop.signal);
        throw new Error(`the WebSocket was closed with ${inbox.code}`);
      }
    } finally {
      options.signal?.removeEventListener("abort", leave);
      inbox.close();
    }
  }
}

/**
 * Opens a WebSocket and sends its messages to inbox. Browsers do not report why a handshake was refused, so
 * the same request is then sent over HTTP.
 */
async function opened(http: Http, sessionId: string, position: { seq: number | undefined }, inbox: Inbox, signal: AbortSignal): Promise<void> {
  const socket = await http.socket("/api/sessions/{id}/ws", { id: sessionId }, { after: position.seq ?? "latest" }, protocol, signal);
  if (await inbox.attach(socket)) {
    if (socket.protocol === protocol) return;
    throw new OverwinterError({ code: "not_supported", status: 400, detail: `the server has no WebSockets with the sub-protocol ${protocol}` });
  }
  signal.throwIfAborted();
  http.dropToken(sessionId);
  await explain(http, sessionId, position, signal);
  throw new Error("the WebSocket could not be opened");
}

/** Throws the server's error if the server refuses to stream from a position. */
async function explain(http: Http, sessionId: string, position: { seq: number | undefined }, signal: AbortSignal): Promise<void> {
  const query = { after: position.seq ?? "latest", limit: 1, ...(await http.tokenQuery(sessionId, signal)) };
  await http.json("get", "/api/sessions/{id}/events", { path: { id: sessionId }, query, headers: { Accept: "application/json" }, signal, retry: false });
}

/** Parses the item of a message; undefined for connection messages and responses to requests. */
function itemOf(text: string): StreamItem | undefined {
  const message = JSON.parse(text) as { type: string; seq?: number };
  const marker = message.type === "caught_up" || message.type === "gap" || message.type === "end";
  return marker || message.seq !== undefined ? (message as StreamItem) : undefined;
}

/** The unconsumed messages of a WebSocket. */
class Inbox {
  /** The close code. */
  code = 1006;
  /** Whether the connection was closed because of too many unconsumed messages. */
  full = false;
  #socket: WebSocketLike | undefined;
  #messages: string[] = [];
  #taken = 0;
  #waiting = 0;
  #closed = false;
  #failure: { reason: unknown } | undefined;
  #changed: (() => void) | undefined;

  /** Resolves to whether the WebSocket opened. */
  attach(socket: WebSocketLike): Promise<boolean> {
    this.#socket = socket;
    return new Promise((resolve) => {
      this.#changed = () => resolve(false);
      const ended = (code: number) => {
        if (this.#closed) return;
        if (!this.full) this.code = code;
        this.#closed = true;
        this.#changed?.();
      };
      socket.onopen = () => resolve(true);
      socket.onmessage = (event: { data: unknown }) => this.#push(String(event.data));
      socket.onerror = () => ended(1006); // Node 20 sends no close event after a refused handshake
      socket.onclose = (event: { code?: number }) => ended(event.code ?? 1006);
      if (this.#failure) resolve(false);
    });
  }

  #push(text: string): void {
    if (this.full || this.#failure) return;
    this.#messages.push(text);
    this.#waiting += text.length;
    if (this.#waiting > maxWaiting) {
      this.full = true;
      this.close();
    }
    this.#changed?.();
  }

  /** Returns the next message; undefined at the end. */
  async next(): Promise<string | undefined> {
    for (;;) {
      if (this.#failure) throw this.#failure.reason;
      const text = this.#messages[this.#taken];
      if (text !== undefined) {
        this.#taken++;
        this.#waiting -= text.length;
        if (this.#taken === this.#messages.length) {
          this.#messages = [];
          this.#taken = 0;
        }
        return text;
      }
      if (this.full || this.#closed) return undefined;
      await new Promise<void>((resolve) => (this.#changed = resolve));
    }
  }

  fail(reason: unknown): void {
    this.#failure = { reason };
    this.close();
    this.#changed?.();
  }

  close(): void {
    this.#socket?.close();
  }
}
