// useChat over sessions of a system that runs. Its address is the argument.
import assert from "node:assert/strict";
import { test } from "node:test";
import { uiMessageChunks, assembled, texts, plain } from "./aisdk.mjs";
import { open, proxyTo, until } from "./page.mjs";

const api = `${process.env.OVERWINTER_TEST_API}/api`;
const json = async (path, init) => (await fetch(`${api}${path}`, init)).json();
const post = (path, body) => fetch(`${api}${path}`, { method: "POST", body: JSON.stringify(body) });
const session = async (options = {}) => (await (await post("/sessions", { agent: "demo", ...options })).json()).id;
const chat = (id, text, more = {}) => ({ id: "chat", trigger: "submit-message", messages: [{ id, role: "user", parts: [{ type: "text", text }] }], ...more });
const blocks = async (id) => (await json(`/sessions/${id}/blocks`)).conversations.find((c) => c.id === "main").blocks;
const said = async (id) => (await blocks(id)).filter((block) => block.type === "assistant_text").map((block) => block.content);
const words = (n) => Array.from({ length: n }, (_, i) => `word${i}`).join(" ");

test("a turn survives connections that are cut", async () => {
  const id = await session();
  const proxy = await proxyTo(api);
  const page = await open(`${proxy.address}/api/sessions/${id}`);
  await page.say(`slow 40ms: ${words(60)}`);
  for (const seen of ["word5", "word25", "word45"]) {
    await until(`${seen} is in the page`, () => page.texts("article.assistant p").join("").includes(seen));
    proxy.cut();
  }
  await page.done();
  assert.deepEqual(page.texts("article.assistant p"), await said(id));
  assert.deepEqual(page.texts("article.assistant p"), [words(60)]);
  assert.equal(page.ids().length, 2);
  assert.equal(page.texts("strong").length, 0);
  page.close();
  proxy.close();
});

test("a turn that ended while the page was disconnected is read from its start", async () => {
  const id = await session();
  const proxy = await proxyTo(api);
  let away = false;
  const real = globalThis.fetch;
  globalThis.fetch = (url, init) => (away && String(url).startsWith(proxy.address) ? Promise.reject(new TypeError("fetch failed")) : real(url, init));
  const page = await open(`${proxy.address}/api/sessions/${id}`);
  await page.say(`slow 40ms: ${words(20)}`);
  await until("the turn is in the page", () => page.texts("article.assistant p").join("").includes("word3"));
  away = true;
  proxy.cut();
  await until("the turn is over", async () => (await json(`/sessions/${id}/prompts/${page.ids()[0]}`)).status === "completed");
  assert.equal(page.status(), "error");
  away = false;
  await page.done();
  globalThis.fetch = real;
  assert.deepEqual(page.texts("article.assistant p"), [words(20)]);
  page.close();
  proxy.close();
});

test("leaving the page stops nothing, and a page that is opened again resumes", async () => {
  const id = await session();
  let page = await open(`${api}/sessions/${id}`);
  await page.say("first");
  await page.done();
  await page.say(`slow 50ms: ${words(40)}`);
  await until("the turn is in the page", () => page.texts("article.assistant p").length === 2);
  page.close();
  page = await open(`${api}/sessions/${id}`);
  await until("the page follows the turn", () => page.status() === "streaming");
  await page.done();
  assert.deepEqual(page.texts("article.assistant p"), ["first", words(40)]);
  assert.equal(page.ids().length, 4);
  assert.equal(new Set(page.ids()).size, 4);
  assert.equal((await fetch(`${api}/sessions/${id}/ai/stream`)).status, 204);
  page.close();
});

test("a turn is stopped, and a prompt that waits is withdrawn", async () => {
  const id = await session();
  const page = await open(`${api}/sessions/${id}`);
  await page.say(`slow 100ms: ${words(400)}`);
  await until("the turn is in the page", () => page.texts("article.assistant p").join("").includes("word3"));
  const [prompt] = page.ids();
  page.click("button.stop");
  await page.done();
  assert.deepEqual(page.texts("article.assistant p"), await said(id));
  assert.equal((await json(`/sessions/${id}/prompts/${prompt}`)).status, "cancelled");

  await post(`/sessions/${id}/prompts`, { id: "busy", content: "sleep 60s" });
  await page.say("later");
  await until("the page waits", () => page.all("button.stop").length === 1);
  await until("its prompt has arrived", async () => (await json(`/sessions/${id}/prompts/${page.ids()[2]}`)).status === "queued");
  page.click("button.stop");
  await page.done();
  assert.equal((await json(`/sessions/${id}/prompts/${page.ids()[2]}`)).reason, "withdrawn");
  await post(`/sessions/${id}/abort`, {});
  page.close();
});

test("a question is answered in the page", async () => {
  const id = await session({ options: { permissions: "ask" } });
  const page = await open(`${api}/sessions/${id}`);
  await page.say("$ echo allowed");
  await until("the question is in the page", () => page.all(".question").length === 1);
  assert.match(page.texts("code")[0], /approval-requested/);
  page.click(".question button");
  await page.done();
  assert.match(page.texts("code")[0], /output-available/);
  assert.equal(page.all(".question").length, 0);
  page.close();
});

test("questions are in the messages with their answers, and by whom", async () => {
  const id = await session({ options: { permissions: "ask" } });
  const streaming = assembled(uiMessageChunks((await post(`/sessions/${id}/ai`, chat("m1", "hello\n$ echo allowed\nask: Which colour? | red | blue\n$ echo refused\nDone."))).body));
  for (const answer of [{ answer: "once", answeredBy: "ada" }, { answers: { "Which colour?": "red" }, answeredBy: "bob@example.com" }, { answer: "reject", message: "not today" }]) {
    let open = [];
    await until("the agent asks", async () => (open = (await json(`/sessions/${id}/questions?status=open`)).items).length > 0);
    const before = (await json(`/sessions/${id}/ai/messages`)).messages.at(-1).parts.findLast((part) => part.type === "data-question");
    assert.equal(before.id, open[0].id);
    assert.equal(before.data.status, "open");
    const answered = await post(`/sessions/${id}/questions/${open[0].id}/answer`, answer);
    assert.equal(answered.status, 200);
    assert.equal((await answered.json()).answeredBy, answer.answeredBy);
  }
  const { message } = await streaming;
  const { messages } = await json(`/sessions/${id}/ai/messages`);
  assert.deepEqual(messages[1].parts, plain(message).parts);
  const asked = messages[1].parts.filter((part) => part.type === "data-question").map(({ data }) => [data.status, data.answer, data.answeredBy, data.message]);
  assert.deepEqual(asked, [["answered", "once", "ada", undefined], ["answered", "once", "bob@example.com", undefined], ["answered", "reject", undefined, "not today"]]);
  assert.deepEqual(messages[1].parts.filter((part) => part.approval).map((part) => part.approval.approved), [true, false]);
});

test("a message that is sent twice runs once, and both responses are its turn", async () => {
  const id = await session();
  const text = "think: let me see\nhello there\n$ echo one; exit 2\nwrite a.txt: yes\nsubagent bob: hello from bob\ntitle: A title\nDone.";
  const request = chat("m1", text);
  const [one, two] = await Promise.all([post(`/sessions/${id}/ai`, request), post(`/sessions/${id}/ai`, request)]);
  assert.equal(one.headers.get("x-vercel-ai-ui-message-stream"), "v1");
  const [first, second] = await Promise.all([one, two].map((response) => assembled(uiMessageChunks(response.body))));
  assert.deepEqual(first, second);
  assert.deepEqual(first.problems, []);
  const third = await assembled(uiMessageChunks((await post(`/sessions/${id}/ai`, request)).body));
  assert.deepEqual(third, first, "a turn that is over is streamed again");
  assert.deepEqual(texts(first.message, "text"), await said(id));
  assert.equal((await json(`/sessions/${id}/prompts`)).items.length, 1);
  assert.equal((await blocks(id)).filter((block) => block.type === "user_message").length, 1);
  assert.equal(first.message.metadata.status, "completed");
  assert.equal(first.message.metadata.model, "demo");
  assert.ok(first.message.metadata.usage.outputTokens > 0);

  const { messages } = await json(`/sessions/${id}/ai/messages`);
  const { seq, ...metadata } = plain(first.message).metadata;
  assert.deepEqual(messages, [
    { id: "m1", role: "user", parts: [{ type: "text", text }] },
    { ...plain(first.message), metadata },
  ]);

  const conflict = await post(`/sessions/${id}/ai`, chat("m1", "something else"));
  assert.equal((await conflict.json()).code, "prompt_conflict");
});

test("a turn that fails is an error of the stream", async () => {
  const id = await session();
  const { message, problems } = await assembled(uiMessageChunks((await post(`/sessions/${id}/ai`, chat("m1", "hello\nfail: no luck"))).body));
  assert.deepEqual(problems, ["Error: the turn failed: no luck"]);
  assert.equal(message.metadata.status, "failed");
});

test("what cannot be done is refused", async () => {
  const id = await session();
  for (const [body, status, code] of [
    [chat("m1", "hello", { trigger: "regenerate-message" }), 409, "not_supported"],
    [chat("m1", " "), 400, "invalid_request"],
    [chat("", "hello"), 400, "invalid_request"],
    [{ messages: [] }, 400, "invalid_request"],
    [{ messages: [{ id: "m1", role: "assistant", parts: [] }] }, 400, "invalid_request"],
    [{ messages: [{ id: "m1", role: "user", parts: [{ type: "file", url: "data:,x" }] }] }, 400, "invalid_request"],
    [chat("m1", "x".repeat(300_000)), 413, "too_large"],
  ]) {
    const response = await post(`/sessions/${id}/ai`, body);
    assert.equal(response.status, status);
    assert.equal((await response.json()).code, code);
  }
  assert.equal((await fetch(`${api}/sessions/${id}/ai/stream?message=m1`)).status, 404);
  assert.equal((await json(`/sessions/${id}/prompts`)).items.length, 0);
});
