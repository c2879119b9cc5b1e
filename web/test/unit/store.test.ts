import assert from "node:assert/strict";
import { test } from "node:test";
import { clientOf, json, stream, type Answer } from "./server.js";

const id = "ses_" + "0".repeat(32);

/** Answers by path: a session with a queue, and a stream that stays open. */
function answer(prompts: unknown[], frames: string[]): Answer {
  return (request, signal) => {
    const path = new URL(request.url).pathname;
    if (path.endsWith("/blocks")) return json({ conversations: [], seq: 1 })(request, signal);
    if (path.endsWith("/prompts")) return json({ items: prompts, nextCursor: null })(request, signal);
    if (path.endsWith("/events")) return stream(frames, "stay")(request, signal);
    return json({ id, queue: { queued: prompts.length, processing: 0, unknown: 0, held: false }, questions: { open: 0 } })(request, signal);
  };
}

test("a queue is in the order in which its prompts run", { timeout: 20_000 }, async () => {
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
