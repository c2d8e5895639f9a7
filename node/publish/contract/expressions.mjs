/**
 * Regular expressions of contracts: the regular part of ECMA-262, answered in time linear in the text.
 *
 * The same machine as `kfm/publish/contract/expressions.py`: its states are sets of places in the expression, made
 * as texts need them, and nothing is ever tried again.
 */

import { FileProblem } from "./streams.mjs";

const PLACES_MAX = 10_000;
const DEPTH_MAX = 50;
const CACHED_MAX = 200_000; // steps and places of states that are remembered; then it begins anew
const STEPS_MAX = 20_000_000;
const LAST = 0x10ffff;

/** @typedef {[number, number][]} Ranges */
/** @typedef {{kind: "set", ranges: Ranges} | {kind: "assert", which: string} | {kind: "all", parts: Part[]} | {kind: "any", parts: Part[]} | {kind: "repeat", part: Part, least: number, most: number | null}} Part */
/** @typedef {{kind: "found"} | {kind: "set", ranges: Ranges, then: number} | {kind: "assert", which: string, then: number} | {kind: "split", nexts: number[]}} Place */
/** @typedef {{places: number[], before: number, next: Map<string, State | null>}} State */

const DIGIT = /** @type {Ranges} */ ([[0x30, 0x39]]);
const WORD = /** @type {Ranges} */ ([[0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]]);
const SPACE = /** @type {Ranges} */ ([
  [0x09, 0x0d], [0x20, 0x20], [0xa0, 0xa0], [0x1680, 0x1680], [0x2000, 0x200a], [0x2028, 0x2029], [0x202f, 0x202f], [0x205f, 0x205f], [0x3000, 0x3000], [0xfeff, 0xfeff],
]);
const LINE_END = /** @type {Ranges} */ ([[0x0a, 0x0a], [0x0d, 0x0d], [0x2028, 0x2029]]);
const CLASSES = new Map([["d", DIGIT], ["w", WORD], ["s", SPACE]]);
const CONTROLS = new Map([["t", 0x09], ["n", 0x0a], ["v", 0x0b], ["f", 0x0c], ["r", 0x0d], ["0", 0x00]]);

export class ExpressionError extends Error {}

/** @param {Ranges} ranges @returns {Ranges} */
function allBut(ranges) {
  /** @type {Ranges} */
  const found = [];
  let at = 0;
  for (const [low, high] of [...ranges].sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    if (low > at) found.push([at, low - 1]);
    at = Math.max(at, high + 1);
  }
  if (at <= LAST) found.push([at, LAST]);
  return found;
}

/** @param {string} char */
const point = (char) => /** @type {number} */ (char.codePointAt(0));
/** @param {number} code @returns {Ranges} */
const one = (code) => [[code, code]];
/** @param {string} text */
const areDigits = (text) => /^[0-9]+$/.test(text);
/** @param {string} char */
const isWord = (char) => /^[A-Za-z0-9_]$/.test(char);

// --- reading -----------------------------------------------------------------------------

class Parser {
  /** @param {string} pattern */
  constructor(pattern) {
    this.text = Array.from(pattern);
    this.at = 0;
  }

  whole() {
    const part = this.#any(0);
    if (this.at < this.text.length) this.#fail("a parenthesis is not open");
    return part;
  }

  /** @param {string} problem @returns {never} */
  #fail(problem) {
    throw new ExpressionError(`${problem} (at character ${this.at + 1})`);
  }

  #peek(count = 1) {
    return this.text.slice(this.at, this.at + count).join("");
  }

  /** @param {string} expected one character */
  #took(expected) {
    if (this.text[this.at] !== expected) return false;
    this.at += 1;
    return true;
  }

  /** @param {number} depth @returns {Part} */
  #any(depth) {
    if (depth > DEPTH_MAX) this.#fail(`parentheses are nested deeper than ${DEPTH_MAX}`);
    const choices = [this.#all(depth)];
    while (this.#took("|")) choices.push(this.#all(depth));
    return choices.length === 1 ? /** @type {Part} */ (choices[0]) : { kind: "any", parts: choices };
  }

  /** @param {number} depth @returns {Part} */
  #all(depth) {
    const parts = [];
    while (this.at < this.text.length && !["|", ")"].includes(this.#peek())) parts.push(this.#repeated(this.#atom(depth)));
    return { kind: "all", parts };
  }

  /** @param {number} depth @returns {Part} */
  #atom(depth) {
    if (this.#took("(")) return this.#group(depth);
    if (this.#took("[")) return { kind: "set", ranges: this.#class() };
    if (this.#took(".")) return { kind: "set", ranges: allBut(LINE_END) };
    if (this.#took("^")) return { kind: "assert", which: "start" };
    if (this.#took("$")) return { kind: "assert", which: "end" };
    if (this.#took("\\")) return this.#escaped();
    const char = this.#peek();
    if (["*", "+", "?"].includes(char) || (char === "{" && this.#count())) this.#fail("there is nothing to repeat");
    this.at += 1;
    return { kind: "set", ranges: one(point(char)) };
  }

  /** @param {number} depth @returns {Part} */
  #group(depth) {
    if (this.#took("?")) {
      if (["=", "!"].includes(this.#peek()) || ["<=", "<!"].includes(this.#peek(2))) this.#fail("lookaround is not supported, since it can't be answered in linear time");
      if (this.#took("<")) {
        const end = this.text.indexOf(">", this.at);
        const name = this.text.slice(this.at, end < 0 ? this.text.length : end).join("");
        if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) this.#fail("a group has no proper name");
        this.at += name.length + 1;
      } else if (!this.#took(":")) this.#fail("this kind of group is not part of ECMA-262");
    }
    const part = this.#any(depth + 1);
    if (!this.#took(")")) this.#fail("a parenthesis is not closed");
    return part;
  }

  /** @param {Part} part @returns {Part} */
  #repeated(part) {
    const bounds = this.#bounds();
    if (!bounds) return part;
    if (part.kind === "assert") this.#fail("an assertion can't be repeated");
    this.#took("?"); // how much it takes matters only to groups
    if (this.#bounds()) this.#fail("there is nothing to repeat");
    return { kind: "repeat", part, ...bounds };
  }

  /** @returns {{least: number, most: number | null} | null} */
  #bounds() {
    if (this.#took("*")) return { least: 0, most: null };
    if (this.#took("+")) return { least: 1, most: null };
    if (this.#took("?")) return { least: 0, most: 1 };
    const found = this.#count();
    if (!found) return null;
    this.at = found.end;
    if (found.most !== null && found.most < found.least) this.#fail("a repetition has its bounds in the wrong order");
    return { least: found.least, most: found.most };
  }

  /** `{2}`, `{2,}` or `{2,5}`. Another brace is a character. @returns {{least: number, most: number | null, end: number} | null} */
  #count() {
    const found = /^\{([0-9]+)(,?)([0-9]*)\}/.exec(this.text.slice(this.at, this.at + 20).join(""));
    if (!found || (!found[2] && found[3])) return null;
    const least = Number(found[1]);
    return { least, most: found[3] ? Number(found[3]) : found[2] ? null : least, end: this.at + found[0].length };
  }

  /** @returns {Part} */
  #escaped() {
    if (this.#took("b")) return { kind: "assert", which: "edge" };
    if (this.#took("B")) return { kind: "assert", which: "inside" };
    return { kind: "set", ranges: this.#escape() };
  }

  /** @returns {Ranges} */
  #escape() {
    const char = this.#peek();
    if (!char) this.#fail("it ends with a backslash");
    this.at += 1;
    const known = CLASSES.get(char.toLowerCase());
    if (known && /^[A-Za-z]$/.test(char)) return char === char.toLowerCase() ? known : allBut(known);
    if (char === "0" && areDigits(this.#peek())) this.#fail("octal escapes are not supported");
    const control = CONTROLS.get(char);
    if (control !== undefined) return one(control);
    if (char === "x" || char === "u") return one(this.#code(char));
    if (/^[1-9k]$/.test(char)) this.#fail("references to groups are not supported, since they can't be answered in linear time");
    if (/^[!-/:-@[-^`{-~]$/.test(char)) return one(point(char));
    return this.#fail(/^[!-~]$/.test(char) ? `the escape \\${char} is not supported` : "an unknown escape");
  }

  /** @param {string} char */
  #code(char) {
    if (char === "u" && this.#took("{")) {
      const found = /^([0-9a-fA-F]+)\}/.exec(this.text.slice(this.at, this.at + 9).join(""));
      const code = found ? Number.parseInt(/** @type {string} */ (found[1]), 16) : LAST + 1;
      if (!found || code > LAST) this.#fail("an escape names no character");
      this.at += found[0].length;
      return code;
    }
    const digits = char === "x" ? 2 : 4;
    const found = this.#peek(digits);
    if (!new RegExp(`^[0-9a-fA-F]{${digits}}$`).test(found)) this.#fail("an escape names no character");
    this.at += digits;
    return Number.parseInt(found, 16);
  }

  /** @returns {Ranges} */
  #class() {
    const negated = this.#took("^");
    /** @type {Ranges} */
    const found = [];
    if (this.#peek() === "]") this.#fail("a class is empty; write \\] for the bracket");
    while (!this.#took("]")) {
      const low = this.#member();
      if (this.#peek() === "-" && this.#peek(2) !== "-]") {
        this.at += 1;
        const high = this.#member();
        const [from, to] = [single(low), single(high)];
        if (from === null || to === null) return this.#fail("a range needs a character on each side");
        if (from > to) this.#fail("a range has its ends in the wrong order");
        found.push([from, to]);
      } else found.push(...low);
    }
    return negated ? allBut(found) : found;
  }

  /** @returns {Ranges} */
  #member() {
    const char = this.#peek();
    if (!char) this.#fail("a class is not closed");
    this.at += 1;
    if (char !== "\\") return one(point(char));
    return this.#took("b") ? one(0x08) : this.#escape();
  }
}

/** @param {Ranges} ranges */
function single(ranges) {
  const [first] = ranges;
  return ranges.length === 1 && first && first[0] === first[1] ? first[0] : null;
}

// --- the machine -------------------------------------------------------------------------

/** The places of an expression, built from its end to its beginning. */
class Places {
  constructor() {
    /** @type {Place[]} */
    this.places = [{ kind: "found" }];
  }

  /** @param {Place} place */
  add(place) {
    this.places.push(place);
    if (this.places.length > PLACES_MAX) throw new ExpressionError(`it is larger than ${PLACES_MAX} places once its repetitions are written out`);
    return this.places.length - 1;
  }

  /** The place where `part` begins, if `then` is where it goes on. @param {Part} part @param {number} then @returns {number} */
  before(part, then) {
    if (part.kind === "set") return this.add({ kind: "set", ranges: part.ranges, then });
    if (part.kind === "assert") return this.add({ kind: "assert", which: part.which, then });
    if (part.kind === "any") return this.add({ kind: "split", nexts: part.parts.map((each) => this.before(each, then)) });
    if (part.kind === "all") return part.parts.reduceRight((after, each) => this.before(each, after), then);
    const { part: inner, least, most } = part;
    if (most === null) {
      const again = this.add({ kind: "split", nexts: [] });
      this.places[again] = { kind: "split", nexts: [this.before(inner, again), then] };
      then = again;
    }
    for (let left = (most || least) - least; left > 0; left -= 1) then = this.add({ kind: "split", nexts: [this.before(inner, then), then] });
    for (let left = least; left > 0; left -= 1) {
      const begin = this.before(inner, then);
      if (begin === then) break; // nothing, however often
      then = begin;
    }
    return then;
  }
}

const START = 0;
const AFTER_WORD = 1;
const AFTER_OTHER = 2;

/** Does a text hold a match? */
export class Expression {
  /** @param {string} pattern */
  constructor(pattern) {
    const built = new Places();
    this.begin = built.before(new Parser(pattern).whole(), 0);
    this.places = built.places;
    this.edges = built.places.some((each) => each.kind === "assert" && ["edge", "inside"].includes(each.which));
    this.steps = 0;
    this.cached = 0;
    /** @type {Map<string, State>} */
    this.states = new Map();
    this.first = this.#forget();
  }

  /** FileProblem once it has taken more steps than a sensible expression would. @param {string} text */
  matches(text) {
    let state = this.first;
    for (const char of text) {
      let following = state.next.get(char);
      if (following === undefined) following = this.#step(state, char);
      if (following === null) return true;
      state = following;
    }
    return this.#reached(state, null).has(0);
  }

  /** The state after this character; null: there was a match before it. @param {State} state @param {string} char */
  #step(state, char) {
    const reached = this.#reached(state, char);
    /** @type {State | null} */
    let following = null;
    if (!reached.has(0)) {
      const code = point(char);
      const places = new Set([this.begin]);
      for (const at of reached) {
        const place = /** @type {Place} */ (this.places[at]);
        if (place.kind === "set" && place.ranges.some(([low, high]) => low <= code && code <= high)) places.add(place.then);
      }
      following = this.#state([...places].sort((a, b) => a - b), this.edges && isWord(char) ? AFTER_WORD : AFTER_OTHER);
    }
    state.next.set(char, following);
    return following;
  }

  /** @param {number[]} places @param {number} before @returns {State} */
  #state(places, before) {
    this.cached += 1 + places.length;
    if (this.cached > CACHED_MAX) this.#forget();
    const name = `${before}:${places.join(",")}`;
    let found = this.states.get(name);
    if (!found) {
      found = { places, before, next: new Map() };
      this.states.set(name, found);
    }
    return found;
  }

  /** @returns {State} */
  #forget() {
    this.cached = 0;
    this.states = new Map();
    this.first = /** @type {State} */ ({ places: [this.begin], before: START, next: new Map() });
    return this.first;
  }

  /** All places to which no further character is needed. @param {State} state @param {string | null} following */
  #reached(state, following) {
    /** @type {Set<number>} */
    const reached = new Set();
    const waiting = [...state.places];
    for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
      if (reached.has(at)) continue;
      reached.add(at);
      const place = /** @type {Place} */ (this.places[at]);
      if (place.kind === "split") waiting.push(...place.nexts);
      else if (place.kind === "assert" && holds(place.which, state.before, following)) waiting.push(place.then);
    }
    this.steps += reached.size;
    if (this.steps > STEPS_MAX) throw new FileProblem(`needs more than ${STEPS_MAX} steps to be compared with a pattern`);
    return reached;
  }
}

/** @param {string} which @param {number} before @param {string | null} following */
function holds(which, before, following) {
  if (which === "start") return before === START;
  if (which === "end") return following === null;
  return ((before === AFTER_WORD) !== (following !== null && isWord(following))) === (which === "edge");
}
