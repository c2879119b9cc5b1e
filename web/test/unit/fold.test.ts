import { fold, Folder, type Block, type Conversation, type Event } from "@overwinter/client";
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const text = (id: string, content: string): Block => ({ id, type: "assistant_text", status: "streaming", createdAt: "2026-01-02T03:04:05.000Z", content });

let seq = 0;
const event = (type: string, data: object, conversationId = "main") => ({ seq: ++seq, type, sessionId: "ses_1", at: "2026-01-02T03:04:05.000Z", conversationId, data }) as Event;

// The Go program that runs the tests writes logs and the results of the Go fold, if OVERWINTER_LOGS is a
// directory.
test("every log folds to the server's blocks", (t) => {
  const dir = process.env["OVERWINTER_LOGS"];
  if (!dir) return t.skip("OVERWINTER_LOGS is not set: go test ./test/web sets it");
  const logs = readdirSync(dir).filter((name) => name.endsWith(".events"));
  assert.ok(logs.length > 100, `only ${logs.length} logs`);
  let blocks = 0;
  for (const name of logs) {
    const lines = readFileSync(join(dir, name), "utf8").split("\n").filter((line) => line !== "");
    const want = JSON.parse(readFileSync(join(dir, name.replace(/events$/, "blocks")), "utf8")) as Conversation[];
    const got = fold(lines.map((line) => JSON.parse(line) as Event));
    assert.deepEqual(JSON.parse(JSON.stringify(got)), want, name);
    for (const c of want) blocks += c.blocks.length;
  }
  t.diagnostic(`${logs.length} logs, ${blocks} blocks`);
});

test("unchanged blocks stay the same objects", () => {
  const folder = new Folder();
  for (const id of ["a", "b"]) folder.add(event("block_start", { block: text(id, "") }));
  folder.add(event("block_start", { block: text("c", "") }, "sub"));
  const before = folder.conversations;
  assert.equal(folder.conversations, before);
  folder.add(event("text_delta", { blockId: "b", delta: "hello" }));
  const after = folder.conversations;
  assert.notEqual(after, before);
  assert.equal(after[1], before[1], "the other conversation");
  assert.equal(after[0]?.blocks[0], before[0]?.blocks[0], "the other block");
  assert.equal((before[0]?.blocks[1] as { content: string }).content, "", "the earlier state");
  assert.equal((after[0]?.blocks[1] as { content: string }).content, "hello");
});

test("updates change only fields of the block's type", () => {
  const createdAt = "2026-01-02T03:04:05.000Z";
  const folder = new Folder([{ id: "main", blocks: [
    { id: "call", type: "tool_use", status: "running", createdAt, name: "edit", kind: "edit", title: "Edit a.txt", locations: [{ path: "a.txt" }], input: { a: 1 } },
    { id: "sub", type: "subagent", status: "pending", createdAt, subagentId: "", name: "", input: null },
    { id: "result", type: "tool_result", status: "running", createdAt, toolUseId: "call", output: null },
  ] }]);
  folder.add(event("block_update", { blockId: "call", updates: { kind: "read", title: "Read", output: "not of a call" } }));
  folder.add(event("block_update", { blockId: "sub", updates: { subagentId: "agent-1", name: "helper", status: "running", kind: "read" } }));
  folder.add(event("block_update", { blockId: "result", updates: { output: false, status: "success", truncatedBytes: 3 } }, ""));
  assert.deepEqual(folder.conversations[0]?.blocks, [
    { id: "call", type: "tool_use", status: "running", createdAt, name: "edit", kind: "read", title: "Read", input: { a: 1 } },
    { id: "sub", type: "subagent", status: "running", createdAt, subagentId: "agent-1", name: "helper", input: null },
    { id: "result", type: "tool_result", status: "success", createdAt, toolUseId: "call", output: false, truncatedBytes: 3 },
  ]);
  folder.add(event("block_removed", { blockId: "sub" }));
  assert.deepEqual(folder.conversations[0]?.blocks.map((b) => b.id), ["call", "result"]);
});

test("blocks that were read continue with the events after them", () => {
  const folder = new Folder([{ id: "main", blocks: [text("a", "hel")] }]);
  folder.add(event("text_delta", { blockId: "a", delta: "lo" }));
  folder.add(event("text_delta", { blockId: "unknown", delta: "lo" }));
  folder.add(event("unheard_of", {}));
  assert.deepEqual(folder.conversations, [{ id: "main", blocks: [text("a", "hello")] }]);
});
