/** The exceptions of kfm, by the table in `contracts/tables/errors.json`; and the errors of the operating system in Python's words. */

import { getSystemErrorMessage } from "node:util";
import { contract } from "./contracts.mjs";

/** @typedef {{code: string, exit_code: number, base: string | null, headline: string, remedy: string}} Page */

/** @type {Record<string, Page>} */
const PAGES = contract("tables/errors.json");

export class KfmError extends Error {
  /** @type {string} */ static kind = "KfmError";

  /** @param {string} [detail] @param {Record<string, any> & {remedy?: string}} [facts] */
  constructor(detail = "", facts = {}) {
    super();
    const { remedy, ...rest } = facts;
    this.detail = detail;
    /** @type {Record<string, any>} */
    this.facts = rest;
    this.givenRemedy = remedy;
    /** What it was raised from. @type {unknown} */
    this.cause = undefined;
    const headline = this.page.headline;
    this.message = detail ? `${headline} ${detail}`.trim() : headline;
  }

  get kind() {
    return /** @type {typeof KfmError} */ (this.constructor).kind;
  }

  get page() {
    return /** @type {Page} */ (PAGES[this.kind]);
  }

  get code() {
    return this.page.code;
  }

  get exitCode() {
    return this.page.exit_code;
  }

  get wayOut() {
    return this.givenRemedy ?? this.page.remedy;
  }

  /** @param {string} [detail] @param {Record<string, any>} [facts] @param {unknown} [cause] */
  static because(detail, facts, cause) {
    const error = new this(detail, facts);
    error.cause = cause;
    return error;
  }

  /** A mistake in one line of a file. @param {string} file @param {number} line @param {string} sentence */
  static at(file, line, sentence) {
    return new this(`${file}:${line}: ${sentence}`, { file, line });
  }

  /** A mistake that no line of the file shows: it is too large, or can't be read. @param {string} file @param {string} sentence */
  static ofFile(file, sentence) {
    return new this(`${file}: ${sentence}`, { file });
  }

  /** File and line, as far as they are known. @returns {{file?: string, line?: number}} */
  get place() {
    const { file, line } = this.facts;
    return { ...(file === undefined ? {} : { file }), ...(line === undefined ? {} : { line }) };
  }

  asDocument() {
    return {
      code: this.code,
      message: this.message,
      remedy: this.wayOut,
      docs: `docs/reference/errors.md#${this.code.toLowerCase()}`,
      ...this.place,
    };
  }
}

/** @type {Record<string, typeof KfmError>} */
const made = { KfmError };

/** @param {string} kind @returns {typeof KfmError} */
function classOf(kind) {
  const found = made[kind];
  if (found) return found;
  const page = PAGES[kind];
  if (!page) throw new Error(`there is no error ${kind}`);
  const Base = classOf(page.base ?? "KfmError");
  const Made = { [kind]: class extends Base {} }[kind];
  if (!Made) throw new Error("unreachable");
  Made.kind = kind;
  made[kind] = Made;
  return Made;
}

/** @param {unknown} error @param {string} kind @returns {boolean} */
export function isA(error, kind) {
  return error instanceof classOf(kind);
}

/** @param {string} kind @returns {string} The code of an error by its name. */
export function codeOf(kind) {
  return /** @type {Page} */ (PAGES[kind]).code;
}

/** The code that a run keeps: one for every run that was stopped on purpose. @param {KfmError} error */
export const codeOnRecord = (error) => (isA(error, "Cancelled") || isA(error, "SwitchThrown") ? "CANCELLED" : error.code);

/** The codes of all refusals. @returns {Set<string>} */
export const refusingCodes = () => new Set(Object.keys(PAGES).filter((kind) => lineOf(kind).includes("Refused")).map(codeOf));

/** @param {string} kind @returns {string} */
export function remedyOf(kind) {
  return /** @type {Page} */ (PAGES[kind]).remedy;
}

/** @param {string} kind @returns {string[]} The error's name and those of what it is a kind of. */
export function lineOf(kind) {
  const page = PAGES[kind];
  return page ? [kind, ...(page.base ? lineOf(page.base) : [])] : [];
}

export const UsageError = classOf("UsageError");
export const ConfigError = classOf("ConfigError");
export const ConfigNotFound = classOf("ConfigNotFound");
export const SecretNotFound = classOf("SecretNotFound");
export const WindowError = classOf("WindowError");
export const UnhashableInput = classOf("UnhashableInput");
export const ContractError = classOf("ContractError");
export const PolicyError = classOf("PolicyError");
export const PlanError = classOf("PlanError");
export const PipelineError = classOf("PipelineError");
export const MalformedJson = classOf("MalformedJson");
export const Refused = classOf("Refused");
export const GateDenied = classOf("GateDenied");
export const Halted = classOf("Halted");
export const ContractViolated = classOf("ContractViolated");
export const RationaleRequired = classOf("RationaleRequired");
export const BudgetSpent = classOf("BudgetSpent");
export const PlanDrifted = classOf("PlanDrifted");
export const PersonNeeded = classOf("PersonNeeded");
export const WorkQuarantined = classOf("WorkQuarantined");
export const SwitchThrown = classOf("SwitchThrown");
export const RightsMissing = classOf("RightsMissing");
export const SecretInData = classOf("SecretInData");
export const RoleMissing = classOf("RoleMissing");
export const BackendUnavailable = classOf("BackendUnavailable");
export const LedgerMoved = classOf("LedgerMoved");
export const StoreTooNew = classOf("StoreTooNew");
export const StoreUnsafe = classOf("StoreUnsafe");
export const StoreBusy = classOf("StoreBusy");
export const UpstreamUnavailable = classOf("UpstreamUnavailable");
export const AddressRefused = classOf("AddressRefused");
export const StoreCorrupt = classOf("StoreCorrupt");
export const TargetUnavailable = classOf("TargetUnavailable");
export const CircuitOpen = classOf("CircuitOpen");
export const Busy = classOf("Busy");
export const LockHeld = classOf("LockHeld");
export const WaitsUntil = classOf("WaitsUntil");
export const LostLease = classOf("LostLease");
export const DataWithdrawn = classOf("DataWithdrawn");
export const WorkFailed = classOf("WorkFailed");
export const IllegalTransition = classOf("IllegalTransition");
export const SchemaViolation = classOf("SchemaViolation");
export const LimitExceeded = classOf("LimitExceeded");
export const ChecksumMismatch = classOf("ChecksumMismatch");
export const PathConflict = classOf("PathConflict");
export const PipelineFailed = classOf("PipelineFailed");
export const RunTimedOut = classOf("RunTimedOut");
export const DryRunViolated = classOf("DryRunViolated");
export const Cancelled = classOf("Cancelled");

// --- errors of the operating system ------------------------------------------------------

const WORDS = /** @type {Record<string, string>} */ ({
  ENOENT: "No such file or directory",
  EACCES: "Permission denied",
  EPERM: "Operation not permitted",
  EISDIR: "Is a directory",
  ENOTDIR: "Not a directory",
  EEXIST: "File exists",
  ENOSPC: "No space left on device",
  EROFS: "Read-only file system",
  ENOTEMPTY: "Directory not empty",
  ELOOP: "Too many levels of symbolic links",
  ENAMETOOLONG: "File name too long",
  EMFILE: "Too many open files",
  ENFILE: "Too many open files in system",
  EXDEV: "Invalid cross-device link",
  EIO: "Input/output error",
  EINVAL: "Invalid argument",
  EDQUOT: "Disk quota exceeded",
  EBUSY: "Device or resource busy",
  EAGAIN: "Resource temporarily unavailable",
  ENXIO: "No such device or address",
  EFBIG: "File too large",
});

/** @param {unknown} error @returns {error is NodeJS.ErrnoException} */
export function isSystemError(error) {
  const found = /** @type {any} */ (error);
  return error instanceof Error && typeof found.errno === "number" && typeof found.code === "string" && typeof found.syscall === "string";
}

/** @param {unknown} error @param {...string} code */
export const isCode = (error, ...code) => isSystemError(error) && code.includes(/** @type {string} */ (error.code));

/** @param {unknown} error */
export function strerror(error) {
  if (!isSystemError(error)) return String(/** @type {any} */ (error)?.message ?? error);
  return WORDS[/** @type {string} */ (error.code)] ?? getSystemErrorMessage(/** @type {number} */ (error.errno));
}

/** @param {unknown} error */
export const why = (error) => strerror(error).toLowerCase();
