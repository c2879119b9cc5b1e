import { OverwinterError, type StreamItem } from "@overwinter/client";
import assert from "node:assert/strict";
import { test } from "node:test";
import { clientOf, frame, marker, problem, stream, unreachable, type Answer } from "./server.js";

const end = marker("end", {});

/** The followed items: the seq of events, and the types of markers with their data. */
async function followed(answers: Answer[], options: Parameters<ReturnType<typeof clientOf>["client"]["session"]>[0] extends string ? object : never = {}) {
  const { client, requests } = clientOf(answers);
  const seen: unknown[] = [];
  for await (const item of client.session("ses_1").follow(options)) seen.push(name(item));
  return { seen, requests };
}

function name(item: StreamItem): unknown {
  return "seq" in item ? item.seq : item.type === "end" ? "end" : [item.type, item.data];
}

test("a connection that breaks continues after the last event", async () => {
  const { seen, requests } = await followed([
    stream([frame(1), frame(2), frame(3).slice(0, 30)], "break"),
    unreachable,
    problem(503, "unavailable"),
    stream([frame(2), frame(3), marker("caught_up", { seq: 3 }), frame(4)]),
    stream([marker("caught_up", { seq: 4 }), frame(5), end]),
  ]);
  assert.deepEqual(seen, [1, 2, 3, ["caught_up", { seq: 3 }], 4, 5, "end"]);
  assert.deepEqual(requests.map((r) => r.headers.get("Last-Event-ID")), [null, "2", "2", "2", "4"]);
});

test("messages may be cut at every byte", async () => {
  const text = frame(1, "title", { title: "süß 🐻" }) + ": heartbeat\n\n" + frame(2).replaceAll("\n", "\r\n") + end;
  const bytes = new TextEncoder().encode(text);
  const answer: Answer = () => {
    let i = 0;
    const body = new ReadableStream<Uint8Array>({ pull: (c) => (i < bytes.length ? c.enqueue(bytes.slice(i, ++i)) : c.close()) });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
  const { client } = clientOf([answer]);
  const seen: StreamItem[] = [];
  for await (const item of client.session("ses_1").follow()) seen.push(item);
  assert.deepEqual(seen.map(name), [1, 2, "end"]);
  assert.equal(seen[0]?.type === "title" && seen[0].data.title, "süß 🐻");
});

test("gaps are reported, also those that the server does not report", async () => {
  const { seen } = await followed([stream([marker("gap", { from: 1, to: 4 }), frame(5)], "break"), stream([frame(8), end])]);
  assert.deepEqual(seen, [["gap", { from: 1, to: 4 }], 5, ["gap", { from: 6, to: 7 }], 8, "end"]);
});

test("latest starts at the end of the log, and continues from there", async () => {
  const { seen, requests } = await followed([stream([marker("caught_up", { seq: 7 })], "break"), stream([frame(8), end])], { after: "latest" });
  assert.deepEqual(seen, [["caught_up", { seq: 7 }], 8, "end"]);
  assert.match(requests[0]?.url ?? "", /\?after=latest$/);
  assert.equal(requests[1]?.headers.get("Last-Event-ID"), "7");
});

test("a deleted position is an error", async () => {
  await assert.rejects(followed([problem(410, "position_gone")], { after: 3 }), (e: unknown) => e instanceof OverwinterError && e.code === "position_gone");
});

test("a connection that is silent is made again", async () => {
  const lost: unknown[] = [];
  const { seen } = await followed([stream([frame(1)], "stay"), stream([frame(2), end])], {
    silence: 50, onConnection: (state: string, error: unknown) => state === "lost" && lost.push(String(error)),
  });
  assert.deepEqual(seen, [1, 2, "end"]);
  assert.deepEqual(lost, ["Error: the stream was silent for too long"]);
});

test("a slow reader is not mistaken for silence, and nothing is read ahead", async () => {
  let pulled = 0;
  const answer: Answer = (_, signal) => {
    const body = new ReadableStream<Uint8Array>({
      pull(c) {
        pulled++;
        c.enqueue(new TextEncoder().encode(pulled < 100 ? frame(pulled) : end));
        if (pulled === 100) c.close();
      },
    });
    signal?.throwIfAborted();
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
  const { client, requests } = clientOf([answer]);
  let count = 0;
  for await (const item of client.session("ses_1").follow({ silence: 20 })) {
    count++;
    if (count === 3) {
      await new Promise((resolve) => setTimeout(resolve, 60));
      assert.ok(pulled <= 5, `${pulled} messages were read for a reader at the third`);
    }
    if (item.type === "end") break;
  }
  assert.equal(count, 100);
  assert.equal(requests.length, 1);
});

test("a signal ends it, and so does the reader", async () => {
  const stop = new AbortController();
  let aborted: AbortSignal | undefined;
  const answer: Answer = (r, signal) => ((aborted = signal), stream([frame(1)], "stay")(r, signal));
  const one = clientOf([answer]);
  await assert.rejects(async () => {
    for await (const _ of one.client.session("ses_1").follow({ signal: stop.signal })) stop.abort(new Error("enough"));
  }, /enough/);
  assert.ok(aborted?.aborted);
  const two = clientOf([answer]);
  for await (const _ of two.client.session("ses_1").follow()) break;
  assert.ok(aborted?.aborted);
});

test("a page where a stream should be is not read", async () => {
  const page: Answer = () => new Response("<h1>Sign in</h1>", { headers: { "Content-Type": "text/html" } });
  const { seen } = await followed([page, stream([end])]);
  assert.deepEqual(seen, ["end"]);
});
