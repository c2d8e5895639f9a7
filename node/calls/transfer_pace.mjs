/** The minimum pace of a download: enough bytes in each span of the timeout. Pure: the clock comes in. */

const SLOWEST_BYTES_PER_SECOND = 1024;

/** A body that trickles would occupy a run for ever: each span of the timeout must bring something. */
export class TransferPace {
  /** @param {() => number} monotonicMs @param {number} timeoutMs */
  constructor(monotonicMs, timeoutMs) {
    this.monotonicMs = monotonicMs;
    this.timeoutMs = timeoutMs;
    this.sinceMs = monotonicMs();
    this.bytes = 0;
  }

  /** @param {number} amount */
  keepsUp(amount) {
    this.bytes += amount;
    const passed = this.monotonicMs() - this.sinceMs;
    if (passed < this.timeoutMs) return true;
    const enough = this.bytes * 1000 >= SLOWEST_BYTES_PER_SECOND * passed;
    this.sinceMs += passed;
    this.bytes = 0;
    return enough;
  }
}
