import assert from "node:assert/strict";
import { test } from "node:test";
import { clientOf, frame, json, marker, stream, unreachable, type Answer } from "./server.js";

const id = "ses_" + "0".repeat(32);

/** Responses by path: a session with a queue, and a stream that stays open. */
function answer(prompts: unknown[], frames: string[]): Answer {
  return (request, signal) => {
    const path = new URL(request.url).pathname;
    if (path.endsWith("/blocks")) return json({ conversations: [], seq: 1 })(request, signal);
    if (path.endsWith("/prompts")) return json({ items: prompts, nextCursor: null })(request, signal);
    if (path.endsWith("/events")) return stream(frames, "stay")(request, signal);
    return json({ id, queue: { queued: prompts.length, processing: 0, unknown: 0, held: false }, questions: { open: 0 } })(request, signal);
  };
}

test("a queue is in the order in which its prompts run", { timeout: 120_000 }, async () => {
  const prompt = (n: number, rank?: number) => ({ id: `p${n}`, ordinal: n, ...(rank !== undefined && { rank }), status: "queued", content: "x" });
  const promoted = {
    seq: 2, type: "queue", sessionId: id, at: "2026-01-01T00:00:00.000Z",
    data: {
      changes: [{ change: "updated", promptId: "p2", ordinal: 2, rank: -2, status: "queued" }],
      items: [], queued: 3, processing: 0, held: false,
    },
  };
  const { client } = clientOf([answer([prompt(1), prompt(2), prompt(3, -1)], [`id: 2\nevent: queue\ndata: ${JSON.stringify(promoted)}\n\n`])]);
  const store = client.session(id).store();
  const seen: string[] = [];
  await new Promise<void>((resolve) => {
    const leave = store.subscribe(() => {
      const order = store.state.queue.map((p) => p.id).join(" ");
      if (order && seen.at(-1) !== order) seen.push(order);
      if (order.startsWith("p2")) {
        leave();
        resolve();
      }
    });
  });
  store.close();
  assert.equal(seen.at(-1), "p2 p3 p1");
});

test("failed reads are repeated after the next connection", { timeout: 120_000 }, async () => {
  let broken = true;
  let streams = 0;
  const { client } = clientOf([(request, signal) => {
    const path = new URL(request.url).pathname;
    const session = (title: string) => json({ id, title, queue: { queued: 0, processing: 0, unknown: 0, held: false }, questions: { open: 0 } })(request, signal);
    if (path.endsWith("/blocks")) return json({ conversations: [], seq: 0 })(request, signal);
    if (path.endsWith("/events")) {
      if (++streams > 1) broken = false;
      return stream(streams === 1 ? [frame(1)] : [], streams === 1 ? "close" : "stay")(request, signal);
    }
    if (path.endsWith("/files")) {
      return broken ? unreachable(request, signal) : json({ items: [{ path: "a.txt", size: 1, modifiedAt: "2026-01-01T00:00:00.000Z" }], nextCursor: null })(request, signal);
    }
    if (streams === 0) return session("before");
    return broken ? unreachable(request, signal) : session("after");
  }], { attempts: 1 });
  const store = client.session(id).store();
  store.watchFiles();
  await new Promise<void>((resolve) => {
    const leave = store.subscribe(() => {
      if (store.state.files?.length !== 1 || store.state.session?.title !== "after") return;
      leave();
      resolve();
    });
  });
  store.close();
});

test("a list of files that was asked for before another load is dropped", { timeout: 120_000 }, async () => {
  let lists = 0;
  let first: ((response: Response) => void) | undefined;
  const list = (path: string) => json({ items: [{ path, size: 1, modifiedAt: "2026-01-01T00:00:00.000Z" }], nextCursor: null });
  const { client } = clientOf([async (request, signal) => {
    const path = new URL(request.url).pathname;
    if (path.endsWith("/blocks")) return json({ conversations: [], seq: 0 })(request, signal);
    if (path.endsWith("/events")) return stream(lists === 1 ? [marker("gap", { from: 1, to: 5 })] : [], "stay")(request, signal);
    if (path.endsWith("/files")) {
      if (++lists > 1) return list("new.txt")(request, signal);
      return new Promise<Response>((resolve) => (first = resolve));
    }
    return json({ id, queue: { queued: 0, processing: 0, unknown: 0, held: false }, questions: { open: 0 } })(request, signal);
  }]);
  const store = client.session(id).store();
  store.watchFiles();
  await new Promise<void>((resolve) => {
    const leave = store.subscribe(() => {
      if (store.state.files?.[0]?.path !== "new.txt") return;
      leave();
      resolve();
    });
  });
  first?.(await list("old.txt")({} as never, undefined));
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(store.state.files?.[0]?.path, "new.txt");
  store.close();
});
