/** Watchdog limits how long the server takes, and not how long the caller does. */
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
