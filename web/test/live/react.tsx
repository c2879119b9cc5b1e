// Renders the example in jsdom against a live server: on the server, then hydrated, in StrictMode, twice.
import { createClient } from "@overwinter/client";
import { JSDOM } from "jsdom";
import assert from "node:assert/strict";
import { StrictMode } from "react";
import { renderToString } from "react-dom/server";

const dom = new JSDOM("<!doctype html><div id=root></div>", { pretendToBeVisual: true });
for (const name of ["document", "navigator", "HTMLElement", "FormData"] as const) {
  Object.defineProperty(globalThis, name, { value: dom.window[name], configurable: true });
}
Object.assign(globalThis, { window: dom.window });
const { version } = await import("react");
const { hydrateRoot } = await import("react-dom/client");
const { App } = await import("../examples/app.js");

let open = 0;
let most = 0;
const counting: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (String(input).includes("/events")) {
    most = Math.max(most, ++open);
    init?.signal?.addEventListener("abort", () => open--, { once: true });
  }
  return response;
};
const client = createClient({ baseUrl: process.env["OVERWINTER_API_URL"] ?? "", fetch: counting });
const { handle } = await client.createSession({ agent: "demo", title: "In jsdom" });

const page = (
  <StrictMode>
    <main><App client={client} sessionId={handle.id} /></main>
    <aside><App client={client} sessionId={handle.id} /></aside>
  </StrictMode>
);
const root = dom.window.document.getElementById("root");
assert.ok(root);
root.innerHTML = renderToString(page);
assert.match(root.innerHTML, /loading/);
const complaints: unknown[] = [];
const mounted = hydrateRoot(root, page, { onRecoverableError: (e) => complaints.push(e) });

const $ = <T extends Element>(selector: string) => root.querySelector(`main ${selector}`) as T; // in the first page
await until("it is live", () => $("[role=status]").textContent?.startsWith("live"));
assert.equal($("h1").textContent, "In jsdom");

send("write a.txt: twelve bytes\nask: Which colour? | Red | Blue\nslow 5ms: " + Array.from({ length: 100 }, (_, i) => `w${i}`).join(" "));
await until("the prompt is processed", () => $("[aria-label=Queue]").textContent?.includes("(processing)"));
await until("the question is there", () => $("[data-question] fieldset"));
assert.equal($("legend").textContent, "Which colour?");

// First unanswered, then answered.
const form = $<HTMLFormElement>("[data-question] form");
form.dispatchEvent(new dom.window.Event("submit", { bubbles: true, cancelable: true }));
await until("an answer is missed", () => $("[data-question] [role=alert]")?.textContent?.includes("has no answer yet"));
$<HTMLInputElement>("input[value=Blue]").checked = true;
form.dispatchEvent(new dom.window.Event("submit", { bubbles: true, cancelable: true }));
await until("the question was removed", () => !$("[data-question]"));
await until("all is written, and the queue empty", () => texts().at(-1)?.includes("w99") && $("[aria-label=Queue]").children.length === 0);
await until("the file is there", () => $("[aria-label=Files]").textContent === "a.txt, 12 bytes");

const blocksOf = (page: string) => [...root.querySelectorAll(`${page} [data-id]`)].map((e) => e.getAttribute("data-id"));
const [main] = (await handle.blocks()).conversations;
const want = main?.blocks.map((b) => b.id);
assert.deepEqual(blocksOf("main"), want);
await until("the second page has the same", () => String(blocksOf("aside")) === String(want));
assert.deepEqual(texts(), main?.blocks.flatMap((b) => (b.type === "assistant_text" ? [b.content] : [])));
assert.equal(most, 2, "one stream for each provider");
assert.deepEqual(complaints, []);

mounted.unmount();
await until("the streams are closed", () => open === 0);
await handle.command("stop");
console.log(`React ${version}: ${main?.blocks.length} blocks`);
process.exit(0);

function send(text: string): void {
  const field = $<HTMLTextAreaElement>("textarea");
  field.value = text;
  field.dispatchEvent(new dom.window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
}

/** Returns the agent's text in the first page. */
function texts(): (string | null)[] {
  return [...$("[role=log]").querySelectorAll("[data-block=assistant_text]")].map((e) => e.textContent);
}

/** Waits until done. */
async function until(what: string, done: () => unknown): Promise<void> {
  for (const begin = performance.now(); !done(); ) {
    if (performance.now() - begin > 120_000) assert.fail(`${what}: ${root?.innerHTML}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
