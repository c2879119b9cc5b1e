// HttpAgent of AG-UI while the api is killed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { checked, ending, SessionAgent } from "./agui.mjs";
import { until } from "./page.mjs";

const api = `${process.env.OVERWINTER_TEST_API}/api`;
const words = Array.from({ length: 60 }, (_, i) => `word${i}`).join(" ");

test("the same request continues the run", async () => {
  const created = await fetch(`${api}/sessions`, { method: "POST", body: JSON.stringify({ agent: "demo" }) });
  const { id } = await created.json();
  let cuts = 0;
  const agent = new SessionAgent({ url: `${api}/sessions/${id}/ag-ui`, fetch: ending(() => cuts++) });
  const outcomes = [];
  agent.subscribe({ ...checked, onRunFinishedEvent: ({ outcome }) => void outcomes.push(outcome) });
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: `slow 40ms: ${words}` });
  const said = () => agent.messages.filter((message) => message.role === "assistant").map((message) => message.content);
  const run = agent.runAgent();
  await until("the agent speaks", () => said().join("").includes("word5"));
  process.kill(Number(process.env.OVERWINTER_TEST_PID), "SIGKILL");
  await run;
  assert.equal(cuts, 1);
  assert.deepEqual(outcomes, []);
  await until("the api is back", () => fetch(`${process.env.OVERWINTER_TEST_API}/readyz`).then((response) => response.ok, () => false));
  await agent.runAgent();
  assert.deepEqual(outcomes, ["success"]);
  assert.deepEqual(said(), [words]);
  const prompts = await (await fetch(`${api}/sessions/${id}/prompts`)).json();
  assert.equal(prompts.items.length, 1);
});
