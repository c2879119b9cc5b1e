// Runs the example in a real browser: creates a session, answers a question, and kills the api while text is
// streaming.
import chromium from "@sparticuz/chromium";
import { createClient } from "@overwinter/client";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { createRequire } from "node:module";
import { connect, type AddressInfo } from "node:net";

// The declarations of puppeteer-core need DOM types that the packages are compiled without.
const puppeteer = createRequire(import.meta.url)("puppeteer-core") as {
  launch(options: object): Promise<{ newPage(): Promise<Page>; close(): Promise<void>; version(): Promise<string> }>;
};
interface Page {
  setDefaultTimeout(ms: number): void;
  goto(url: string): Promise<unknown>;
  reload(): Promise<unknown>;
  url(): string;
  type(selector: string, text: string): Promise<void>;
  click(selector: string): Promise<void>;
  keyboard: { press(key: string): Promise<void>; down(key: string): Promise<void>; up(key: string): Promise<void> };
  waitForFunction(body: string, options?: object): Promise<unknown>;
  evaluate<T>(body: string): Promise<T>;
  on(event: "pageerror", listener: (error: Error) => void): void;
}

const api = new URL(process.env["OVERWINTER_DIRECT_URL"] ?? "");
const client = createClient({ baseUrl: api.origin, attempts: 20 });
const pid = Number(process.env["OVERWINTER_API_PID"]);
assert.ok(pid > 1, "OVERWINTER_API_PID is not set");
const transport = process.env["TRANSPORT"] ?? "";
const script = readFileSync(process.env["OVERWINTER_PAGE"] ?? "");

// The page and the API share one origin, as with a reverse proxy.
const server = createServer((incoming, outgoing) => {
  if (incoming.url?.startsWith("/?")) return void outgoing.setHeader("Content-Type", "text/html").end("<!doctype html><div id=root></div><script type=module src=/page.js></script>");
  if (incoming.url === "/page.js") return void outgoing.setHeader("Content-Type", "text/javascript").end(script);
  const onward = request({ host: api.hostname, port: api.port, method: incoming.method, path: incoming.url, headers: incoming.headers }, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    outgoing.flushHeaders();
    answer.on("error", () => outgoing.destroy()).pipe(outgoing);
  });
  onward.on("error", () => (outgoing.headersSent ? outgoing.destroy() : outgoing.writeHead(502).end()));
  outgoing.on("close", () => onward.destroy());
  incoming.pipe(onward);
});
let upgrades = 0;
server.on("upgrade", (incoming, socket, head) => {
  upgrades++;
  const headers = Array.from({ length: incoming.rawHeaders.length / 2 }, (_, i) => `${incoming.rawHeaders[2 * i]}: ${incoming.rawHeaders[2 * i + 1]}\r\n`).join("");
  const onward = connect(Number(api.port), api.hostname, () => {
    onward.write(`${incoming.method} ${incoming.url} HTTP/1.1\r\n${headers}\r\n`);
    onward.write(head);
    onward.pipe(socket).pipe(onward);
  });
  onward.on("error", () => socket.destroy()).on("close", () => socket.destroy());
  socket.on("error", () => onward.destroy()).on("close", () => onward.destroy());
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

const installed = process.env["OVERWINTER_CHROMIUM"];
const browser = await puppeteer.launch(
  installed
    ? { args: ["--no-sandbox", "--disable-dev-shm-usage"], executablePath: installed, headless: true, timeout: 120_000 }
    : { args: chromium.args, executablePath: await chromium.executablePath(), headless: "shell", timeout: 120_000 },
);
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(120_000);
  const errors: Error[] = [];
  page.on("pageerror", (e) => errors.push(e));
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/?${transport}`);
  await shows(page, "[role=status]", "live");
  const session = client.session(new URL(page.url()).hash.slice(1));

  await page.type("textarea", "ask: Which colour? | Red | Blue");
  await page.keyboard.press("Enter");
  await shows(page, "legend", "Which colour?");
  await page.click("input[value=Blue]");
  await page.click("[data-question] button[type=submit]");
  await shows(page, "[role=log]", "Blue");

  const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(" ");
  await page.type("textarea", "write b.txt: b");
  await page.keyboard.down("Shift");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Shift");
  await page.type("textarea", `slow 50ms: ${words}`);
  await page.click("form:has(textarea) button");
  await shows(page, "[data-block=assistant_text][data-status=streaming]", "w20 ");
  // This state may have passed before the page is read.
  await page.evaluate(`{
    const status = document.querySelector("[role=status]");
    new MutationObserver(() => (window.lost ||= status.textContent.includes("reconnecting"))).observe(status, { childList: true, characterData: true, subtree: true });
  }`);
  process.kill(pid, "SIGKILL");
  await page.waitForFunction(`window.lost`, { timeout: 120_000 });
  await page.waitForFunction(`[...document.querySelectorAll("[data-block=assistant_text][data-status=complete]")].some((e) => e.textContent.includes("w199"))`, { timeout: 120_000 });
  await shows(page, "[aria-label=Files]", "b.txt");
  await page.waitForFunction(`document.querySelector("[aria-label=Queue]").children.length === 0`, { timeout: 120_000 });
  await same("after the api was killed");
  await page.reload();
  await shows(page, "[role=log]", "w199");
  await same("after a reload");
  assert.deepEqual(errors, []);
  if (transport === "websocket") assert.ok(upgrades >= 3, `${upgrades} WebSockets: at first, after the api was killed, and after a reload`);
  else assert.equal(upgrades, 0);
  await session.command("stop");
  await shows(page, "[role=status]", "ended");
  console.log(`${await browser.version()}, ${transport}: ${(await session.blocks()).conversations[0]?.blocks.length} blocks`);

  /** The page has the same blocks as the server: each once, in order, with its text. */
  async function same(when: string): Promise<void> {
    const shown = await page.evaluate(`[...document.querySelectorAll("[data-id]")].map((e) => [e.dataset.id, e.dataset.status, e.dataset.block === "assistant_text" ? e.textContent : ""])`);
    const { conversations } = await session.blocks();
    assert.deepEqual(shown, conversations[0]?.blocks.map((b) => [b.id, b.status, b.type === "assistant_text" ? b.content : ""]), when);
  }
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}

async function shows(page: Page, selector: string, text: string): Promise<void> {
  await page.waitForFunction(`document.querySelector(${JSON.stringify(selector)})?.textContent.includes(${JSON.stringify(text)})`, { timeout: 120_000 });
}
