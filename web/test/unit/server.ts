// An in-memory server: `fetch` returns prepared responses, one per request.
import { createClient, type Client, type ClientOptions } from "@overwinter/client";

export interface Request {
  method: string;
  url: string;
  headers: Headers;
  body: unknown;
}

export type Answer = (request: Request, signal: AbortSignal | undefined) => Response | Promise<Response>;

/** Returns a client whose requests get these responses, in order; the last one is repeated. */
export function clientOf(answers: Answer[], options: Partial<ClientOptions> = {}): { client: Client; requests: Request[] } {
  const requests: Request[] = [];
  const fetch = async (input: string | URL | globalThis.Request, init: RequestInit = {}) => {
    const request: Request = {
      method: init.method ?? "GET",
      url: String(input),
      headers: new Headers(init.headers),
      body: typeof init.body === "string" ? JSON.parse(init.body) : undefined,
    };
    requests.push(request);
    const answer = answers[Math.min(requests.length, answers.length) - 1];
    if (!answer) throw new Error("no answer");
    return answer(request, init.signal ?? undefined);
  };
  return { client: createClient({ baseUrl: "http://api.test", fetch, ...options }), requests };
}

export function json(value: unknown, status = 200): Answer {
  return () => new Response(JSON.stringify(value), { status, headers: { "Content-Type": "application/json" } });
}

export function problem(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return () =>
    new Response(JSON.stringify({ type: "about:blank", title: "", status, code, detail: `it is ${code}`, errors: [{ field: "agent", message: "is required" }] }), {
      status, headers: { "Content-Type": "application/problem+json", ...headers },
    });
}

export const unreachable: Answer = () => {
  throw new TypeError("fetch failed");
};

/** Returns a stream that sends these texts and then closes, fails, or stays open. */
export function stream(texts: string[], end: "close" | "break" | "stay" = "close"): Answer {
  return (_, signal) => {
    const left = texts.map((t) => new TextEncoder().encode(t));
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        signal?.addEventListener("abort", () => {
          try {
            controller.error(signal.reason);
          } catch {
            // Already closed.
          }
        });
      },
      pull(controller) {
        const next = left.shift();
        if (next) controller.enqueue(next);
        else if (end === "close") controller.close();
        else if (end === "break") controller.error(new TypeError("terminated"));
        else return new Promise(() => undefined);
        return undefined;
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
}

/** Formats an event as sent by the stream. */
export function frame(seq: number, type = "title", data: unknown = { title: `title ${seq}` }): string {
  const event = { seq, type, sessionId: "ses_1", at: "2026-01-02T03:04:05.000Z", data };
  return `id: ${seq}\nevent: ${type}\ndata: ${JSON.stringify(event)}\n\n`;
}

export function marker(type: string, data: unknown): string {
  return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}
