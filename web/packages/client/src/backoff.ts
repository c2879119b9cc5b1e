/** Pauses that grow from `first` to `max` milliseconds, with jitter. */
export class Backoff {
  #next: number;

  constructor(
    private readonly first: number,
    private readonly max: number,
  ) {
    this.#next = first;
  }

  /** The next pause, or the server's `Retry-After`, up to 60 s, if that is longer. */
  pause(retryAfter?: number): number {
    const base = this.#next;
    this.#next = Math.min(base * 2, this.max);
    return Math.max(base * (0.5 + Math.random() / 2), Math.min((retryAfter ?? 0) * 1000, 60_000));
  }

  reset(): void {
    this.#next = this.first;
  }
}

/** Sleeps; throws the signal's reason if it is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
