import { createClient, OverwinterError, type ClientOptions, type StreamItem } from "@overwinter/client";
import assert from "node:assert/strict";
import { test } from "node:test";
import { clientOf, json, problem, stream, type Answer } from "./server.js";

/**
 * The script of an in-memory WebSocket: messages as objects; `open`, false if the handshake is refused; and the
 * close code.
 */
interface Script {
  open?: boolean;
  protocol?: string;
  messages?: unknown[];
  code?: number; // stays open without one
}

/** Returns a WebSocket constructor whose instances follow the scripts, in order. */
function sockets(scripts: Script[]) {
  const urls: string[] = [];
  const protocols: string[][] = [];
  const made: Fake[] = [];
  class Fake {
    onopen: ((event: unknown) => void) | null = null;
    onmessage: ((event: { data: unknown }) => void) | null = null;
    onerror: ((event: unknown) => void) | null = null;
    onclose: ((event: { code: number }) => void) | null = null;
    readonly protocol: string;
    closed = false;

    constructor(url: string, offered: string[]) {
      const script = scripts[Math.min(urls.length, scripts.length - 1)] ?? {};
      urls.push(url);
      protocols.push(offered);
      made.push(this);
      this.protocol = script.protocol ?? offered[0] ?? "";
      setTimeout(() => void this.#play(script), 0);
    }

    async #play({ open = true, messages = [], code }: Script): Promise<void> {
      if (!open) return this.onerror?.({}); // and no close, as in Node 20
      this.onopen?.({});
      for (const message of messages) {
        if (this.closed) break;
        this.onmessage?.({ data: JSON.stringify(message) });
        await Promise.resolve();
      }
      if (code !== undefined) this.#end(code);
    }

    #end(code: number): void {
      if (this.closed) return;
      this.closed = true;
      this.onclose?.({ code });
    }

    close(): void {
      setTimeout(() => this.#end(1005), 0);
    }
  }
  return { WebSocket: Fake, urls, protocols, made };
}

const event = (seq: number) => ({ seq, type: "title", sessionId: "ses_1", at: "2026-01-02T03:04:05.000Z", data: { title: `title ${seq}` } });
const caughtUp = (seq: number) => ({ type: "caught_up", data: { seq } });
const end = { type: "end", data: {} };

async function followed(scripts: Script[], options: object = {}, answers: Answer[] = [json({ items: [] })], more: Partial<ClientOptions> = {}) {
  const fake = sockets(scripts);
  const { client, requests } = clientOf(answers, { transport: "websocket", WebSocket: fake.WebSocket, ...more });
  const seen: unknown[] = [];
  for await (const item of client.session("ses_1").follow(options)) seen.push(name(item));
  return { seen, requests, ...fake };
}

function name(item: StreamItem): unknown {
  return "seq" in item ? item.seq : item.type === "end" ? "end" : [item.type, item.data];
}

test("a WebSocket that breaks continues after the last event", async () => {
  const { seen, urls, protocols } = await followed([
    { messages: [event(1), event(2)], code: 1006 },
    { messages: [event(2), event(3), caughtUp(3), { type: "heartbeat", data: {} }, event(4)], code: 1013 },
    { messages: [caughtUp(4), { type: "gap", data: { from: 5, to: 6 } }, event(7), end], code: 1000 },
  ]);
  assert.deepEqual(seen, [1, 2, 3, ["caught_up", { seq: 3 }], 4, ["gap", { from: 5, to: 6 }], 7, "end"]);
  assert.deepEqual(urls, [0, 2, 4].map((after) => `ws://api.test/api/sessions/ses_1/ws?after=${after}`));
  assert.deepEqual(protocols[0], ["overwinter.events.v1"]);
});

test("an error event is an event, and an error of the connection is not", async () => {
  const { seen } = await followed([{ messages: [{ type: "error", data: { code: "x", message: "y" } }, { ...event(1), type: "error" }, end] }]);
  assert.deepEqual(seen, [1, "end"]);
});

test("latest starts at the end of the log, and continues from there", async () => {
  const { seen, urls } = await followed([{ messages: [caughtUp(7)], code: 1001 }, { messages: [event(8), end] }], { after: "latest" });
  assert.deepEqual(seen, [["caught_up", { seq: 7 }], 8, "end"]);
  assert.deepEqual(urls.map((u) => new URL(u).search), ["?after=latest", "?after=7"]);
});

test("a handshake that is refused is explained by the same request without one", async () => {
  await assert.rejects(followed([{ open: false }], { after: 3 }, [problem(410, "position_gone")]), (e: unknown) => e instanceof OverwinterError && e.code === "position_gone");
  await assert.rejects(followed([{ messages: [event(1)], code: 4404 }], {}, [problem(404, "session_not_found")]), (e: unknown) => e instanceof OverwinterError && e.status === 404);
  const { seen, requests } = await followed([{ open: false }, { messages: [event(1), end] }], {}, [problem(503, "unavailable"), json({ items: [] })]);
  assert.deepEqual(seen, [1, "end"]);
  assert.match(requests[0]?.url ?? "", /events\?after=0&limit=1$/);
});

test("a server without the sub-protocol is an error", async () => {
  await assert.rejects(followed([{ protocol: "" }]), (e: unknown) => e instanceof OverwinterError && e.code === "not_supported");
});

test("a client with a key makes a token, and another one when it has expired", async () => {
  let tokens = 0;
  const token: Answer = (r) => json({ sessionId: "ses_1", token: `owst_${++tokens}`, expiresAt: new Date(Date.now() + 900_000).toISOString() }, 201)(r, undefined);
  const { urls, requests } = await followed(
    [{ messages: [event(1)], code: 1006 }, { messages: [event(2)], code: 4401 }, { messages: [event(3), end] }], {}, [token], { apiKey: "key" },
  );
  assert.deepEqual(urls.map((u) => new URL(u).search), ["?after=0&token=owst_1", "?after=1&token=owst_1", "?after=2&token=owst_2"]);
  assert.deepEqual(requests.map((r) => [r.method, new URL(r.url).pathname, r.headers.get("Authorization")]), Array(2).fill(["POST", "/api/sessions/ses_1/stream-tokens", "Bearer key"]));
});

test("a page without a key has tokens from elsewhere, over both transports", async () => {
  let tokens = 0;
  const streamToken = (id: string) => Promise.resolve(`${id}-${++tokens}`);
  const { urls } = await followed([{ messages: [end] }], {}, [], { streamToken });
  assert.equal(new URL(urls[0] ?? "").search, "?after=0&token=ses_1-1");
  const { client, requests } = clientOf([stream([`event: end\ndata: {}\n\n`])], { streamToken });
  for await (const item of client.session("ses_1").follow()) assert.equal(item.type, "end");
  assert.equal(new URL(requests[0]?.url ?? "").search, "?token=ses_1-2");
});

test("a connection that is silent is made again", async () => {
  const lost: unknown[] = [];
  const { seen, made } = await followed([{ messages: [event(1)] }, { messages: [event(2), end] }], {
    silence: 50, onConnection: (state: string, error: unknown) => state === "lost" && lost.push(String(error)),
  });
  assert.deepEqual(seen, [1, 2, "end"]);
  assert.deepEqual(lost, ["Error: the stream was silent for too long"]);
  await until(() => made.every((s) => s.closed));
});

test("a WebSocket is closed while too much waits for a slow reader, and nothing is lost", async () => {
  const large = (seq: number) => ({ ...event(seq), data: { title: "x".repeat(1 << 20) } });
  const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => large(from + i));
  const fake = sockets([{ messages: range(1, 20) }, { messages: range(5, 20) }, { messages: range(9, 20) }, { messages: range(13, 20) }, { messages: [...range(17, 20), end] }]);
  const { client } = clientOf([], { transport: "websocket", WebSocket: fake.WebSocket });
  const seen: number[] = [];
  const states: string[] = [];
  for await (const item of client.session("ses_1").follow({ onConnection: (state) => states.push(state) })) {
    if (!("seq" in item)) break;
    seen.push(item.seq);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.deepEqual(seen, Array.from({ length: 20 }, (_, i) => i + 1));
  assert.ok(fake.urls.length >= 3, `${fake.urls.length} connections`);
  assert.deepEqual(states, ["open"], "it is not lost");
});

test("a signal ends it, and so does the reader", async () => {
  const stop = new AbortController();
  const one = sockets([{ messages: [event(1)] }]);
  const follow = (fake: ReturnType<typeof sockets>, signal?: AbortSignal) =>
    clientOf([], { transport: "websocket", WebSocket: fake.WebSocket }).client.session("ses_1").follow({ signal });
  await assert.rejects(async () => {
    for await (const _ of follow(one, stop.signal)) stop.abort(new Error("enough"));
  }, /enough/);
  await until(() => one.made[0]?.closed === true);
  const two = sockets([{ messages: [event(1)] }]);
  for await (const _ of follow(two)) break;
  await until(() => two.made[0]?.closed === true);
});

test("a runtime without WebSockets is an error at once", async () => {
  const before = globalThis.WebSocket;
  Object.defineProperty(globalThis, "WebSocket", { value: undefined, configurable: true, writable: true });
  try {
    const client = createClient({ baseUrl: "http://api.test" });
    await assert.rejects(async () => {
      for await (const _ of client.session("ses_1").follow({ transport: "websocket" })) break;
    }, /no WebSocket/);
  } finally {
    globalThis.WebSocket = before;
  }
});

async function until(done: () => boolean): Promise<void> {
  while (!done()) await new Promise((resolve) => setTimeout(resolve, 1));
}
