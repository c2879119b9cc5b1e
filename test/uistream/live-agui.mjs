// HttpAgent of AG-UI over sessions of a system that runs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { buildResumeArray } from "@ag-ui/client";
import { checked, ending, eventsOf, SessionAgent } from "./agui.mjs";
import { proxyTo, until } from "./page.mjs";

const api = `${process.env.OVERWINTER_TEST_API}/api`;
const json = async (path, init) => (await fetch(`${api}${path}`, init)).json();
const post = (path, body) => fetch(`${api}${path}`, { method: "POST", body: JSON.stringify(body) });
const session = async (options = {}) => (await (await post("/sessions", { agent: "demo", ...options })).json()).id;
const words = (n) => Array.from({ length: n }, (_, i) => `word${i}`).join(" ");
const status = async (id, prompt) => (await json(`/sessions/${id}/prompts/${prompt}`)).status;
const input = (messages, more = {}) => ({ threadId: "t", runId: "r", messages, ...more });
const user = (id, content) => ({ id, role: "user", content });

/** An agent whose events are all checked, and the outcomes of its runs. */
function agentOf(id, base = api) {
  const agent = new SessionAgent({ url: `${base}/sessions/${id}/ag-ui`, threadId: "thread" });
  agent.outcomes = [];
  agent.subscribe({
    ...checked,
    onRunFinishedEvent: ({ outcome }) => void agent.outcomes.push(outcome),
    onRunErrorEvent: ({ event }) => void agent.outcomes.push(event.code),
  });
  return agent;
}
const say = (agent, content) => {
  const id = crypto.randomUUID();
  agent.addMessage(user(id, content));
  return id;
};
const content = (agent, role) => agent.messages.filter((message) => message.role === role && !message.toolCalls).map((message) => message.content);

/** The messages that an agent has must be those of the session. */
async function same(agent, id) {
  const other = agentOf(id);
  await other.connectAgent();
  const sorted = (messages) => messages.map(({ error, ...message }) => message).sort((a, b) => (a.id < b.id ? -1 : 1));
  assert.deepEqual(sorted(agent.messages), sorted(other.messages));
}

test("a run shows everything that a turn does", async () => {
  const id = await session();
  const agent = agentOf(id);
  const prompt = say(agent, "think: let me see\nhello there\n$ echo one; exit 2\nwrite a.txt: yes\nsubagent bob: hello from bob\ntitle: A title\nDone.");
  const names = new Set();
  agent.subscribe({ onCustomEvent: ({ event }) => void names.add(event.name) });
  await agent.runAgent();
  assert.deepEqual(agent.outcomes, ["success"]);
  assert.equal(agent.messages[0].id, prompt);
  assert.deepEqual(content(agent, "reasoning"), ["let me see"]);
  assert.ok(content(agent, "assistant").includes("hello there"));
  assert.ok(agent.messages.some((message) => message.subagentRunId && message.content === "hello from bob"));
  assert.ok(names.has("title") && names.has("status"));
  await same(agent, id);
  say(agent, "again");
  await agent.runAgent();
  await same(agent, id);
  assert.equal((await json(`/sessions/${id}/prompts`)).items.length, 2);
});

test("runs survive connections that are cut", async () => {
  const id = await session();
  const proxy = await proxyTo(api);
  const agent = agentOf(id, `${proxy.address}/api`);
  const prompt = say(agent, `slow 40ms: ${words(60)}`);
  let cuts = 0;
  agent.fetch = ending(() => cuts++);
  let run = agent.runAgent();
  for (const seen of ["word5", "word25", "word45"]) {
    await until(`the agent has ${seen}`, () => content(agent, "assistant").join("").includes(seen));
    proxy.cut();
    await run;
    run = agent.runAgent();
  }
  await run;
  assert.equal(cuts, 3);
  assert.deepEqual(agent.outcomes, ["success"]);
  assert.deepEqual(content(agent, "assistant"), [words(60)]);
  assert.equal((await json(`/sessions/${id}/prompts`)).items.length, 1);
  assert.equal(await status(id, prompt), "completed");
  await same(agent, id);
  proxy.close();
});

test("disconnecting stops nothing, abort does", async () => {
  const id = await session();
  const agent = agentOf(id);
  const prompt = say(agent, `slow 50ms: ${words(300)}`);
  const run = agent.runAgent();
  await until("the agent speaks", () => content(agent, "assistant").join("").includes("word3"));
  agent.abortRun();
  await run;
  assert.equal(await status(id, prompt), "processing");

  const other = agentOf(id);
  const attached = other.connectAgent();
  await until("a client that attaches has the words", () => content(other, "assistant").join("").includes("word10"));
  await post(`/sessions/${id}/abort`, {});
  await attached;
  assert.deepEqual(other.outcomes, ["cancelled"]);
  assert.equal(await status(id, prompt), "cancelled");
  await agent.runAgent();
  assert.deepEqual(agent.outcomes, ["abort", "cancelled"], "a run of a prompt that is over has its outcome");
  await same(agent, id);
});

test("a question is an interrupt, which resume answers", async () => {
  const id = await session({ options: { permissions: "ask" } });
  const agent = agentOf(id);
  const prompt = say(agent, "$ echo allowed");
  await agent.runAgent();
  assert.deepEqual(agent.outcomes, ["interrupt"]);
  const [interrupt] = agent.pendingInterrupts;
  assert.equal(interrupt.reason, "permission");
  assert.ok(agent.messages.some((message) => message.toolCalls?.some((call) => call.id === interrupt.toolCallId)));
  assert.equal(interrupt.metadata.question.toolName, "shell");
  assert.equal(await status(id, prompt), "processing");

  const attached = await eventsOf(await fetch(`${api}/sessions/${id}/ag-ui`));
  assert.equal(attached.at(-1).outcome.interrupts[0].id, interrupt.id, "a client that attaches is asked too");

  const resume = buildResumeArray(agent.pendingInterrupts, { [interrupt.id]: { status: "resolved", payload: { answer: "once" } } });
  const request = input(structuredClone(agent.messages), { resume });
  await agent.runAgent({ resume });
  assert.deepEqual(agent.outcomes, ["interrupt", "success"]);
  assert.ok(content(agent, "tool").some((text) => text.includes("allowed")));
  await same(agent, id);

  const again = await eventsOf(await post(`/sessions/${id}/ag-ui`, request));
  assert.equal(again.at(-1).outcome.type, "success", "the same request again changes nothing");
  request.resume[0].payload.answer = "reject";
  const refused = await post(`/sessions/${id}/ag-ui`, request);
  assert.equal(refused.status, 409);
  assert.equal((await refused.json()).code, "question_answered");

  say(agent, "$ echo refused");
  await agent.runAgent();
  await agent.runAgent({ resume: agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" })) });
  assert.equal(agent.outcomes.at(-1), "success");
  assert.equal((await json(`/sessions/${id}/questions?limit=1`)).items[0].answer, "reject");
});

test("a question in words is answered by a payload", async () => {
  const id = await session();
  const agent = agentOf(id);
  say(agent, "ask: Which colour? | red | blue");
  await agent.runAgent();
  const [interrupt] = agent.pendingInterrupts;
  assert.equal(interrupt.reason, "question");
  const [{ question }] = interrupt.metadata.question.questions;
  const wrong = await post(`/sessions/${id}/ag-ui`, input(agent.messages, { resume: [{ interruptId: interrupt.id, status: "resolved" }] }));
  assert.equal(wrong.status, 400);
  await agent.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { answers: { [question]: "blue" } } }] });
  assert.equal(agent.outcomes.at(-1), "success");
  assert.ok(content(agent, "tool").join().includes("blue"));
});

test("a message that is sent twice runs once", async () => {
  const id = await session();
  const request = input([user("m1", "hello")]);
  const streams = await Promise.all([post(`/sessions/${id}/ag-ui`, request), post(`/sessions/${id}/ag-ui`, request)]);
  for (const events of await Promise.all(streams.map(eventsOf))) {
    assert.equal(events[0].type, "RUN_STARTED");
    assert.equal(events.at(-1).outcome.type, "success");
    assert.equal(events.at(-1).runId, "r");
  }
  assert.equal((await json(`/sessions/${id}/prompts`)).items.length, 1);
  const conflict = await post(`/sessions/${id}/ag-ui`, input([user("m1", "something else")]));
  assert.equal((await conflict.json()).code, "prompt_conflict");
});

test("a turn that fails ends its run with an error", async () => {
  const id = await session();
  const agent = agentOf(id);
  say(agent, "hello\nfail: no luck");
  const errors = [];
  agent.subscribe({ onRunErrorEvent: ({ event }) => void errors.push(event.message) });
  await agent.runAgent();
  assert.deepEqual(agent.outcomes, ["failed"]);
  assert.deepEqual(errors, ["the turn failed: no luck"]);
});

test("a prompt queued after another one sees its turn too", async () => {
  const id = await session();
  await post(`/sessions/${id}/prompts`, { id: "first", content: `slow 30ms: ${words(40)}` });
  const agent = agentOf(id);
  say(agent, "second");
  await agent.runAgent();
  assert.deepEqual(content(agent, "assistant").sort(), ["second", words(40)]);
  await same(agent, id);
});
