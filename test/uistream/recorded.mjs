// Reads every stream of this folder as a client of the AI SDK does, and compares the message with the expected one.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { uiMessageChunks, assembled, texts, plain } from "./aisdk.mjs";

let read = 0;
for (const file of readdirSync(".").filter((name) => name.endsWith(".sse"))) {
  const want = JSON.parse(readFileSync(file.replace(/sse$/, "json"), "utf8"));
  const stream = new Response(readFileSync(file)).body;
  const { message, problems } = await assembled(uiMessageChunks(stream));
  assert.deepEqual(problems, [], file);
  assert.deepEqual(texts(message, "text"), want.text, file);
  assert.deepEqual(texts(message, "reasoning"), want.reasoning, file);
  assert.deepEqual(plain(message), want.message, file);
  read++;
}
assert.ok(read > 0);
console.log(`read ${read} streams`);
