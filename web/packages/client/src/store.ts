import { Backoff, sleep } from "./backoff.js";
import type { SessionHandle } from "./client.js";
import { pages } from "./client.js";
import { OverwinterError } from "./error.js";
import { Folder } from "./fold.js";
import { isMarker } from "./follow.js";
import type { Transport } from "./http.js";
import type { Conversation, Event, Prompt, Question, Session, StreamItem } from "./types.js";

/**
 * `loading` until the conversation has been read, `live` while the stream is open, `reconnecting` in between,
 * `ended` when no more events will follow, `failed` when the server refuses.
 */
export type Connection = "loading" | "live" | "reconnecting" | "ended" | "failed";

/** An unfinished prompt. */
export interface QueueItem {
  id: string;
  ordinal: number;
  /**
   * Queued prompts run in the order of rank and, with the same rank, of ordinal. Absent unless it was
   * promoted: 0.
   */
  rank?: number;
  status: Prompt["status"];
  /** Absent if only its position in the queue is known. */
  content?: string;
  author?: string;
}

/** A file of the workspace, as described by events. */
export interface StoredFile {
  path: string;
  size: number;
  modifiedAt: string;
}

/** The state of a store. States are immutable; unchanged parts of the next state are the same objects. */
export interface SessionState {
  readonly connection: Connection;
  /** The reason why the connection is `failed` or `reconnecting`. */
  readonly error: Error | undefined;
  readonly session: Session | undefined;
  /** The main conversation first, then those of subagents. */
  readonly conversations: readonly Conversation[];
  /** The unfinished prompts, in order. */
  readonly queue: readonly QueueItem[];
  /** The open questions, oldest first. */
  readonly questions: readonly Question[];
  /** The files of the workspace by path; undefined until they have been read, which `watchFiles` requests. */
  readonly files: readonly StoredFile[] | undefined;
}

const initial: SessionState = {
  connection: "loading",
  error: undefined,
  session: undefined,
  conversations: new Folder().conversations,
  queue: [],
  questions: [],
  files: undefined,
};

/**
 * How long the stream stays open after the last subscriber has left, in case another view of the session
 * opens.
 */
const linger = 2_000;

/** Events after which the session is read again. */
const sessionEvents = ["status", "title", "settings", "command", "turn_start", "turn_end", "queue", "question", "question_resolved", "setup"];

/**
 * Keeps the current state of a session for any number of subscribers, from one stream. The stream is open
 * while there are subscribers. The state starts with `GET …/blocks` and continues with the events after it.
 */
export class SessionStore {
  readonly handle: SessionHandle;
  #state = initial;
  #listeners = new Set<() => void>();
  #stop: AbortController | undefined;
  #lingering: ReturnType<typeof setTimeout> | undefined;
  #flushing: ReturnType<typeof setTimeout> | undefined;

  #connection: Connection = "loading";
  #error: Error | undefined;
  #session: Session | undefined;
  #folder = new Folder();
  #queue = new Table<QueueItem>(byTurn);
  #questions = new Table<Question>((a, b) => (a.createdAt + a.id < b.createdAt + b.id ? -1 : 1));
  #files: Table<StoredFile> | undefined;
  #filesWanted = false;
  #changesOfFiles: Event[] | undefined; // while the list is being read
  #loaded = false;
  #reading = false;
  #stale = false;

  #onClose: (() => void) | undefined;
  #transport: Transport | undefined;

  /** onClose is called when the stream is closed after the last subscriber has left. */
  constructor(handle: SessionHandle, onClose?: () => void, transport?: Transport) {
    this.handle = handle;
    this.#onClose = onClose;
    this.#transport = transport;
  }

  /** The current state: the same object until something changes. */
  get state(): SessionState {
    return this.#state;
  }

  /** The initial state, for server-side rendering. */
  get initial(): SessionState {
    return initial;
  }

  /**
   * Calls listener after every change. The first subscriber opens the stream. Returns a function that
   * unsubscribes.
   */
  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    clearTimeout(this.#lingering);
    if (!this.#stop) {
      this.#stop = new AbortController();
      void this.#run(this.#stop.signal);
    }
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#lingering = setTimeout(() => this.close(), linger);
    };
  };

  /** Closes the stream. The state stays; the next subscriber reopens the stream. */
  close(): void {
    clearTimeout(this.#lingering);
    this.#stop?.abort();
    this.#stop = undefined;
    this.#loaded = false;
    this.#onClose?.();
  }

  /** Reads the list of files once the stream is open. The stream then keeps the list up to date. */
  watchFiles(): void {
    this.#filesWanted = true;
    if (this.#loaded && this.#stop) this.#wantFiles(this.#stop.signal);
  }

  /** Reads the list of files if it is requested, missing, and no read is in progress. */
  #wantFiles(signal: AbortSignal): void {
    if (this.#filesWanted && !this.#files && !this.#changesOfFiles) void this.#readFiles(signal);
  }

  /** Reads the list of files. A later read makes its result obsolete. */
  async #readFiles(signal: AbortSignal): Promise<void> {
    const changes: Event[] = (this.#changesOfFiles = []);
    try {
      const files = new Table<StoredFile>((a, b) => (a.path < b.path ? -1 : 1));
      const read = (cursor: string | undefined) => this.handle.files(cursor === undefined ? { limit: 200 } : { limit: 200, cursor }, { signal });
      for await (const { path, size, modifiedAt } of pages(read)) {
        files.set(path, { path, size, modifiedAt });
      }
      if (this.#changesOfFiles !== changes) return;
      this.#files = files;
      for (const event of changes) this.#file(event);
      this.#changed();
    } catch {
      // The next connection, or the end of the next turn, retries.
    } finally {
      if (this.#changesOfFiles === changes) this.#changesOfFiles = undefined;
    }
  }

  async #run(signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(250, 10_000);
    while (!signal.aborted) {
      try {
        const after = await this.#load(signal);
        backoff.reset();
        for await (const item of this.handle.follow({ after, signal, transport: this.#transport, onConnection: (state, error) => this.#connected(state, error, signal) })) {
          if (!this.#take(item, signal)) break;
        }
        if (this.#connection === "ended") return;
      } catch (error) {
        if (signal.aborted) return;
        const refused = error instanceof OverwinterError && !error.temporary && error.code !== "position_gone";
        this.#error = error instanceof Error ? error : new Error(String(error));
        this.#connection = refused ? "failed" : "reconnecting";
        this.#changed();
        if (refused) return;
        await sleep(backoff.pause(error instanceof OverwinterError ? error.retryAfter : undefined), signal).catch(() => undefined);
      }
    }
  }

  /**
   * Reads the initial state, and returns the position after which events continue it. The position is read
   * first: data that is read later may be newer, and the events in between are applied again.
   */
  async #load(signal: AbortSignal): Promise<number> {
    const { conversations, seq } = await this.handle.blocks({ signal });
    const session = await this.handle.get({ signal });
    const queue: Prompt[] = [];
    if (session.queue.queued + session.queue.processing > 0) {
      for await (const p of pages((cursor) => this.handle.prompts(cursor === undefined ? { limit: 200 } : { limit: 200, cursor }, { signal }))) {
        if (!over(p.status)) queue.push(p);
      }
    }
    const questions: Question[] = [];
    if (session.questions.open > 0) {
      const read = (cursor: string | undefined) => this.handle.questions(cursor === undefined ? { status: "open" } : { status: "open", cursor }, { signal });
      for await (const q of pages(read)) questions.push(q);
    }
    signal.throwIfAborted();
    this.#folder = new Folder(conversations);
    this.#session = session;
    this.#queue.reset(queue.map((p) => [p.id, itemOf(p)]));
    this.#questions.reset(questions.map((q) => [q.id, q]));
    this.#loaded = true;
    this.#files = undefined;
    if (this.#filesWanted) void this.#readFiles(signal);
    this.#changed();
    return seq;
  }

  #connected(state: "open" | "lost", error: unknown, signal: AbortSignal): void {
    this.#connection = state === "open" ? "live" : "reconnecting";
    this.#error = state === "open" ? undefined : error instanceof Error ? error : undefined;
    if (state === "open") {
      this.#wantFiles(signal);
      if (this.#stale && !this.#reading) void this.#readSession(signal);
    }
    this.#changed();
  }

  /** Applies an item of the stream. Returns false if the initial state must be read again. */
  #take(item: StreamItem, signal: AbortSignal): boolean {
    if (isMarker(item)) {
      if (item.type === "gap") return false;
      if (item.type === "end") {
        this.#connection = "ended";
        this.#changed();
      }
      if (item.type !== "caught_up") void this.#readSession(signal);
      return true;
    }
    this.#folder.add(item);
    switch (item.type) {
      case "prompt": {
        const { prompt } = item.data;
        if (over(prompt.status)) this.#queue.delete(prompt.id);
        else this.#queue.set(prompt.id, { ...this.#queue.get(prompt.id), ...itemOf(prompt) });
        break;
      }
      case "queue":
        this.#queued(item.data);
        break;
      case "question":
        this.#questions.set(item.data.question.id, item.data.question);
        break;
      case "question_resolved":
        this.#questions.delete(item.data.questionId);
        break;
      case "file":
        this.#changesOfFiles?.push(item);
        this.#file(item);
        break;
      case "turn_end":
        this.#wantFiles(signal);
        break;
      case "status":
        if (this.#session) this.#session = { ...this.#session, status: item.data.status, statusReason: item.data.reason };
        break;
      case "title":
        if (this.#session) this.#session = { ...this.#session, title: item.data.title };
        break;
    }
    if (sessionEvents.includes(item.type)) void this.#readSession(signal);
    this.#changed();
    return true;
  }

  #queued(data: Extract<Event, { type: "queue" }>["data"]): void {
    if (!data.changes) this.#queue.reset(data.items.map((i) => [i.promptId, { ...this.#queue.get(i.promptId), ...placeOf(i) }]));
    for (const change of data.changes ?? []) {
      if (change.change === "removed" || over(change.status)) this.#queue.delete(change.promptId);
      else this.#queue.set(change.promptId, { ...this.#queue.get(change.promptId), ...placeOf(change) });
    }
  }

  #file(event: Event): void {
    if (event.type !== "file") return;
    const { path, size, change } = event.data;
    if (change === "deleted") this.#files?.delete(path);
    else this.#files?.set(path, { path, size, modifiedAt: event.at });
  }

  /** Reads the session again. Reads do not overlap; a change during a read triggers another one. */
  async #readSession(signal: AbortSignal): Promise<void> {
    this.#stale = true;
    if (this.#reading) return;
    this.#reading = true;
    try {
      while (this.#stale && !signal.aborted) {
        await sleep(50, signal); // batches the events of one step into one change
        this.#stale = false;
        this.#session = await this.handle.get({ signal });
        this.#changed();
      }
    } catch {
      this.#stale = true; // retried after the next connection or event
    } finally {
      this.#reading = false;
    }
  }

  /** Creates the next state after applying all events that arrived together. */
  #changed(): void {
    this.#flushing ??= setTimeout(() => {
      this.#flushing = undefined;
      this.#state = {
        connection: this.#connection,
        error: this.#error,
        session: this.#session,
        conversations: this.#folder.conversations,
        queue: this.#queue.items,
        questions: this.#questions.items,
        files: this.#files?.items,
      };
      for (const listener of this.#listeners) listener();
    }, 0);
  }
}

/** A collection by id, with a sorted array that stays the same object until an item changes. */
class Table<T> {
  #byId = new Map<string, T>();
  #items: readonly T[] | undefined;

  constructor(private readonly order: (a: T, b: T) => number) {}

  get items(): readonly T[] {
    this.#items ??= [...this.#byId.values()].sort(this.order);
    return this.#items;
  }

  get(id: string): T | undefined {
    return this.#byId.get(id);
  }

  set(id: string, value: T): void {
    this.#byId.set(id, value);
    this.#items = undefined;
  }

  delete(id: string): void {
    if (this.#byId.delete(id)) this.#items = undefined;
  }

  reset(entries: [string, T][]): void {
    this.#byId = new Map(entries);
    this.#items = undefined;
  }
}

function over(status: Prompt["status"]): boolean {
  return status !== "queued" && status !== "processing";
}

/** Sorts the prompts being processed first, followed by the queued prompts in queue order. */
function byTurn(a: QueueItem, b: QueueItem): number {
  const waits = (i: QueueItem) => (i.status === "queued" ? 1 : 0);
  return waits(a) - waits(b) || (a.rank ?? 0) - (b.rank ?? 0) || a.ordinal - b.ordinal;
}

/** Converts a prompt to its representation in the queue. Only the first event of a prompt has its content. */
function itemOf(p: Pick<Prompt, "id" | "ordinal" | "rank" | "status"> & { content?: string; author?: string }): QueueItem {
  return {
    id: p.id, ordinal: p.ordinal, ...(p.rank !== undefined && { rank: p.rank }), status: p.status,
    ...(p.content === undefined ? {} : { content: p.content }),
    ...(p.author === undefined ? {} : { author: p.author }),
  };
}

function placeOf(i: { promptId: string; ordinal: number; rank?: number; status: Prompt["status"] }): QueueItem {
  return { id: i.promptId, ordinal: i.ordinal, ...(i.rank !== undefined && { rank: i.rank }), status: i.status };
}
