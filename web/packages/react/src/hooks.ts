import type {
  Answer, Block, Command, Connection, Conversation, Prompt, PromptAccepted, PromptSubmit, Question, QueueItem, Session, SessionPatch, SessionState, StoredFile,
} from "@overwinter/client";
import { useEffect, useMemo, useSyncExternalStore } from "react";
import { useStore } from "./provider.js";

/** Returns a part of a session's state. The component rerenders when that part changes. */
function usePart<K extends keyof SessionState>(sessionId: string, part: K): SessionState[K] {
  const store = useStore(sessionId);
  return useSyncExternalStore(store.subscribe, () => store.state[part], () => store.initial[part]);
}

/**
 * Returns a session, the state of its stream, and functions for its commands. The functions are stable
 * between renders.
 */
export function useSession(sessionId: string): {
  session: Session | undefined;
  connection: Connection;
  error: Error | undefined;
  prompt: (prompt: string | PromptSubmit) => Promise<PromptAccepted>;
  command: (command: Command) => Promise<Session>;
  update: (changes: SessionPatch) => Promise<Session>;
} {
  const { handle } = useStore(sessionId);
  const session = usePart(sessionId, "session");
  const connection = usePart(sessionId, "connection");
  const error = usePart(sessionId, "error");
  const calls = useMemo(
    () => ({
      prompt: (prompt: string | PromptSubmit) => handle.prompt(prompt),
      command: (command: Command) => handle.command(command),
      update: (changes: SessionPatch) => handle.update(changes),
    }),
    [handle],
  );
  return { session, connection, error, ...calls };
}

/** All conversations of a session: the main one first, then those of subagents. */
export function useConversations(sessionId: string): readonly Conversation[] {
  return usePart(sessionId, "conversations");
}

const none: readonly Block[] = [];

/** The blocks of a conversation. Unchanged blocks stay the same objects. */
export function useBlocks(sessionId: string, conversationId = "main"): readonly Block[] {
  return useConversations(sessionId).find((c) => c.id === conversationId)?.blocks ?? none;
}

/** The unfinished prompts, in order, and whether the queue is held. */
export function useQueue(sessionId: string): {
  queue: readonly QueueItem[];
  held: boolean;
  withdraw: (promptId: string) => Promise<Prompt>;
  hold: (reason?: string) => Promise<Session>;
  release: () => Promise<Session>;
} {
  const { handle } = useStore(sessionId);
  const queue = usePart(sessionId, "queue");
  const held = usePart(sessionId, "session")?.queue.held ?? false;
  const calls = useMemo(
    () => ({
      withdraw: (promptId: string) => handle.withdraw(promptId),
      hold: (reason?: string) => handle.hold(reason),
      release: () => handle.release(),
    }),
    [handle],
  );
  return { queue, held, ...calls };
}

/** The open questions, oldest first. */
export function useQuestions(sessionId: string): { questions: readonly Question[]; answer: (questionId: string, answer: Answer) => Promise<Question> } {
  const { handle } = useStore(sessionId);
  const questions = usePart(sessionId, "questions");
  const answer = useMemo(() => (questionId: string, body: Answer) => handle.answer(questionId, body), [handle]);
  return { questions, answer };
}

/** The workspace files by path, undefined until they have been read, and a function that reads one file. */
export function useFiles(sessionId: string): { files: readonly StoredFile[] | undefined; read: (path: string) => Promise<Response> } {
  const store = useStore(sessionId);
  const files = usePart(sessionId, "files");
  useEffect(() => store.watchFiles(), [store]);
  const read = useMemo(() => (path: string) => store.handle.file(path), [store]);
  return { files, read };
}
