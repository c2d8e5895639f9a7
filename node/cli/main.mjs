/** The command line: arguments to an exit code, with errors as messages. */

import { writeSync } from "node:fs";
import { isatty } from "node:tty";
import { quoted, remember } from "../config/scope.mjs";
import { Cancelled, UsageError } from "../model/errors.mjs";
import { visibleJson } from "../model/wording.mjs";
import { parse, wantedFormat } from "./arguments.mjs";
import { errorLines } from "./results.mjs";
import { annotate, asError, run } from "./run.mjs";

const APART = "_KFM_DATA"; // set where standard output was put aside: its descriptor
const DESCRIPTOR = 9; // the last that every shell can name
const results = Number(process.env[APART] ?? 1);
delete process.env[APART];

/** @param {string[]} argv @param {{version: string, system?: any, write?: (descriptor: number, text: string) => void, environ?: Record<string, string | undefined>}} about @returns {Promise<number>} */
export async function main(argv, { version, system, write = written, environ = process.env }) {
  remember(argv);
  /** @type {string | null} the configuration that was named on the command line */
  let config = null;
  const around = {
    out: (/** @type {string} */ text) => write(results, text),
    note: (/** @type {string} */ line, /** @type {import("./results.mjs").Level} */ level = "info") => write(2, messageOf(withConfig(line, config), level, argv, environ)),
    environ,
    version,
    isTerminal: isatty(results),
    keepDataApart: write === written && results === 1 ? keepDataApart : () => {},
    hasPerson: system?.hasPerson ?? isatty(0), // cron, CI and pipes are machines
    system,
    onCancel: (/** @type {() => void} */ cancel) => {
      for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, cancel);
    },
  };
  try {
    requireText(argv);
    const parsed = parse(argv);
    if ("help" in parsed) {
      around.out(`${parsed.help}\n`);
      return 0;
    }
    config = parsed.options.config;
    return await run(parsed.options, around);
  } catch (problem) {
    const error = asError(problem);
    const output = wantedFormat(argv);
    if (output !== "text") around.out(`${visibleJson(JSON.stringify(error.asDocument(), null, output === "json" ? 2 : 0))}\n`);
    const [what, wayOut] = errorLines(error);
    around.note(what, "error");
    around.note(wayOut);
    annotate(error, error.code, around);
    if (argv.some((word) => ["-v", "-vv", "--verbose"].includes(word)) && ![UsageError, Cancelled].some((kind) => new kind("").exitCode === error.exitCode)) around.note(String(/** @type {Error} */ (problem).stack ?? problem), "error");
    return error.exitCode;
  }
}

/**
 * Begin again with standard output put aside for results: whatever a pipeline's function, or a program that it
 * starts, prints goes to standard error. Node.js can't exchange descriptors itself, so a shell does.
 */
function keepDataApart() {
  const words = ["sh", "-c", `exec "$0" "$@" ${DESCRIPTOR}>&1 1>&2`, process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  /** @type {any} */ (process).execve("/bin/sh", words, { ...process.env, [APART]: String(DESCRIPTOR) });
}

const COMMAND = /(?<=`)kfm [a-z][^`\n]*(?=`)|(?<=: )kfm [a-z][^`\n]*$/gm;
const WITHOUT_CONFIG = /^kfm (?:init|completion|man|lint)\b| (?:-c|--config|--directory|--help)\b/;

/** A text for people, in which every command names the configuration that this one was given. @param {string} text @param {string | null} config */
function withConfig(text, config) {
  if (config === null) return text;
  return text.replace(COMMAND, (found) => (WITHOUT_CONFIG.test(found) ? found : `${found} -c ${quoted(config)}`));
}

/** Everything that is kept or shown is text. @param {string[]} argv */
function requireText(argv) {
  const bad = argv.find((word) => word.includes("\ufffd") || !word.isWellFormed());
  if (bad !== undefined) throw new UsageError("An argument is not valid UTF-8.", { remedy: "Write it in UTF-8." });
}

/** A closed pipe is not an error of ours. @param {number} descriptor @param {string} text */
function written(descriptor, text) {
  const data = Buffer.from(text);
  for (let at = 0; at < data.length; ) {
    try {
      at += writeSync(descriptor, data, at);
    } catch (error) {
      if (/** @type {any} */ (error).code === "EAGAIN") continue;
      return;
    }
  }
}

/** A message as a line of text, or as JSON with --log-format json. @param {string} line @param {import("./results.mjs").Level} level @param {string[]} argv @param {Record<string, string | undefined>} environ */
function messageOf(line, level, argv, environ) {
  const at = argv.indexOf("--log-format");
  const format = (at >= 0 ? argv[at + 1] : argv.find((word) => word.startsWith("--log-format="))?.slice("--log-format=".length)) ?? environ.KFM_LOG_FORMAT;
  if (format !== "json") return `${line}\n`;
  return `${visibleJson(JSON.stringify({ time: new Date().toISOString(), level, message: line }))}\n`;
}
