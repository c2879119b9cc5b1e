/** Watchdog limits the time that the server takes, not the time of the caller. */
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
