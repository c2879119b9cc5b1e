/** Watchdog limits the time spent waiting for the server, excluding the time that the caller takes. */
export class Watchdog {
  constructor(
    private readonly milliseconds: number,
    private readonly bite: () => void,
  ) {}

  async during<T>(work: Promise<T>): Promise<T> {
    const timer = setTimeout(this.bite, this.milliseconds);
    try {
      return await work;
    } finally {
      clearTimeout(timer);
    }
  }
}
