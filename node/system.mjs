/** The only real clock, randomness, ids, processor time and process liveness. */

import { spawnSync } from "node:child_process";
import { getRandomValues, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { isSystemError } from "./model/errors.mjs";

const RANDOM_BITS = 74n;
const DEAD_FILE_KEPT_MS = 7 * 86_400_000;

/** @type {import("./types.js").Clock} */
export const systemClock = {
  nowMs: () => Date.now(),
  monotonicMs: () => Math.floor(performance.now()),
  sleepMs: (ms) => new Promise((done) => setTimeout(done, ms)),
};

/** @param {number} bits */
function randomInteger(bits) {
  const data = randomBytes(Math.ceil(bits / 8));
  return BigInt(`0x${data.toString("hex")}`) >> BigInt((8 - (bits % 8)) % 8);
}

/** UUIDv7 text that only grows within a process, also when the clock steps back. */
export class SystemIds {
  #last = 0n;

  new() {
    const fresh = (BigInt(Date.now()) << RANDOM_BITS) | randomInteger(74);
    this.#last = fresh > this.#last ? fresh : this.#last + 1n + randomInteger(32);
    const [time, rest] = [this.#last >> RANDOM_BITS, this.#last & ((1n << RANDOM_BITS) - 1n)];
    const value = (time << 80n) | (0x7n << 76n) | ((rest >> 62n) << 64n) | (0b10n << 62n) | (rest & ((1n << 62n) - 1n));
    const digits = value.toString(16).padStart(32, "0");
    return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-${digits.slice(12, 16)}-${digits.slice(16, 20)}-${digits.slice(20)}`;
  }
}

/** In [0, 1). */
export function unitRandom() {
  const [high = 0, low = 0] = getRandomValues(new Uint32Array(2));
  return ((high >>> 5) * 67_108_864 + (low >>> 6)) / 9_007_199_254_740_992;
}

/** Processor time of this process. */
export const processMeter = {
  cpuUs: () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
};

/** Let signals and timers in, between two pieces of synchronous work. @returns {Promise<void>} */
export const breathe = () => new Promise((done) => setImmediate(done));

/** The boot id of this machine; empty where the system has none. */
function bootId() {
  try {
    return fs.readFileSync("/proc/sys/kernel/random/boot_id", "ascii").trim();
  } catch {
    return "";
  }
}

/** @param {number} descriptor @param {"--exclusive" | "--shared"} kind @returns {boolean | null} null where it can't be known */
function lockFile(descriptor, kind) {
  const done = spawnSync("flock", [kind, "--nonblock", "3"], { stdio: ["ignore", "ignore", "ignore", descriptor] });
  if (done.error || done.status === null || ![0, 1].includes(done.status)) return null;
  return done.status === 0;
}

/**
 * Process liveness: a file per worker, locked for as long as its process exists; the same files and locks as Python's.
 *
 * Node.js has no flock(2). The lock belongs to the open file, not to the process that asked for it: so the program
 * `flock` takes it on a descriptor that it inherits, ends, and the lock stays with us until the kernel closes the file
 * at our death. Where there is no such program the lease alone decides, and no process is taken for dead before it lapses.
 */
export class FlockLiveness {
  /** @param {string} folder */
  constructor(folder) {
    this.folder = folder;
    /** @type {Map<string, number>} */
    this.held = new Map();
  }

  /** Hold a liveness file for as long as this process exists. @param {string} workerId */
  claim(workerId) {
    if (this.held.has(workerId)) return;
    fs.mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    this.#sweep();
    const path = this.#path(workerId);
    // Locked before it gets its name: under its name it is never seen unlocked while we live.
    const fresh = `${path}.${randomBytes(8).toString("hex")}`;
    const descriptor = fs.openSync(fresh, "wx+", 0o600);
    try {
      if (lockFile(descriptor, "--exclusive") !== true) {
        fs.closeSync(descriptor);
        return;
      }
      fs.writeSync(descriptor, bootId());
      fs.linkSync(fresh, path);
    } finally {
      fs.unlinkSync(fresh);
    }
    this.held.set(workerId, descriptor);
  }

  /** True only if surely dead; false when alive or unknown. @param {string} workerId @returns {boolean} */
  isDead(workerId) {
    if (this.held.has(workerId) || !/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(workerId)) return false;
    let descriptor;
    try {
      descriptor = fs.openSync(this.#path(workerId), "r+");
    } catch {
      return false;
    }
    try {
      // A file of another machine or another boot proves nothing.
      if (fs.readFileSync(descriptor, "ascii").slice(0, 100) !== bootId()) return false;
      return lockFile(descriptor, "--shared") === true;
    } finally {
      fs.closeSync(descriptor);
    }
  }

  /** Remove the liveness files. Only for a worker that holds nothing any more. */
  close() {
    for (const [workerId, descriptor] of this.held) {
      fs.rmSync(this.#path(workerId), { force: true });
      fs.closeSync(descriptor);
    }
    this.held.clear();
  }

  /** @param {string} workerId */
  #path(workerId) {
    return join(this.folder, `${workerId}.alive`);
  }

  /** Remove files of the long dead. The recently dead stay: others may still ask for them. */
  #sweep() {
    for (const name of fs.readdirSync(this.folder)) {
      const path = join(this.folder, name);
      try {
        if (Date.now() - fs.statSync(path).mtimeMs < DEAD_FILE_KEPT_MS) continue;
        const descriptor = fs.openSync(path, "r+");
        if (lockFile(descriptor, "--shared") === true) fs.unlinkSync(path);
        fs.closeSync(descriptor);
      } catch (error) {
        if (!isSystemError(error)) throw error;
      }
    }
  }
}
