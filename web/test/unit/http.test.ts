import { createClient, OverwinterError, pages } from "@overwinter/client";
import assert from "node:assert/strict";
import { test } from "node:test";
import { clientOf, json, problem, unreachable, type Answer } from "./server.js";

test("errors are those of the problem document", async () => {
  const { client, requests } = clientOf([problem(400, "invalid_request")], { apiKey: "a-key-of-twenty-characters" });
  await assert.rejects(client.createSession({ agent: "" }), (error: unknown) => {
    assert.ok(error instanceof OverwinterError);
    assert.equal(error.code, "invalid_request");
    assert.equal(error.status, 400);
    assert.equal(error.detail, "it is invalid_request");
    assert.deepEqual(error.errors, [{ field: "agent", message: "is required" }]);
    return true;
  });
  assert.equal(requests.length, 1, "refused requests are not repeated");
  assert.equal(requests[0]?.headers.get("Authorization"), "Bearer a-key-of-twenty-characters");
});

test("an answer that is no problem document is an error too", async () => {
  const { client } = clientOf([() => new Response("<h1>Bad gateway</h1>", { status: 502, statusText: "Bad Gateway" })], { attempts: 1 });
  await assert.rejects(client.session("ses_1").get(), { code: "unreachable", status: 502, detail: "the server answers 502 Bad Gateway" });
});

test("a page of a proxy is an answer, and only that of an unreachable server is tried again", async () => {
  const page = (status: number) => () => new Response("<h1>No</h1>", { status });
  const gone = clientOf([page(404)]);
  await assert.rejects(gone.client.session("ses_1").get(), { status: 404 });
  assert.equal(gone.requests.length, 1);
  const bad = clientOf([page(502), json({ id: "ses_1" })]);
  await bad.client.session("ses_1").get();
  assert.equal(bad.requests.length, 2);
});

test("a prompt is sent again with the id that it had", async () => {
  const { client, requests } = clientOf([unreachable, problem(503, "unavailable"), json({ prompt: { id: "x" }, position: 0 }, 202)]);
  await client.session("ses_1").prompt("hello");
  assert.equal(requests.length, 3);
  const ids = requests.map((r) => (r.body as { id: string }).id);
  assert.match(ids[0] ?? "", /^prompt-[0-9a-f]{32}$/);
  assert.equal(new Set(ids).size, 1);
});

test("a session is created again with the same key", async () => {
  const { client, requests } = clientOf([unreachable, json({ id: "ses_1" })]);
  const { handle } = await client.createSession({ agent: "demo" });
  assert.equal(handle.id, "ses_1");
  assert.equal(requests[0]?.headers.get("Idempotency-Key"), requests[1]?.headers.get("Idempotency-Key"));
});

test("requests that are not idempotent are sent once", async () => {
  const { client, requests } = clientOf([unreachable, json({})]);
  await assert.rejects(client.session("ses_1").command("environment/restart"), TypeError);
  assert.equal(requests.length, 1);
});

test("a request that never settles fails after the timeout, and is sent again if it may be", { timeout: 10_000 }, async () => {
  const silent: Answer = () => new Promise<Response>(() => undefined);
  const cutShort: Answer = () => new Response(new ReadableStream({ start: (c) => c.enqueue(new TextEncoder().encode("{")) }));
  const { client, requests } = clientOf([silent, cutShort, json({ id: "ses_1" })], { timeout: 20 });
  assert.equal((await client.session("ses_1").get()).id, "ses_1");
  assert.equal(requests.length, 3);
  const once = clientOf([silent], { timeout: 20 });
  await assert.rejects(once.client.session("ses_1").command("environment/restart"), /did not respond in time/);
  assert.equal(once.requests.length, 1);
});

test("the signal of a call ends its body", { timeout: 10_000 }, async () => {
  const open = (signal: AbortSignal | undefined) => new Response(new ReadableStream({ start: (c) => signal?.addEventListener("abort", () => c.error(signal.reason)) }));
  const ofAnotherClass = (r: Response) => ({ ok: r.ok, status: r.status, headers: r.headers, text: () => r.text() }) as Response;
  for (const answer of [(_, signal) => open(signal), (_, signal) => ofAnotherClass(open(signal))] satisfies Answer[]) {
    const { client } = clientOf([answer]);
    const stop = new AbortController();
    const file = await client.session("ses_1").attachment("att_1", { signal: stop.signal });
    stop.abort(new Error("enough"));
    await assert.rejects(file.text(), /enough/);
  }
});

test("the server says how long to wait", async () => {
  const { client, requests } = clientOf([problem(429, "rate_limited", { "Retry-After": "1" }), json({ id: "ses_1" })]);
  const begin = performance.now();
  await client.session("ses_1").get();
  assert.equal(requests.length, 2);
  assert.ok(performance.now() - begin >= 990);
});

test("a signal ends the wait between two attempts", async () => {
  const stop = new AbortController();
  const { client, requests } = clientOf([problem(503, "unavailable", { "Retry-After": "60" })]);
  const call = client.session("ses_1").get({ signal: stop.signal });
  while (requests.length === 0) await new Promise(setImmediate);
  setImmediate(() => stop.abort(new Error("enough")));
  await assert.rejects(call, /enough/);
});

test("paths and queries are written as the API reads them", async () => {
  const { client, requests } = clientOf([json({ items: [], nextCursor: null })]);
  await client.listSessions({ metadata: { team: "blue & green" }, limit: 5 });
  await client.session("ses_1").file("src/a b.txt");
  assert.equal(requests[0]?.url, "http://api.test/api/sessions?metadata%5Bteam%5D=blue+%26+green&limit=5");
  assert.equal(requests[1]?.url, "http://api.test/api/sessions/ses_1/files/src%2Fa%20b.txt");
  await assert.rejects(client.session("").get(), /path parameter "id"/);
});

test("pages are read to the last", async () => {
  const { client, requests } = clientOf([json({ items: [1], nextCursor: "two" }), json({ items: [2], nextCursor: null })]);
  const all: unknown[] = [];
  for await (const s of pages((cursor) => client.listSessions(cursor ? { cursor } : {}))) all.push(s);
  assert.deepEqual(all, [1, 2]);
  assert.match(requests[1]?.url ?? "", /cursor=two$/);
});

test("the calls of the queue, of files and of tokens have names", async () => {
  const { client, requests } = clientOf([json({ promptIds: ["p1"], prompt: { id: "p1" }, token: "owst_1" })]);
  const session = client.session("ses_1");
  await session.replace("p1", "other words");
  await session.promote("p1");
  assert.deepEqual(await session.clear(), ["p1"]);
  assert.equal((await session.streamToken()).token, "owst_1");
  await session.getQuestion("que_1");
  await session.attachment("att_1");
  await session.git();
  await session.screenshots({ limit: 1 });
  assert.deepEqual(requests.map((r) => `${r.method} ${r.url.replace("http://api.test/api/sessions/ses_1/", "")}`), [
    "PUT prompts/p1", "POST prompts/p1/promote", "POST queue/clear", "POST stream-tokens", "GET questions/que_1", "GET attachments/att_1", "GET git", "GET screenshots?limit=1",
  ]);
  assert.deepEqual(requests[0]?.body, { content: "other words" });
});

test("a session is created with the files of its first prompt", async () => {
  const sent: { url: string; form: FormData; key: string | null }[] = [];
  const fetch = (url: unknown, init: RequestInit = {}) => {
    sent.push({ url: String(url), form: init.body as FormData, key: new Headers(init.headers).get("Idempotency-Key") });
    if (sent.length === 1) return Promise.reject(new TypeError("fetch failed"));
    return Promise.resolve(new Response(JSON.stringify({ id: "ses_1" }), { status: 201 }));
  };
  const client = createClient({ baseUrl: "http://api.test", fetch: fetch as typeof globalThis.fetch });
  const body = { agent: "demo", prompt: { content: "read this" } };
  const { handle } = await client.createSession(body, { files: [new File(["one"], "ü.txt")] });
  assert.equal(handle.id, "ses_1");
  assert.equal(sent[0]?.key, sent[1]?.key);
  assert.equal(sent[1]?.url, "http://api.test/api/sessions");
  assert.deepEqual(JSON.parse(sent[1]?.form.get("session") as string), body);
  assert.equal(await (sent[1]?.form.get("file") as File).text(), "one");
});

test("files are sent as a form, again with the same id", async () => {
  const forms: FormData[] = [];
  const fetch = (_: unknown, init: RequestInit = {}) => {
    forms.push(init.body as FormData);
    assert.equal(new Headers(init.headers).get("Content-Type"), null);
    if (forms.length === 1) return Promise.reject(new TypeError("fetch failed"));
    return Promise.resolve(new Response(JSON.stringify({ prompt: { id: "x" }, position: 1 }), { status: 202 }));
  };
  const client = createClient({ baseUrl: "http://api.test", fetch: fetch as typeof globalThis.fetch });
  const { position } = await client.session("ses_1").prompt("read this", { files: [new File(["one"], "ü.txt")] });
  assert.equal(position, 1);
  const sent = forms.map((form) => JSON.parse(form.get("prompt") as string) as { content: string; id: string });
  assert.equal(sent[0]?.content, "read this");
  assert.equal(sent[0]?.id, sent[1]?.id);
  const file = forms[1]?.get("file") as File;
  assert.equal(file.name, "ü.txt");
  assert.equal(await file.text(), "one");
});
