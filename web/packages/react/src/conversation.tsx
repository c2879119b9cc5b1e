import type { Block as AnyBlock, BlockType } from "@overwinter/client";
import { createContext, memo, useContext, type ComponentType } from "react";
import { useBlocks } from "./hooks.js";

/** Renders one type of block. */
export type BlockRenderer<T extends BlockType> = ComponentType<{ block: Extract<AnyBlock, { type: T }>; sessionId: string }>;

/** Renderers by type. Other types use the default renderers. */
export type BlockRenderers = { [T in BlockType]?: BlockRenderer<T> };

const Renderers = createContext<BlockRenderers>({});

export interface ConversationProps {
  sessionId: string;
  /** `main`, or the id of a subagent. */
  conversationId?: string;
  /** Its accessible name. Default: `Conversation`. */
  label?: string;
  /** Custom components for types of blocks. Keep the object outside of components, or in a memo. */
  components?: BlockRenderers;
}

/** Shows a conversation, updated live. */
export function Conversation({ sessionId, conversationId = "main", label = "Conversation", components }: ConversationProps) {
  const above = useContext(Renderers);
  const blocks = useBlocks(sessionId, conversationId);
  const list = (
    <div role="log" aria-label={label} aria-busy={blocks.some((b) => b.status === "streaming")} data-conversation={conversationId}>
      {blocks.map((block) => <Block key={block.id} block={block} sessionId={sessionId} />)}
    </div>
  );
  return <Renderers.Provider value={components ?? above}>{list}</Renderers.Provider>;
}

/** Shows one block with the renderer of its type. Renders nothing for unknown types. */
export const Block = memo(function Block({ block, sessionId }: { block: AnyBlock; sessionId: string }) {
  const own = useContext(Renderers);
  const Renderer = (own[block.type] ?? defaults[block.type]) as ComponentType<{ block: AnyBlock; sessionId: string }> | undefined;
  return Renderer ? (
    <article data-block={block.type} data-status={block.status} data-id={block.id}>
      <Renderer block={block} sessionId={sessionId} />
    </article>
  ) : null;
});

const asWritten = { whiteSpace: "pre-wrap" } as const;

function Text({ block }: { block: { content?: string } }) {
  return <div style={asWritten}>{block.content ?? ""}</div>;
}

/** Formats JSON of an agent; a string is shown without quotes. */
function Value({ value }: { value: unknown }) {
  if (value === undefined || value === null) return null;
  return <pre>{typeof value === "string" ? value : JSON.stringify(value, null, 2)}</pre>;
}

const defaults: { [T in BlockType]: BlockRenderer<T> } = {
  user_message: Text,
  assistant_text: Text,
  thinking: ({ block }) => (
    <details>
      <summary>Thinking</summary>
      <Text block={block} />
    </details>
  ),
  tool_use: ({ block }) => (
    <details>
      <summary>
        {block.title ?? block.name} <span>{block.status}</span>
      </summary>
      <Value value={block.input} />
    </details>
  ),
  tool_result: ({ block }) => (
    <details>
      <summary>{block.isError ? "Failed" : "Result"}</summary>
      <Value value={block.output} />
    </details>
  ),
  system: ({ block }) => <p role="note">{block.message}</p>,
  subagent: ({ block, sessionId }) => (
    <details>
      <summary>
        {block.name} <span>{block.status}</span>
      </summary>
      {block.subagentId ? <Conversation sessionId={sessionId} conversationId={block.subagentId} label={`Subagent ${block.name ?? ""}`} /> : null}
    </details>
  ),
};
