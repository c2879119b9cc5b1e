// Creates a session, answers its agent's questions, and prints the agent's text, even if the connection is
// lost.
import { createClient } from "@overwinter/client";

const client = createClient({ baseUrl: process.env["OVERWINTER_API_URL"] ?? "http://127.0.0.1:8080" });
const { handle } = await client.createSession({ agent: "demo", title: "From TypeScript" });
const { prompt } = await handle.prompt("Hello there.\nask: Which colour? | Red | Blue\nGood bye.");

for await (const item of handle.follow()) {
  if (item.type === "text_delta") process.stdout.write(item.data.delta);
  if (item.type === "question") await handle.answer(item.data.question.id, { answers: { "Which colour?": "Blue" } });
  if (item.type === "turn_end" && item.data.promptId === prompt.id) break;
}
console.log(`\nThe prompt is ${(await handle.getPrompt(prompt.id)).status}.`);
await handle.command("stop");
