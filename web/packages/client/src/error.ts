import type { Problem } from "./types.js";

/** The codes of the API, and `unreachable` for a response that is not a problem document. */
export type ErrorCode = Problem["code"] | "unreachable";

/** An error response of the server. `code` is stable; `detail` is for people. */
export class OverwinterError extends Error {
  override readonly name = "OverwinterError";
  readonly code: ErrorCode;
  readonly status: number;
  readonly detail: string;
  /** The invalid fields of the request, each with the violated rule. */
  readonly errors: readonly { field: string; message: string }[];
  /** Seconds to wait before a retry, if the server sent them. */
  readonly retryAfter: number | undefined;

  constructor(problem: { code: ErrorCode; status: number; detail: string; errors?: Problem["errors"]; retryAfter?: number | undefined }) {
    super(`${problem.code}: ${problem.detail}`);
    this.code = problem.code;
    this.status = problem.status;
    this.detail = problem.detail;
    this.errors = problem.errors ?? [];
    this.retryAfter = problem.retryAfter;
  }

  /** Whether the same request may succeed later. */
  get temporary(): boolean {
    return this.status >= 500 || this.status === 429;
  }
}

/** Converts an unsuccessful response to an error. Reads its body. */
export async function errorOf(response: Response): Promise<OverwinterError> {
  const after = response.headers.get("Retry-After");
  const retryAfter = after !== null && /^\d+$/.test(after) ? Number(after) : undefined;
  let body: Partial<Problem> = {};
  try {
    body = (await response.json()) as Partial<Problem>;
  } catch {
    // An error page of a proxy, or a lost connection.
  }
  return new OverwinterError({
    code: body.code ?? "unreachable",
    status: response.status,
    detail: body.detail ?? `the server answers ${response.status} ${response.statusText}`.trimEnd(),
    errors: body.errors,
    retryAfter,
  });
}
