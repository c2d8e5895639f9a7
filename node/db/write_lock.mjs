/**
 * A fair queue for the writers of one SQLite file, in whichever language they are.
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

const nobody = new Int32Array(new SharedArrayBuffer(4));

/** Nothing else happens meanwhile: a transaction is not a place to wait for other things. @param {number} ms */
export function pause(ms) {
  Atomics.wait(nobody, 0, 0, ms);
}

/** @param {unknown} error */
export function isBusy(error) {
  const code = /** @type {any} */ (error)?.errcode;
  return typeof code === "number" && [SQLITE_BUSY, SQLITE_LOCKED].includes(code & 0xff);
}

/**
 * Again while somebody else has the database, until the deadline.
 * @template T @param {() => T} work @param {number} deadlineMs on the monotonic clock @param {() => Error} tooLate @returns {T}
 */
export function patiently(work, deadlineMs, tooLate) {
  for (let tries = 0; ; tries += 1) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error)) throw error;
      if (performance.now() >= deadlineMs) throw tooLate();
      pause(FIRST_WAITS_MS[tries] ?? LATER_WAIT_MS);
    }
  }
}

export class Turnstile {
  /** @param {string} path @param {number} [waitMaxMs] */
  constructor(path, waitMaxMs = WAIT_MAX_MS) {
    this.path = path;
    this.waitMaxMs = waitMaxMs;
    this.deadlineMs = 0;
    this.gate = new DatabaseSync(`${path}-gate`, { timeout: 0 });
  }

  /** Get the write lock in here. @template T @param {() => T} work @returns {T} */
  pass(work) {
    this.deadlineMs = performance.now() + this.waitMaxMs;
    patiently(() => this.gate.exec("BEGIN EXCLUSIVE"), this.deadlineMs, () => this.tooLate());
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
