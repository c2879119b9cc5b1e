import { Backoff, sleep } from "./backoff.js";
import { OverwinterError } from "./error.js";
import type { Http, Transport } from "./http.js";
import { SSEParser, type Message } from "./sse.js";
import type { Event, Marker, StreamItem } from "./types.js";
import { Watchdog } from "./watchdog.js";
import { overWebSocket } from "./websocket.js";

export interface FollowOptions {
  /** Yield the events after this position; `latest` skips all stored events. Default: 0, the beginning. */
  after?: number | "latest";
  signal?: AbortSignal | undefined;
  /**
   * The transport. Every transport yields the same events. Default: the client's, which is `sse` by default.
   */
  transport?: Transport | undefined;
  /**
   * Milliseconds without a byte after which a connection is closed. Default: 45000, three heartbeats of the
   * server.
   */
  silence?: number;
  /** Called when the connection is opened or lost, with the error if there is one. */
  onConnection?: (state: "open" | "lost", error?: unknown) => void;
}

const markers = ["caught_up", "gap", "end"];

/**
 * Yields the events of a session, each once and in order, and the markers of its stream. It reconnects until
 * the session has ended or the signal is aborted, which throws the signal's reason. Refusals of the server
 * are thrown, for example an OverwinterError with the code `position_gone` if events after `after` have been
 * deleted. It reads from the network only as fast as its caller consumes the events; a WebSocket is closed
 * while 4 MiB wait for the caller, and reopened afterwards.
 */
export async function* follow(http: Http, sessionId: string, options: FollowOptions = {}): AsyncGenerator<StreamItem, void, undefined> {
  const position = new Position(options.after ?? 0);
  const backoff = new Backoff(100, 10_000);
  const connection = (options.transport ?? http.transport) === "websocket" ? overWebSocket : overSSE;
  if (connection === overWebSocket) http.webSocket(); // throws if the runtime has none
  for (;;) {
    let failure: unknown;
    try {
      for await (const item of connection(http, sessionId, position, options)) {
        backoff.reset();
        for (const next of position.take(item)) yield next;
        if (item.type === "end") return;
      }
    } catch (error) {
      options.signal?.throwIfAborted();
      if (error instanceof RangeError || error instanceof SyntaxError) throw error;
      if (error instanceof OverwinterError && !error.temporary) throw error;
      failure = error;
    }
    options.onConnection?.("lost", failure);
    await sleep(backoff.pause(failure instanceof OverwinterError ? failure.retryAfter : undefined), options.signal);
  }
}

/** Position tracks which events have been yielded. */
class Position {
  /** Undefined: the end of the log, whose position is not known yet. */
  seq: number | undefined;
  #caughtUp = false;

  constructor(after: number | "latest") {
    this.seq = after === "latest" ? undefined : after;
  }

  /** Yields the new part of an item. Skipped positions are a gap even if the server does not announce them. */
  *take(item: StreamItem): Generator<StreamItem> {
    if (!isMarker(item)) {
      if (this.seq !== undefined && item.seq <= this.seq) return;
      if (this.seq !== undefined && item.seq > this.seq + 1) yield { type: "gap", data: { from: this.seq + 1, to: item.seq - 1 } };
      this.seq = item.seq;
      yield item;
      return;
    }
    if (item.type === "gap") {
      if (this.seq !== undefined && item.data.to <= this.seq) return;
      this.seq = item.data.to;
    }
    if (item.type === "caught_up") {
      this.seq ??= item.data.seq;
      if (this.#caughtUp) return;
      this.#caughtUp = true;
    }
    yield item;
  }
}

/** Whether an item of a stream is a marker rather than an event. */
export function isMarker(item: StreamItem): item is Marker {
  return !("seq" in item);
}

/** Reads one stream of server-sent events until it disconnects. */
async function* overSSE(http: Http, sessionId: string, position: Position, options: FollowOptions): AsyncGenerator<StreamItem> {
  const abort = new AbortController();
  const leave = () => abort.abort(options.signal?.reason);
  options.signal?.throwIfAborted();
  options.signal?.addEventListener("abort", leave, { once: true });
  const watchdog = new Watchdog(options.silence ?? 45_000, () => abort.abort(new Error("the stream was silent for too long")));
  try {
    const response = await watchdog.during(
      http.send("get", "/api/sessions/{id}/events", {
        path: { id: sessionId },
        query: { ...(position.seq === undefined ? { after: "latest" } : {}), ...(await http.tokenQuery(sessionId, abort.signal)) },
        headers: { Accept: "text/event-stream", ...(position.seq ? { "Last-Event-ID": String(position.seq) } : {}) },
        signal: abort.signal,
        retry: false,
      }),
    );
    const type = response.headers.get("Content-Type") ?? "";
    if (!response.body || !type.startsWith("text/event-stream")) throw new Error(`the server answers ${type || "nothing"} where a stream was expected`);
    options.onConnection?.("open");
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const parser = new SSEParser();
    for (;;) {
      const { done, value } = await watchdog.during(reader.read());
      if (done) return; // an incomplete message is sent again after reconnecting
      for (const message of parser.push(decoder.decode(value, { stream: true }))) yield itemOf(message);
    }
  } finally {
    options.signal?.removeEventListener("abort", leave);
    abort.abort();
  }
}

function itemOf(message: Message): StreamItem {
  const data: unknown = JSON.parse(message.data);
  return markers.includes(message.event) ? ({ type: message.event, data } as Marker) : (data as Event);
}
