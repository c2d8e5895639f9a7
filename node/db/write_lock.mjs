/**
 * The write lock: a fair queue for the writers of one SQLite file, in either language.
 *
 * A writer passes the gate, an empty database held by BEGIN EXCLUSIVE, before it asks for the write lock, and opens
 * the gate again only once it has it. The kernel drops the lock when a process dies.
 */

import { DatabaseSync } from "node:sqlite";
import { StoreBusy } from "../model/errors.mjs";

export const WAIT_MAX_MS = 30_000;
const FIRST_WAITS_MS = [1, 1, 1, 2, 2, 3];
const LATER_WAIT_MS = 5;
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;

const SLEEPER = new Int32Array(new SharedArrayBuffer(4));

/** Block this thread: nothing else happens during a transaction. @param {number} ms */
export function sleep(ms) {
  Atomics.wait(SLEEPER, 0, 0, ms);
}

/** @param {unknown} error */
export function isBusy(error) {
  const code = /** @type {any} */ (error)?.errcode;
  return typeof code === "number" && [SQLITE_BUSY, SQLITE_LOCKED].includes(code & 0xff);
}

/**
 * Retry while another process has the database, until the deadline.
 * @template T @param {() => T} work @param {number} deadlineMs on the monotonic clock @param {() => Error} tooLate @returns {T}
 */
export function retryWhileBusy(work, deadlineMs, tooLate) {
  for (let tries = 0; ; tries += 1) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error)) throw error;
      if (performance.now() >= deadlineMs) throw tooLate();
      sleep(FIRST_WAITS_MS[tries] ?? LATER_WAIT_MS);
    }
  }
}

export class WriteLock {
  /** @param {string} path @param {number} [waitMaxMs] */
  constructor(path, waitMaxMs = WAIT_MAX_MS) {
    this.path = path;
    this.waitMaxMs = waitMaxMs;
    this.deadlineMs = 0;
    this.gate = new DatabaseSync(`${path}-gate`, { timeout: 0 });
  }

  /** Run `work`, which takes the database's write lock, when it is our turn. @template T @param {() => T} work @returns {T} */
  acquire(work) {
    this.deadlineMs = performance.now() + this.waitMaxMs;
    retryWhileBusy(() => this.gate.exec("BEGIN EXCLUSIVE"), this.deadlineMs, () => this.tooLate());
    try {
      return work();
    } finally {
      this.gate.exec("COMMIT");
    }
  }

  tooLate() {
    return new StoreBusy(`${this.path}: other processes have had it for ${this.waitMaxMs} ms.`);
  }

  close() {
    this.gate.close();
  }
}
