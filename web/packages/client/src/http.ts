import { Backoff, sleep } from "./backoff.js";
import { errorOf, OverwinterError } from "./error.js";
import type { paths } from "./schema.js";
import type { StreamToken } from "./types.js";
import { Watchdog } from "./watchdog.js";

export interface ClientOptions {
  /**
   * URL of the API, such as `https://overwinter.example.com`. In a browser, `""` is the page's own origin.
   */
  baseUrl: string;
  /** Sent as `Authorization: Bearer KEY`. */
  apiKey?: string;
  /** Another `fetch`, for example with credentials of an application. */
  fetch?: typeof fetch;
  /** The transport for following sessions, unless a call overrides it. Default: `sse`. */
  transport?: Transport;
  /** Another `WebSocket`, such as that of the package `ws` if the runtime has none (Node before 22). */
  WebSocket?: WebSocketConstructor;
  /**
   * Returns a stream token of a session, for a page without a key; called before each connection to a stream.
   * Without this function, a client with a key creates the tokens for WebSockets, which cannot send headers.
   */
  streamToken?: (sessionId: string, signal?: AbortSignal) => string | Promise<string>;
  /** Maximum number of attempts of a retryable request. Default: 4. */
  attempts?: number;
  /**
   * Milliseconds after which an attempt of a request counts as failed if it has no response, or not all of its
   * JSON. Default: 180000, and 660000 with `wait`.
   */
  timeout?: number;
}

/** The transport for the events of a session. */
export type Transport = "sse" | "websocket";

/** The part of a WebSocket that the client uses. */
export interface WebSocketLike {
  readonly protocol: string;
  // Every runtime has its own types of events.
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

export type Method = "get" | "post" | "put" | "patch" | "delete";
type Operation = { responses: object; parameters: object };
/** The paths that support a method. */
export type PathOf<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, Operation> ? P : never }[keyof paths];
export type OperationOf<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;

type Json<R> = R extends { content: { "application/json": infer T } } ? T : never;
type Successes<R> = { [S in keyof R]: S extends 200 | 201 | 202 ? Json<R[S]> : never }[keyof R];
/** The body of an operation's success response; undefined if it has none. */
export type Result<O> = O extends { responses: infer R } ? ([Successes<R>] extends [never] ? undefined : Successes<R>) : never;

type Part<O, K extends string> = O extends { parameters: infer P } ? (K extends keyof P ? P[K] : undefined) : undefined;
type Given<K extends string, T> = [T] extends [undefined] ? unknown : undefined extends T ? { [P in K]?: T } : { [P in K]: T };
type Body<O> = O extends { requestBody: { content: { "application/json": infer T } } }
  ? { body: T }
  : O extends { requestBody?: { content: { "application/json": infer T } } }
    ? { body?: T }
    : unknown;

export interface RequestOptions {
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
  /** Retry the request if the connection fails or the server is unavailable. Default: only for GET. */
  retry?: boolean;
}

/** The input of an operation: its parameters in the OpenAPI document, and the options of every request. */
export type Input<O> = RequestOptions & Given<"path", Part<O, "path">> & Given<"query", Part<O, "query">> & Body<O>;

interface Loose extends RequestOptions {
  path?: Record<string, string>;
  query?: Record<string, unknown>;
  body?: unknown;
}

/** Reads the body of a response. */
type Read<T> = (response: Response) => Promise<T>;

/** The requests of a client: typed by the OpenAPI document, with errors as OverwinterError. */
export class Http {
  readonly #options: ClientOptions;
  readonly #tokens = new Map<string, StreamToken>(); // of WebSockets, by session

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  /** Calls the API and returns the JSON of the success response. */
  async request<M extends Method, P extends PathOf<M>>(method: M, path: P, input: Input<OperationOf<P, M>>): Promise<Result<OperationOf<P, M>>> {
    return (await this.json(method, path, input as Loose)) as Result<OperationOf<P, M>>;
  }

  /** Sends a request and returns the JSON of the success response; undefined if it is empty. */
  async json(method: Method, path: string, input: Loose): Promise<unknown> {
    const text = await this.#attempts(method, path, input, (response) => response.text());
    return text === "" ? undefined : JSON.parse(text);
  }

  /**
   * Sends a request, with the retries that its options allow, and returns the response unread. Throws if the
   * response is not a success.
   */
  send(method: Method, path: string, input: Loose = {}): Promise<Response> {
    return this.#attempts(method, path, input, undefined);
  }

  /** Sends a request, with the retries that its options allow. Without `read` it returns the response unread. */
  async #attempts<T = Response>(method: Method, path: string, input: Loose, read: Read<T> | undefined): Promise<T> {
    const repeat = input.retry ?? method === "get";
    const backoff = new Backoff(200, 5_000);
    for (let left = repeat ? (this.#options.attempts ?? 4) : 1; ; ) {
      left--;
      try {
        return await this.#attempt(method, path, input, read);
      } catch (error) {
        input.signal?.throwIfAborted();
        const refused = error instanceof OverwinterError && ![429, 502, 503, 504].includes(error.status);
        if (left <= 0 || refused) throw error;
        await sleep(backoff.pause(error instanceof OverwinterError ? error.retryAfter : undefined), input.signal);
      }
    }
  }

  /**
   * One attempt. Its time is limited because a `fetch` may never settle if its connection is reset. The signal
   * of the input also ends the body of a response that is returned unread.
   */
  async #attempt<T>(method: Method, path: string, input: Loose, read: Read<T> | undefined): Promise<T> {
    input.signal?.throwIfAborted();
    const abort = new AbortController();
    const leave = () => abort.abort(input.signal?.reason);
    input.signal?.addEventListener("abort", leave, { once: true });
    const watchdog = new Watchdog(this.#options.timeout ?? (waits(input) ? 660_000 : 180_000), () => abort.abort(new Error("the server did not respond in time")));
    const ended = new Promise<never>((_, reject) => abort.signal.addEventListener("abort", () => reject(abort.signal.reason as Error), { once: true }));
    let unread = false;
    try {
      const response = this.#once(method, path, { ...input, signal: abort.signal });
      const result = await watchdog.during(Promise.race([read ? response.then(read) : (response as Promise<T>), ended]));
      unread = !read;
      return result;
    } finally {
      if (!unread) input.signal?.removeEventListener("abort", leave);
    }
  }

  get transport(): Transport {
    return this.#options.transport ?? "sse";
  }

  /** The query with a stream token, if the client has a function for it. */
  async tokenQuery(sessionId: string, signal?: AbortSignal): Promise<{ token?: string }> {
    const { apiKey, streamToken } = this.#options;
    return streamToken && !apiKey ? { token: await streamToken(sessionId, signal) } : {};
  }

  /** The constructor for WebSockets. */
  webSocket(): WebSocketConstructor {
    const made = this.#options.WebSocket ?? (globalThis.WebSocket as WebSocketConstructor | undefined);
    if (!made) throw new TypeError("this runtime has no WebSocket: pass one as the option WebSocket of the client");
    return made;
  }

  /** Opens a WebSocket. Its handshake has no headers, so the token is in the URL. */
  async socket(path: string, values: Record<string, string>, query: Record<string, unknown>, protocol: string, signal?: AbortSignal): Promise<WebSocketLike> {
    const { baseUrl, apiKey, streamToken } = this.#options;
    const WebSocket = this.webSocket();
    const sessionId = values["id"] ?? "";
    let token: string | undefined;
    if (streamToken) token = await streamToken(sessionId, signal);
    else if (apiKey) token = await this.#ownToken(sessionId, signal);
    const url = new URL(baseUrl.replace(/\/$/, "") + fill(path, values) + queryOf({ ...query, token }), globalThis.location?.href);
    url.protocol = url.protocol.replace("http", "ws");
    return new WebSocket(url.href, [protocol]);
  }

  /** Discards the token that the client created for a session. */
  dropToken(sessionId: string): void {
    this.#tokens.delete(sessionId);
  }

  /** A token that is valid for at least another minute. */
  async #ownToken(sessionId: string, signal: AbortSignal | undefined): Promise<string> {
    let made = this.#tokens.get(sessionId);
    if (!made || Date.parse(made.expiresAt) < Date.now() + 60_000) {
      made = await this.request("post", "/api/sessions/{id}/stream-tokens", { path: { id: sessionId }, signal });
      this.#tokens.set(sessionId, made);
    }
    return made.token;
  }

  async #once(method: Method, path: string, input: Loose): Promise<Response> {
    const { baseUrl, apiKey, fetch = globalThis.fetch } = this.#options;
    const headers = new Headers(input.headers);
    if (apiKey) headers.set("Authorization", `Bearer ${apiKey}`);
    let body: string | FormData | undefined;
    if (input.body instanceof FormData) {
      body = input.body; // fetch adds the header with the boundary
    } else if (input.body !== undefined) {
      headers.set("Content-Type", "application/json");
      body = JSON.stringify(input.body);
    }
    const response = await fetch(baseUrl.replace(/\/$/, "") + fill(path, input.path) + queryOf(input.query), {
      method: method.toUpperCase(),
      headers,
      ...(body === undefined ? {} : { body }),
      ...(input.signal ? { signal: input.signal } : {}),
    });
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}

/** Whether the server waits before it responds: ten minutes at most. */
function waits(input: Loose): boolean {
  return input.query?.["wait"] !== undefined || (input.body as { wait?: unknown } | undefined)?.wait !== undefined;
}

/** A path with its parameters. */
function fill(path: string, values: Record<string, string> = {}): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (!value) throw new TypeError(`path parameter "${name}" of ${path}: must not be empty`);
    return encodeURIComponent(value);
  });
}

/** A query; objects are written as `name[key]=value`. */
function queryOf(query: Record<string, unknown> = {}): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    if (typeof value === "object") {
      for (const [key, member] of Object.entries(value)) out.append(`${name}[${key}]`, String(member));
    } else {
      out.append(name, String(value as string | number | boolean));
    }
  }
  const text = out.toString();
  return text === "" ? "" : `?${text}`;
}
