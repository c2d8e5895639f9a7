/** The command line: arguments to an exit code, with errors as messages. */

import { writeSync } from "node:fs";
import { isatty } from "node:tty";
import { remember } from "../config/scope.mjs";
import { Cancelled, UsageError } from "../model/errors.mjs";
import { visibleJson } from "../model/wording.mjs";
import { parse, wantedFormat } from "./arguments.mjs";
import { errorLines } from "./results.mjs";
import { annotate, asError, run } from "./run.mjs";

/** @param {string[]} argv @param {{version: string, system?: any, write?: (descriptor: number, text: string) => void, environ?: Record<string, string | undefined>}} about @returns {Promise<number>} */
export async function main(argv, { version, system, write = written, environ = process.env }) {
  remember(argv);
  const around = {
    out: (/** @type {string} */ text) => write(1, text),
    note: (/** @type {string} */ line, /** @type {import("./results.mjs").Level} */ level = "info") => write(2, messageOf(line, level, argv, environ)),
    environ,
    version,
    isTerminal: Boolean(process.stdout.isTTY),
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
    return await run(parsed.options, around);
  } catch (problem) {
    const error = asError(problem);
    const output = wantedFormat(argv);
    if (output !== "text") around.out(`${visibleJson(JSON.stringify(error.asDocument(), null, output === "json" ? 2 : 0))}\n`);
    const [what, wayOut] = errorLines(error);
    around.note(what, "error");
    around.note(wayOut);
    annotate(error, error.code, around);
    if (argv.some((word) => ["-v", "-vv", "--verbose"].includes(word)) && !(problem instanceof Cancelled)) around.note(String(/** @type {Error} */ (problem).stack ?? problem), "error");
    return error.exitCode;
  }
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
