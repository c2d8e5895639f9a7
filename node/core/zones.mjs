/** Local clocks: how far a zone is ahead of UTC, and which instants a local time can mean. */

/** @type {Map<string, Intl.DateTimeFormat | null>} */
const clocks = new Map();
const REACH_MS = 36 * 3_600_000;

/** @param {string} zone */
function clock(zone) {
  let found = clocks.get(zone);
  if (found === undefined) {
    try {
      found = new Intl.DateTimeFormat("en-US", {
        timeZone: zone,
        hourCycle: "h23",
        era: "short",
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
      });
    } catch {
      found = null;
    }
    // Intl takes names in any case, and offsets; a zone is called by its own name.
    if (found && !/^[A-Za-z][A-Za-z0-9_+\-/]*$/.test(zone)) found = null;
    clocks.set(zone, found);
  }
  return found;
}

/** @param {string} zone */
export function zoneExists(zone) {
  return zone === "UTC" || clock(zone) !== null;
}

export function zoneNames() {
  return Intl.supportedValuesOf("timeZone");
}

/** What the clock of a zone shows at an instant, counted as if it were UTC. @param {string} zone @param {number} atMs */
export function shown(zone, atMs) {
  if (zone === "UTC") return atMs;
  const format = clock(zone);
  if (!format) throw new RangeError(`no such zone: ${zone}`);
  /** @type {Record<string, string>} */
  const parts = {};
  for (const part of format.formatToParts(atMs)) parts[part.type] = part.value;
  const year = Number(parts.year);
  const at = new Date(0);
  at.setUTCFullYear(parts.era === "BC" || parts.era === "B" ? 1 - year : year, Number(parts.month) - 1, Number(parts.day));
  at.setUTCHours(Number(parts.hour), Number(parts.minute), Number(parts.second), 0);
  return at.getTime() + (((atMs % 1000) + 1000) % 1000);
}

/** @param {string} zone @param {number} atMs */
export function offsetMs(zone, atMs) {
  return shown(zone, atMs) - atMs;
}

/** The instants at which the clock shows this, earliest first. @param {string} zone @param {number} localMs */
export function instantsOf(zone, localMs) {
  if (zone === "UTC") return [localMs];
  const offsets = new Set([offsetMs(zone, localMs - REACH_MS), offsetMs(zone, localMs), offsetMs(zone, localMs + REACH_MS)]);
  return [...offsets].map((offset) => localMs - offset).filter((at) => shown(zone, at) === localMs).sort((a, b) => a - b);
}

/** Of a time shown twice the earlier, of one never shown that much later. @param {string} zone @param {number} localMs */
export function compatible(zone, localMs) {
  const found = instantsOf(zone, localMs);
  if (found.length) return /** @type {number} */ (found[0]);
  return localMs - offsetMs(zone, localMs - REACH_MS);
}

/** The first instant of the local day that holds an instant. @param {string} zone @param {number} atMs */
export function startOfDay(zone, atMs) {
  const midnight = Math.floor(shown(zone, atMs) / 86_400_000) * 86_400_000;
  const found = instantsOf(zone, midnight);
  if (found.length) return /** @type {number} */ (found[0]);
  // Midnight was left out: the day begins where the clock jumps over it.
  let [low, high] = [midnight - offsetMs(zone, midnight - REACH_MS) - REACH_MS, atMs];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (shown(zone, middle) < midnight) low = middle;
    else high = middle;
  }
  return high;
}
