/** Errors of the operating system, in the words of its own table (as Python's strerror gives them). */

import { getSystemErrorMessage } from "node:util";

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
