// A page with chat.tsx, in jsdom, over the network that a proxy may cut.
import { JSDOM } from "jsdom";
import { readFileSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import ts from "typescript";

const dom = new JSDOM("<!doctype html><body></body>", { url: "http://localhost/", pretendToBeVisual: true });
globalThis.window = dom.window;
globalThis.document = dom.window.document;
if (!globalThis.navigator) globalThis.navigator = dom.window.navigator; // Node has one from version 21 on

/** Waits until check returns something true, which it returns. */
export async function until(what, check, within = 120_000) {
  const deadline = Date.now() + within;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`not within ${within} ms: ${what}\n${document.body.innerHTML}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A proxy to an address, whose connections can be cut. */
export async function proxyTo(address) {
  const { hostname, port } = new URL(address);
  const open = new Set();
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [[client, upstream], [upstream, client]]) {
      open.add(from);
      from.on("error", () => {});
      from.on("close", () => (open.delete(from), to.destroy()));
      from.pipe(to);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    address: `http://127.0.0.1:${server.address().port}`,
    cut: () => open.forEach((socket) => socket.resetAndDestroy()),
    close: () => (server.close(), open.forEach((socket) => socket.destroy())),
  };
}

const source = readFileSync("chat.tsx", "utf8");
writeFileSync("chat.mjs", ts.transpileModule(source, { compilerOptions: { jsx: ts.JsxEmit.ReactJSX, module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 } }).outputText);
const { createRoot } = await import("react-dom/client");
const { createElement } = await import("react");
const { Chat } = await import("./chat.mjs");

/** Opens the page of a session, with the messages that the server has of it. */
export async function open(session) {
  const initial = (await (await fetch(`${session}/ai/messages`)).json()).messages;
  const place = document.body.appendChild(document.createElement("div"));
  const root = createRoot(place);
  root.render(createElement(Chat, { session, initial }));
  await until("the page is there", () => place.querySelector("main"));
  const all = (selector) => [...place.querySelectorAll(selector)];
  return {
    all,
    status: () => place.querySelector("main").dataset.status,
    ids: () => all("article").map((article) => article.id),
    texts: (selector) => all(selector).map((element) => element.textContent),
    async say(text) {
      const input = place.querySelector("input");
      Object.getOwnPropertyDescriptor(window.HTMLInputElement.prototype, "value").set.call(input, text);
      input.dispatchEvent(new window.Event("input", { bubbles: true }));
      await until("the text is in the form", () => input.value === text);
      const before = all("article.user").length;
      place.querySelector("form").dispatchEvent(new window.Event("submit", { bubbles: true, cancelable: true }));
      await until("the message is in the page", () => all("article.user").length > before);
    },
    click: (selector) => place.querySelector(selector).dispatchEvent(new window.MouseEvent("click", { bubbles: true })),
    done: (within) => until("the turn is over in the page", () => place.querySelector("main").dataset.status === "ready", within),
    close: () => (root.unmount(), place.remove()),
  };
}
