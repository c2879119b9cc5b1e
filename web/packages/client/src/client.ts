import { follow, type FollowOptions } from "./follow.js";
import { Http, type ClientOptions, type Input, type Method, type OperationOf, type PathOf, type RequestOptions, type Result, type Transport } from "./http.js";
import type { operations } from "./schema.js";
import { SessionStore } from "./store.js";
import type { Agent, Answer, Conversation, Diff, Git, Page, Prompt, PromptAccepted, PromptSubmit, Question, Revert, Run, RunRequest, Screenshot, Session, SessionCreate, SessionPatch, StreamItem, StreamToken, WorkspaceFile } from "./types.js";

/** The session commands without a body. */
export type Command = "wake" | "hibernate" | "sync" | "stop" | "abort" | "recover" | "environment/restart" | "environment/terminate";

type Query<O extends keyof operations> = operations[O] extends { parameters: { query?: infer Q } } ? Q : never;

/** A client of the API. */
export class Client {
  readonly #http: Http;

  constructor(options: ClientOptions) {
    this.#http = new Http(options);
  }

  /** Calls any endpoint of the API: `request("get", "/api/profiles", {query: {limit: 10}})`. */
  request<M extends Method, P extends PathOf<M>>(method: M, path: P, input: Input<OperationOf<P, M>>): Promise<Result<OperationOf<P, M>>> {
    return this.#http.request(method, path, input);
  }

  /**
   * Creates a session. The request is retried if the connection fails, and still creates only one session.
   * `files` belong to its first prompt and are sent unchanged, as a form; `attachments` of the prompt are
   * base64.
   */
  async createSession(body: SessionCreate, options: RequestOptions & { idempotencyKey?: string; files?: File[] } = {}): Promise<{ session: Session; handle: SessionHandle }> {
    const { idempotencyKey = newId("key"), files = [], headers, signal } = options;
    const request = { signal, retry: true, headers: { ...headers, "Idempotency-Key": idempotencyKey } };
    const session: Session =
      files.length === 0
        ? await this.#http.request("post", "/api/sessions", { ...request, body })
        : ((await this.#http.json("post", "/api/sessions", { ...request, body: formOf("session", body, files) })) as Session);
    return { session, handle: this.session(session.id) };
  }

  /** Returns one page of sessions. Use `pages` to read all of them. */
  listSessions(query: Query<"listSessions"> = {}, options: RequestOptions = {}): Promise<Page<Session>> {
    return this.#http.request("get", "/api/sessions", { ...options, query });
  }

  /**
   * Starts a run at a session or a bundle. The request is retried if the connection fails, and still starts
   * only one run. With `wait` in the body, the response is sent when the run has ended.
   */
  startRun(body: RunRequest, options: RequestOptions & { idempotencyKey?: string } = {}): Promise<Run> {
    const { idempotencyKey = newId("key"), headers, signal } = options;
    return this.#http.request("post", "/api/runs", { body, signal, retry: true, headers: { ...headers, "Idempotency-Key": idempotencyKey } });
  }

  /** Returns one page of runs. Use `pages` to read all of them. */
  listRuns(query: Query<"listRuns"> = {}, options: RequestOptions = {}): Promise<Page<Run>> {
    return this.#http.request("get", "/api/runs", { ...options, query });
  }

  /** Returns a run. With `wait`, such as `"20s"`, waits until the run has ended or the time has elapsed. */
  getRun(runId: string, query: Query<"getRun"> = {}, options: RequestOptions = {}): Promise<Run> {
    return this.#http.request("get", "/api/runs/{runId}", { ...options, path: { runId }, query });
  }

  /** Withdraws a queued run, or interrupts one that is in progress. */
  cancelRun(runId: string, options: RequestOptions = {}): Promise<Run> {
    return this.#http.request("post", "/api/runs/{runId}/cancel", { ...options, path: { runId }, body: {} });
  }

  async listAgents(options: RequestOptions = {}): Promise<Agent[]> {
    return (await this.#http.request("get", "/api/agents", options)).items;
  }

  /** Returns the API of one session. Sends no request. */
  session(id: string): SessionHandle {
    return new SessionHandle(this.#http, id);
  }
}

/** Creates a client. */
export function createClient(options: ClientOptions): Client {
  return new Client(options);
}

/** Yields the items of all pages in order. */
export async function* pages<T>(read: (cursor: string | undefined) => Promise<Page<T>>): AsyncGenerator<T> {
  for (let cursor: string | undefined; ; ) {
    const page = await read(cursor);
    yield* page.items;
    if (page.nextCursor === null) return;
    cursor = page.nextCursor;
  }
}

/** The API of one session. */
export class SessionHandle {
  readonly #http: Http;
  readonly id: string;

  constructor(http: Http, id: string) {
    this.#http = http;
    this.id = id;
  }

  get(options: RequestOptions = {}): Promise<Session> {
    return this.#http.request("get", "/api/sessions/{id}", { ...options, path: { id: this.id } });
  }

  update(body: SessionPatch, options: RequestOptions = {}): Promise<Session> {
    return this.#http.request("patch", "/api/sessions/{id}", { ...options, path: { id: this.id }, body });
  }

  /**
   * Queues a prompt. The request is retried if the connection fails; the prompt's id, generated here unless
   * specified, prevents duplicates. `files` are sent unchanged, as a form; `attachments` of the prompt are
   * base64.
   */
  async prompt(prompt: string | PromptSubmit, options: RequestOptions & { files?: File[] } = {}): Promise<PromptAccepted> {
    const { files = [], ...request } = options;
    const given = typeof prompt === "string" ? { content: prompt } : prompt;
    const body = { ...given, id: given.id ?? newId("prompt") };
    if (files.length === 0) return this.#http.request("post", "/api/sessions/{id}/prompts", { retry: true, ...request, path: { id: this.id }, body });
    return (await this.#http.json("post", "/api/sessions/{id}/prompts", { retry: true, ...request, path: { id: this.id }, body: formOf("prompt", body, files) })) as PromptAccepted;
  }

  /** Returns a response with the bytes of a prompt's attachment or of an image in a tool result. */
  attachment(attachmentId: string, options: RequestOptions = {}): Promise<Response> {
    return this.#http.send("get", "/api/sessions/{id}/attachments/{attachmentId}", { ...options, path: { id: this.id, attachmentId } });
  }

  prompts(query: Query<"listPrompts"> = {}, options: RequestOptions = {}): Promise<Page<Prompt>> {
    return this.#http.request("get", "/api/sessions/{id}/prompts", { ...options, path: { id: this.id }, query });
  }

  getPrompt(promptId: string, options: RequestOptions = {}): Promise<Prompt> {
    return this.#http.request("get", "/api/sessions/{id}/prompts/{promptId}", { ...options, path: { id: this.id, promptId } });
  }

  /** Withdraws a queued prompt. */
  withdraw(promptId: string, options: RequestOptions = {}): Promise<Prompt> {
    return this.#http.request("delete", "/api/sessions/{id}/prompts/{promptId}", { ...options, path: { id: this.id, promptId } });
  }

  /** Replaces the content of a queued prompt. */
  replace(promptId: string, content: string, options: RequestOptions = {}): Promise<Prompt> {
    return this.#http.request("put", "/api/sessions/{id}/prompts/{promptId}", { retry: true, ...options, path: { id: this.id, promptId }, body: { content } });
  }

  /** Moves a queued prompt to the front of the queue. */
  promote(promptId: string, options: RequestOptions = {}): Promise<Prompt> {
    return this.#http.request("post", "/api/sessions/{id}/prompts/{promptId}/promote", { ...options, path: { id: this.id, promptId } });
  }

  /** Withdraws all queued prompts and returns their ids. */
  async clear(options: RequestOptions = {}): Promise<string[]> {
    return (await this.#http.request("post", "/api/sessions/{id}/queue/clear", { ...options, path: { id: this.id } })).promptIds;
  }

  /**
   * Requests a command. The command is stored and executed as soon as possible; an event `command` reports
   * its result.
   */
  command(command: Command, options: RequestOptions = {}): Promise<Session> {
    return this.#http.request("post", `/api/sessions/{id}/${command}`, { ...options, path: { id: this.id } });
  }

  /**
   * Reverts the session to a bundle, with files and memory, or only the agent to its state before a prompt:
   * `revert({bundleId})`, `revert({promptId})`; `files` overrides whether files are reverted. An event
   * `command` reports the result.
   */
  revert(to: Revert, options: RequestOptions = {}): Promise<Session> {
    return this.#http.request("post", "/api/sessions/{id}/revert", { ...options, path: { id: this.id }, body: to });
  }

  /** Holds the queue: no prompt starts until `release`. */
  hold(reason?: string, options: RequestOptions = {}): Promise<Session> {
    return this.#http.request("post", "/api/sessions/{id}/hold", { retry: true, ...options, path: { id: this.id }, body: reason === undefined ? {} : { reason } });
  }

  release(options: RequestOptions = {}): Promise<Session> {
    return this.#http.request("post", "/api/sessions/{id}/release", { retry: true, ...options, path: { id: this.id } });
  }

  /** Returns the whole conversation, from all pages, and the position after which events continue it. */
  async blocks(options: RequestOptions = {}): Promise<{ conversations: Conversation[]; seq: number }> {
    const all = new Map<string, Conversation>();
    let seq = 0;
    for (let cursor: string | undefined; ; ) {
      const page = await this.#http.request("get", "/api/sessions/{id}/blocks", {
        ...options, path: { id: this.id }, query: cursor === undefined ? {} : { cursor },
      });
      seq ||= page.seq ?? 0;
      for (const { id, blocks } of page.conversations) {
        const known = all.get(id);
        if (known) known.blocks.push(...blocks);
        else all.set(id, { id, blocks });
      }
      cursor = page.nextCursor;
      if (cursor === undefined) return { conversations: [...all.values()], seq };
    }
  }

  /** Follows the session: see `follow`. */
  follow(options: FollowOptions = {}): AsyncGenerator<StreamItem, void, undefined> {
    return follow(this.#http, this.id, options);
  }

  questions(query: Query<"listQuestions"> = {}, options: RequestOptions = {}): Promise<Page<Question>> {
    return this.#http.request("get", "/api/sessions/{id}/questions", { ...options, path: { id: this.id }, query });
  }

  getQuestion(questionId: string, options: RequestOptions = {}): Promise<Question> {
    return this.#http.request("get", "/api/sessions/{id}/questions/{questionId}", { ...options, path: { id: this.id, questionId } });
  }

  /** Answers a question. The first answer counts. */
  answer(questionId: string, body: Answer, options: RequestOptions = {}): Promise<Question> {
    return this.#http.request("post", "/api/sessions/{id}/questions/{questionId}/answer", { ...options, path: { id: this.id, questionId }, body });
  }

  files(query: Query<"listFiles"> = {}, options: RequestOptions = {}): Promise<Page<WorkspaceFile>> {
    return this.#http.request("get", "/api/sessions/{id}/files", { ...options, path: { id: this.id }, query });
  }

  /** Returns a response with the bytes of a workspace file. */
  file(path: string, options: RequestOptions = {}): Promise<Response> {
    return this.#http.send("get", "/api/sessions/{id}/files/{path}", { ...options, path: { id: this.id, path } });
  }

  diff(options: RequestOptions = {}): Promise<Diff> {
    return this.#http.request("get", "/api/sessions/{id}/diff", { ...options, path: { id: this.id } });
  }

  /** Asks the agent for a review of the changes. Its result is an event `review_result`. */
  review(instructions?: string, options: RequestOptions = {}): Promise<PromptAccepted> {
    const body = { id: newId("review"), ...(instructions === undefined ? {} : { instructions }) };
    return this.#http.request("post", "/api/sessions/{id}/review", { retry: true, ...options, path: { id: this.id }, body });
  }

  /** Returns the branch and commit of the workspace, and the pull request recorded by the agent. */
  git(options: RequestOptions = {}): Promise<Git> {
    return this.#http.request("get", "/api/sessions/{id}/git", { ...options, path: { id: this.id } });
  }

  /** Returns the images shown by the agent, newest first. Use `attachment` to read one. */
  screenshots(query: Query<"listScreenshots"> = {}, options: RequestOptions = {}): Promise<Page<Screenshot>> {
    return this.#http.request("get", "/api/sessions/{id}/screenshots", { ...options, path: { id: this.id }, query });
  }

  /**
   * Creates a token with which a page can read the streams of this session for 15 minutes, as `?token=`.
   * Requires a client with an API key.
   */
  streamToken(options: RequestOptions = {}): Promise<StreamToken> {
    return this.#http.request("post", "/api/sessions/{id}/stream-tokens", { retry: true, ...options, path: { id: this.id } });
  }

  /** Creates a store that follows the session while it has subscribers. The default transport is the client's. */
  store(onClose?: () => void, transport?: Transport): SessionStore {
    return new SessionStore(this, onClose, transport);
  }
}

/** A form with a value as JSON, and files. */
function formOf(field: string, value: unknown, files: File[]): FormData {
  const form = new FormData();
  form.set(field, JSON.stringify(value));
  for (const file of files) form.append("file", file, file.name);
  return form;
}

/** A unique id. Unlike `crypto.randomUUID`, it is available to pages without TLS. */
export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `${prefix}-${Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("")}`;
}
