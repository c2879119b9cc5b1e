import type { Block, Conversation, Event } from "./types.js";

const main = "main";

/**
 * The conversations that result from events, the main one first, as `GET …/blocks` returns them after the
 * last event.
 */
export function fold(events: Iterable<Event>): readonly Conversation[] {
  const folder = new Folder();
  for (const event of events) folder.add(event);
  return folder.conversations;
}

/**
 * Folds events into conversations, as they arrive. Returned conversations and blocks never change: a later
 * event creates new objects for changed parts, and unchanged parts stay the same objects.
 */
export class Folder {
  #threads = new Map<string, Thread>([[main, new Thread(main)]]);
  #shown: readonly Conversation[] | undefined;

  /** Starts from conversations read from the server. Apply the events after their position next. */
  constructor(conversations: Iterable<Conversation> = []) {
    for (const { id, blocks } of conversations) {
      const thread = this.#thread(id);
      for (const block of blocks) thread.set(block);
    }
  }

  /** Applies the next event. Events that are not about blocks, or about unknown blocks, change nothing. */
  add(event: Event): void {
    switch (event.type) {
      case "block_start":
      case "block_complete":
        this.#thread(event.conversationId).set(event.data.block);
        break;
      case "text_delta":
      case "block_update":
      case "block_removed": {
        const thread = this.#threads.get(event.conversationId || main);
        if (!thread?.has(event.data.blockId)) return;
        if (event.type === "text_delta") thread.change(event.data.blockId, (b) => withText(b, event.data.delta));
        else if (event.type === "block_update") thread.change(event.data.blockId, (b) => withUpdates(b, event.data.updates));
        else thread.remove(event.data.blockId);
        break;
      }
      default:
        return;
    }
    this.#shown = undefined;
  }

  /** The current conversations. */
  get conversations(): readonly Conversation[] {
    this.#shown ??= Array.from(this.#threads.values(), (t) => t.conversation);
    return this.#shown;
  }

  #thread(id: string | undefined): Thread {
    const key = id || main;
    let thread = this.#threads.get(key);
    if (!thread) this.#threads.set(key, (thread = new Thread(key)));
    return thread;
  }
}

class Thread {
  #blocks = new Map<string, Block>(); // in order of appearance
  #shown: Conversation | undefined;

  constructor(readonly id: string) {}

  has(id: string): boolean {
    return this.#blocks.has(id);
  }

  set(block: Block): void {
    this.#blocks.set(block.id, block);
    this.#shown = undefined;
  }

  change(id: string, how: (block: Block) => Block): void {
    const block = this.#blocks.get(id);
    if (block) this.set(how(block));
  }

  remove(id: string): void {
    this.#blocks.delete(id);
    this.#shown = undefined;
  }

  get conversation(): Conversation {
    this.#shown ??= { id: this.id, blocks: Array.from(this.#blocks.values()) };
    return this.#shown;
  }
}

function withText(block: Block, delta: string): Block {
  switch (block.type) {
    case "user_message":
    case "assistant_text":
    case "thinking":
      return { ...block, content: (block.content ?? "") + delta };
    default:
      return block;
  }
}

type Updates = Extract<Event, { type: "block_update" }>["data"]["updates"];

/** Applies the updates that the block's type supports. A tool's kind replaces all fields describing the call. */
function withUpdates(block: Block, updates: Updates): Block {
  const next: Record<string, unknown> = { ...block };
  const take = (...names: (keyof Updates)[]) => {
    for (const name of names) {
      if (name in updates && (updates[name] || name === "input" || name === "output")) next[name] = updates[name];
    }
  };
  take("status", "truncatedBytes");
  switch (block.type) {
    case "tool_use":
      take("name", "input");
      if (updates.kind) {
        for (const name of ["kind", "title", "locations", "diff"] as const) delete next[name];
        take("kind", "title", "locations", "diff");
      }
      break;
    case "tool_result":
      take("output");
      break;
    case "subagent":
      take("name", "input", "subagentId");
      break;
  }
  return next as Block;
}
