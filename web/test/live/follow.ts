// Follows a session over connections that are closed at random, and compares the result with the server's
// state. Run by a Go test: OVERWINTER_API_URL is the proxy that closes connections, OVERWINTER_DIRECT_URL is
// the api itself. TRANSPORT selects the transport.
import { createClient, fold, isMarker, type Event, type Transport } from "@overwinter/client";
import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";

const transport = process.env["TRANSPORT"] as Transport;
const cut = createClient({ baseUrl: process.env["OVERWINTER_API_URL"] ?? "", attempts: 20, timeout: 10_000, transport });
const direct = createClient({ baseUrl: process.env["OVERWINTER_DIRECT_URL"] ?? "", attempts: 20, transport });
const prompts = 5;

const { handle } = await cut.createSession({ agent: "demo" });
const store = handle.store();
const leave = store.subscribe(() => undefined);

const events: Event[] = [];
let lost = 0;
let caughtUp = 0;
let ended = 0;
const submitted = (async () => {
  for (let i = 0; i < prompts; i++) {
    const words = Array.from({ length: 150 }, (_, w) => `p${i}w${w}`).join(" ");
    await handle.prompt({ id: `prompt-${i}`, content: `write file${i}.txt: ${i}\nslow 10ms: ${words}` });
  }
})();
for await (const item of handle.follow({ onConnection: (state) => state === "lost" && lost++ })) {
  if (isMarker(item)) {
    assert.equal(item.type, "caught_up");
    caughtUp++;
  } else {
    events.push(item);
    if (item.type === "turn_end") ended++;
  }
  if (ended === prompts && caughtUp > 0) break; // disconnects may prevent it from catching up until all turns have ended
}
await submitted;

assert.equal(caughtUp, 1);
assert.deepEqual(events.map((e) => e.seq), events.map((_, i) => i + 1), "each event once and in order");
const whole = await direct.session(handle.id).blocks();
const plain = (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown;
const there = plain(whole.conversations);
assert.deepEqual(plain(fold(events)), there, "the fold of what was followed, and GET …/blocks");
for (let i = 0; i < prompts; i++) {
  const text = whole.conversations[0]?.blocks.filter((b) => b.type === "assistant_text" && b.content?.includes(`p${i}w149`));
  assert.equal(text?.length, 1, `the answer to prompt ${i}`);
}

// The store has read the same stream independently.
await until("the store has all", () => isDeepStrictEqual(plain(store.state.conversations), there) && store.state.queue.length === 0);
store.watchFiles();
await until("the files are there", () => store.state.files?.length === prompts);
leave();
store.close();

// Resuming in the middle yields the rest.
const rest: number[] = [];
for await (const item of direct.session(handle.id).follow({ after: 10 })) {
  if (item.type === "caught_up") break;
  if (!isMarker(item)) rest.push(item.seq);
}
assert.deepEqual(rest.slice(0, events.length - 10), events.slice(10).map((e) => e.seq));
assert.ok(lost >= 5, `only ${lost} connections were cut`);
await direct.session(handle.id).command("stop");
console.log(`${transport}: ${events.length} events, ${lost} connections lost`);

async function until(what: string, done: () => boolean): Promise<void> {
  for (const begin = performance.now(); !done(); ) {
    if (performance.now() - begin > 120_000) assert.fail(`${what}: ${JSON.stringify(store.state).slice(0, 2000)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
