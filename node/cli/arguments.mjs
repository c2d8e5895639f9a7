/** The command line, by the same table of flags as Python's: `contracts/tables/run-command.json`. */

import { contract } from "../model/contracts.mjs";
import { UsageError } from "../model/errors.mjs";
import { closeWords, closest } from "../model/patterns.mjs";
import { length, repr, thousands } from "../model/wording.mjs";

export const PROGRAM = "runner.mjs";
const FORMATS = ["text", "json", "jsonl"];
// A reason is kept for good, so its length is limited.
const SAID_CHARS_MAX = /** @type {Record<string, number>} */ ({ rationale: 4000, ticket: 200, actor: 200 });

/** @param {string} message @param {string} [command] */
function usage(message, command = `${PROGRAM} run`) {
  return new UsageError(message, { remedy: `Read \`${command} --help\`.` });
}

/** @param {string[]} argv @returns {{help: string} | {options: Record<string, any>}} */
export function parse(argv) {
  const table = contract("tables/run-command.json");
  const [first, ...rest] = argv;
  if (first === undefined) throw usage(`\`${PROGRAM}\` needs one of: run.`, PROGRAM);
  if (first === "-h" || first === "--help") return { help: table.group_help.replaceAll("PROG", PROGRAM) };
  if (first.startsWith("-")) throw usage(`No such option ${repr(first)}.`, PROGRAM);
  if (first !== "run") {
    const close = closest(first, ["run"]);
    throw usage(`There is no command \`${first}\`.${close ? ` Did you mean \`${close}\`?` : ""}`, PROGRAM);
  }
  return parseRun(rest, table);
}

/** @param {string[]} argv @param {any} table @returns {any} */
function parseRun(argv, table) {
  /** @type {Map<string, any>} */
  const flags = new Map(table.options.flatMap((/** @type {any} */ option) => option.flags.map((/** @type {string} */ flag) => [flag, option])));
  /** @type {Record<string, any>} */
  const options = Object.fromEntries(table.options.map((/** @type {any} */ option) => [option.name, option.multiple ? [] : option.is_flag ? false : option.default]));
  const extra = [];
  for (let at = 0; at < argv.length; at += 1) {
    const word = /** @type {string} */ (argv[at]);
    if (word === "--") {
      extra.push(...argv.slice(at + 1));
      break;
    }
    if (word === "-" || !word.startsWith("-")) {
      extra.push(word);
      continue;
    }
    let [flag, value] = split(word, flags);
    if (flag === "--help" || flag === "-h") return { help: table.help.replaceAll("PROG", PROGRAM) };
    const option = flags.get(flag);
    if (!option) throw unknown(flag, [...flags.keys()]);
    if (option.is_flag) {
      if (value !== null && word.startsWith("--")) throw usage(`Option '${flag}' does not take a value.`);
      if (value !== null) argv.splice(at + 1, 0, `-${value}`); // -vv is -v -v
      options[option.name] = true;
      continue;
    }
    if (value === null) {
      at += 1;
      value = argv[at] ?? null;
      if (value === null) throw usage(`Option '${flag}' requires an argument.`);
    }
    if (option.choices && !option.choices.includes(value)) {
      const names = option.flags.map((/** @type {string} */ one) => `'${one}'`).join(" / ");
      throw usage(`Invalid value for ${names}: '${value}' is not one of ${option.choices.map((/** @type {string} */ one) => `'${one}'`).join(", ")}.`);
    }
    if (option.multiple) options[option.name].push(value);
    else options[option.name] = value;
  }
  if (extra.length) throw usage(`Got unexpected extra argument${extra.length > 1 ? "s" : ""} (${extra.join(" ")})`);
  for (const [name, limit] of Object.entries(SAID_CHARS_MAX)) {
    const chars = length(options[name] ?? "");
    if (chars > limit)
      throw new UsageError(`--${name} has ${thousands(chars)} characters; ${thousands(limit)} are kept.`, { remedy: "Say it in short, and name the place where the rest is." });
  }
  if (options.verbose && options.quiet) throw new UsageError("--verbose and --quiet exclude each other.");
  return { options };
}

/** @param {string} word @param {Map<string, any>} flags @returns {[string, string | null]} */
function split(word, flags) {
  if (word.startsWith("--")) {
    const at = word.indexOf("=");
    return at < 0 ? [word, null] : [word.slice(0, at), word.slice(at + 1)];
  }
  const short = word.slice(0, 2);
  if (word.length === 2 || !flags.has(short)) return [flags.has(word) ? word : short === "-h" ? "-h" : word, null];
  return [short, word.slice(2)];
}

/** @param {string} flag @param {string[]} known */
function unknown(flag, known) {
  const close = closeWords(flag, known, 3).sort().map(repr);
  const hint = close.length > 1 ? ` (Did you mean one of: ${close.join(", ")}?)` : close.length ? ` Did you mean ${close[0]}?` : "";
  return usage(`No such option ${repr(flag)}.${hint}`);
}

/** The output format, read before the arguments are parsed: an error in them has a form too. @param {string[]} argv */
export function wantedFormat(argv) {
  let found = "text";
  for (let at = 0; at < argv.length; at += 1) {
    const word = /** @type {string} */ (argv[at]);
    if (word === "--") break;
    if (word === "--json") found = "json";
    else if (["-o", "--output"].includes(word) && at + 1 < argv.length) found = /** @type {string} */ (argv[at + 1]);
    else if (word.startsWith("--output=")) found = word.slice("--output=".length);
    else if (word.startsWith("-o") && word.length > 2 && !word.startsWith("--")) found = word.slice(2).replace(/^=/, "");
  }
  return FORMATS.includes(found) ? found : "text";
}
