/** Patterns for names, and the nearest right word, by the rules of Python's fnmatch and difflib. */

/** What stands between the stars of a pattern. @type {Map<string, string[]>} */
const compiled = new Map();

/**
 * Each piece between two stars is looked for once, where it comes first: stars that were tried together would take
 * time with a power of the name's length.
 * @param {string} name @param {string} pattern
 */
export function matchesName(name, pattern) {
  const known = compiled.get(pattern) ?? translated(pattern);
  compiled.set(pattern, known);
  const [first, ...rest] = known;
  const last = rest.pop();
  if (last === undefined) return new RegExp(`^(?:${first})$`, "u").test(name);
  const head = new RegExp(`^(?:${first})`, "u").exec(name);
  let at = head ? head[0].length : -1;
  for (const piece of rest) {
    if (at < 0) return false;
    const expression = new RegExp(piece, "gu");
    expression.lastIndex = at;
    at = expression.test(name) ? expression.lastIndex : -1;
  }
  return at >= 0 && new RegExp(`(?:${last})$`, "u").test(name.slice(at));
}

/** @param {string} pattern @returns {string[]} */
function translated(pattern) {
  const chars = Array.from(pattern);
  const pieces = [];
  let out = "";
  let at = 0;
  while (at < chars.length) {
    const char = /** @type {string} */ (chars[at]);
    at += 1;
    if (char === "*") {
      pieces.push(out);
      out = "";
    } else if (char === "?") out += "[\\s\\S]";
    else if (char === "[") {
      let end = at;
      if (chars[end] === "!") end += 1;
      if (chars[end] === "]") end += 1;
      while (end < chars.length && chars[end] !== "]") end += 1;
      if (end >= chars.length) out += "\\[";
      else {
        let inside = chars.slice(at, end).join("");
        at = end + 1;
        const negated = inside.startsWith("!");
        if (negated) inside = inside.slice(1);
        const body = inside.replace(/[\\\][^]/g, "\\$&");
        out += ranged(body, negated);
      }
    } else out += char.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  }
  return [...pieces, out];
}

/** @param {string} body @param {boolean} negated */
function ranged(body, negated) {
  // A range that runs backwards means nothing, and stands for no character.
  const sound = body.replace(/(\\?[\s\S])-(\\?[\s\S])/gu, (all, low, high) =>
    low.replace("\\", "") <= high.replace("\\", "") ? all : "",
  );
  const kept = sound.replace(/^-|-$/g, "\\-");
  if (!kept) return negated ? "[\\s\\S]" : "(?!)";
  return `[${negated ? "^" : ""}${kept}]`;
}

/** Python's get_close_matches with n = 1. @param {string} word @param {Iterable<string>} words @param {number} cutoff */
export function closest(word, words, cutoff = 0.6) {
  /** @type {string | null} */
  let best = null;
  let bestRatio = -1;
  for (const candidate of words) {
    const found = ratio(candidate, word);
    // heapq.nlargest orders by (ratio, word), the larger word first.
    if (found >= cutoff && (found > bestRatio || (found === bestRatio && best !== null && candidate > best))) {
      best = candidate;
      bestRatio = found;
    }
  }
  return best;
}

/** Python's get_close_matches. @param {string} word @param {Iterable<string>} words @param {number} most @param {number} cutoff */
export function closeWords(word, words, most, cutoff = 0.6) {
  const found = [...words].map((candidate) => ({ candidate, near: ratio(candidate, word) })).filter(({ near }) => near >= cutoff);
  found.sort((a, b) => b.near - a.near || (a.candidate < b.candidate ? 1 : -1));
  return found.slice(0, most).map(({ candidate }) => candidate);
}

/** SequenceMatcher(None, a, b).ratio(). @param {string} a @param {string} b */
function ratio(a, b) {
  const left = Array.from(a);
  const right = Array.from(b);
  const total = left.length + right.length;
  return total ? (2 * matching(left, right)) / total : 1;
}

/** @param {string[]} a @param {string[]} b */
function matching(a, b) {
  /** @type {Map<string, number[]>} */
  const places = new Map();
  b.forEach((char, index) => {
    const known = places.get(char);
    if (known) known.push(index);
    else places.set(char, [index]);
  });
  if (b.length >= 200) {
    const limit = Math.floor(b.length / 100) + 1;
    for (const [char, found] of places) if (found.length > limit) places.delete(char);
  }
  let sum = 0;
  /** @type {[number, number, number, number][]} */
  const waiting = [[0, a.length, 0, b.length]];
  while (waiting.length) {
    const [alo, ahi, blo, bhi] = /** @type {[number, number, number, number]} */ (waiting.pop());
    const [i, j, size] = longest(a, b, places, alo, ahi, blo, bhi);
    if (!size) continue;
    sum += size;
    if (alo < i && blo < j) waiting.push([alo, i, blo, j]);
    if (i + size < ahi && j + size < bhi) waiting.push([i + size, ahi, j + size, bhi]);
  }
  return sum;
}

/**
 * @param {string[]} a @param {string[]} b @param {Map<string, number[]>} places
 * @param {number} alo @param {number} ahi @param {number} blo @param {number} bhi
 * @returns {[number, number, number]}
 */
function longest(a, b, places, alo, ahi, blo, bhi) {
  let [besti, bestj, bestsize] = [alo, blo, 0];
  /** @type {Map<number, number>} */
  let lengths = new Map();
  for (let i = alo; i < ahi; i += 1) {
    /** @type {Map<number, number>} */
    const fresh = new Map();
    for (const j of places.get(/** @type {string} */ (a[i])) ?? []) {
      if (j < blo) continue;
      if (j >= bhi) break;
      const size = (lengths.get(j - 1) ?? 0) + 1;
      fresh.set(j, size);
      if (size > bestsize) [besti, bestj, bestsize] = [i - size + 1, j - size + 1, size];
    }
    lengths = fresh;
  }
  while (besti > alo && bestj > blo && a[besti - 1] === b[bestj - 1]) [besti, bestj, bestsize] = [besti - 1, bestj - 1, bestsize + 1];
  while (besti + bestsize < ahi && bestj + bestsize < bhi && a[besti + bestsize] === b[bestj + bestsize]) bestsize += 1;
  return [besti, bestj, bestsize];
}
