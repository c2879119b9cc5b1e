// One client that follows a session until its input or the session ends. The argument is the kind of client: page, agui or
// eventsource. Package test runs all of them at once.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const session = process.env.SESSION_URL;
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const json = async (url) => (await fetch(url)).json();

/** Waits for an answer, whatever happens to the servers meanwhile. */
async function insist(url) {
  for (;;) {
    const answer = await json(url).catch(() => undefined);
    if (answer && !answer.code) return answer;
    await pause(200);
  }
}

/** The page with useChat. It sends each line of the input, and prints a line when the turn is over in the page. */
async function page() {
  const { open, until } = await import("./page.mjs");
  let cuts = 0;
  let connections = 0;
  const { fetch: direct } = globalThis;
  globalThis.fetch = async (url, init) => {
    const answer = await direct(url, init);
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer;
    connections++;
    const reader = answer.body.getReader();
    const pull = (controller) =>
      reader.read().then(
        ({ done, value }) => (done ? controller.close() : controller.enqueue(value)),
        (error) => (cuts++, controller.error(error)),
      );
    return new Response(new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason) }), { status: answer.status, headers: answer.headers });
  };
  let shown = await open(session);
  let opened = 1;
  for await (const line of input) {
    await shown.say(line);
    const prompt = shown.ids().at(-1);
    const id = shown.all("article.user").at(-1)?.id ?? prompt;
    await until("the prompt has ended", async () => (await insist(`${session}/prompts/${id}`)).endedAt, 240_000);
    // A person opens the page again if it shows an error that does not go away.
    for (let stuck = 0; shown.status() !== "ready"; ) {
      await pause(100);
      if (++stuck < 100) continue;
      stuck = 0;
      shown.close();
      await insist(`${session}/ai/messages`);
      shown = await open(session);
      opened++;
    }
    console.log("over");
  }
  console.log(JSON.stringify({ texts: shown.texts("article.assistant p"), opened, cuts, connections }));
  process.exit(0);
}

/** The agent of AG-UI. It attaches again whenever its stream ends. */
async function agui() {
  const { checked, ending, SessionAgent } = await import("./agui.mjs");
  let over = false;
  let cuts = 0;
  let connections = 0;
  const tried = ending(() => cuts++);
  const patient = async (url, init) => {
    for (;;) {
      const answer = await tried(url, init).catch(() => undefined);
      if (answer?.ok) return connections++, answer;
      await pause(200);
    }
  };
  const agent = new SessionAgent({ url: `${session}/ag-ui`, fetch: patient });
  const said = () => agent.messages.filter((message) => message.role === "assistant" && !message.toolCalls).map((message) => message.content);
  agent.subscribe(checked);
  input.next().then(() => (over = true));
  while (!over) {
    await agent.connectAgent();
    await pause(200);
  }
  console.log(JSON.stringify({ texts: said(), cuts, connections }));
  process.exit(0);
}

/** EventSource. It connects again by itself, except after an answer that is no stream. */
async function eventsource() {
  const { EventSource } = await import("undici");
  let last = 0;
  const connect = () => {
    const source = new EventSource(`${session}/events?after=${last}`);
    for (const type of JSON.parse(process.env.EVENT_TYPES)) {
      source.addEventListener(type, (event) => {
        if (typeof event.data !== "string") return; // an error of the connection has the name of an event
        if (type === "gap") throw new Error(`a gap: ${event.data}`);
        if (type === "end") process.exit(0);
        if (type === "caught_up") return;
        last = Number(event.lastEventId);
        process.stdout.write(event.data + "\n");
      });
    }
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 200);
    };
  };
  connect();
}

await { page, agui, eventsource }[process.argv[2]]();
