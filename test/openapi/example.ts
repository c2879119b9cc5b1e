// A client that is written against the OpenAPI document alone. The types in api.ts are generated from it.
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

type Event = components["schemas"]["Event"];
type Block = components["schemas"]["Block"];

const client = createClient<paths>({ baseUrl: "http://127.0.0.1:8080", headers: { Authorization: "Bearer KEY" } });

/** Creates a session and waits for the end of its first prompt. */
export async function ask(content: string): Promise<string> {
  const { data: session, error } = await client.POST("/api/sessions", {
    body: { agent: "demo", title: "From TypeScript", prompt: { content, onUnknown: "retry" } },
  });
  if (!session) throw new Error(`${error.code}: ${error.detail}`);

  const blocks = await client.GET("/api/sessions/{id}/blocks", { params: { path: { id: session.id } } });
  if (!blocks.data) throw new Error(blocks.error.code);
  return blocks.data.conversations.flatMap((c) => c.blocks.map(textOf)).join("\n");
}

/** Returns the readable text of a block. Each type has its own fields. */
export function textOf(block: Block): string {
  switch (block.type) {
    case "user_message":
    case "assistant_text":
    case "thinking":
      return block.content ?? "";
    case "tool_use":
      return `${block.name}(${JSON.stringify(block.input)})`;
    case "tool_result":
      return block.isError ? "failed" : JSON.stringify(block.output);
    case "system":
      return block.message ?? "";
    case "subagent":
      return `subagent ${block.subagentId}`;
    default:
      return never(block);
  }
}

/** Texts by block, from events as they arrive. */
export function apply(texts: Map<string, string>, event: Event): void {
  switch (event.type) {
    case "block_start":
    case "block_complete":
      texts.set(event.data.block.id, textOf(event.data.block));
      break;
    case "text_delta":
      texts.set(event.data.blockId, (texts.get(event.data.blockId) ?? "") + event.data.delta);
      break;
    case "block_removed":
      texts.delete(event.data.blockId);
      break;
    case "turn_end":
      if (event.data.outcome !== "completed") throw new Error(event.data.reason);
      break;
    case "question":
      for (const item of event.data.question.questions ?? []) console.log(item.question, item.options.map((o) => o.label));
      break;
    case "queue":
      console.log(event.data.queued, event.data.items[0]?.promptId);
      break;
    case "status":
      console.log(event.data.status satisfies components["schemas"]["SessionStatus"]);
      break;
  }
}

/** Answers all open questions of a session: permissions once, the others with their first option. */
export async function answerAll(id: string): Promise<void> {
  const open = await client.GET("/api/sessions/{id}/questions", { params: { path: { id }, query: { status: "open" } } });
  for (const question of open.data?.items ?? []) {
    const answers: Record<string, string | string[]> = {};
    for (const item of question.questions ?? []) {
      const first = item.options[0]?.label ?? "yes";
      answers[item.question] = item.multiple ? [first] : first;
    }
    await client.POST("/api/sessions/{id}/questions/{questionId}/answer", {
      params: { path: { id, questionId: question.id } },
      body: question.kind === "permission" ? { answer: "once" } : { answers },
    });
  }
}

function never(value: never): string {
  throw new Error(`a type that this client does not know: ${JSON.stringify(value)}`);
}
