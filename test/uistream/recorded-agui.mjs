// Reads every stream of this folder as a client of AG-UI does, and compares the messages with those of the conversation.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { checked, eventsOf, Recording } from "./agui.mjs";

// Those that were open when a client attached follow those that were complete.
const sorted = (messages) => messages.map(comparable).sort((a, b) => (a.id < b.id ? -1 : 1));
const comparable = ({ error, ...message }) => message; // the event of a result has no error
const isReasoning = (message) => message.role === "reasoning";
const said = (messages) => messages.filter((message) => message.role === "assistant" && !message.toolCalls && !message.subagentRunId).map((message) => message.content);

let streams = 0, snapshots = 0, subagents = 0;
const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
for (const file of readdirSync(".").filter((name) => name.endsWith(".agui"))) {
  const [snapshot] = await eventsOf(new Response(readFileSync(file.replace(/\.\d\.agui$/, ".want"))));
  const agent = new Recording(readFileSync(file));
  let outcome;
  agent.subscribe({
    ...checked,
    onMessagesSnapshotEvent: () => void snapshots++,
    onSubagentStartedEvent: () => void subagents++,
    onRunFinishedEvent: (finished) => void ({ outcome } = finished),
  });
  await agent.runAgent();
  // A client keeps the reasoning that it has if a snapshot has none.
  if (!snapshot.messages.some(isReasoning)) agent.messages = agent.messages.filter((message) => !isReasoning(message));
  assert.equal(outcome, "success", file);
  assert.deepEqual(sorted(agent.messages), sorted(snapshot.messages), file);
  if (file.endsWith(".0.agui")) assert.deepEqual(said(agent.messages), said(snapshot.messages), file);
  assert.deepEqual(warnings, [], file);
  streams++;
}
console.log(JSON.stringify({ streams, snapshots, subagents }));
