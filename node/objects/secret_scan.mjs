/** The secret scan: objects that contain a secret of the configuration are refused. */

import { SecretInData } from "../model/errors.mjs";
import { Redactor, partsOf } from "../model/redaction.mjs";

const NEEDLE_CHARS_MIN = 8;

/** The spellings of secrets that are looked for in data. @param {string[]} secrets */
function needles(secrets) {
  const long = secrets.flatMap((secret) => [...partsOf(secret)]).filter((part) => part.length >= NEEDLE_CHARS_MIN);
  return new Redactor(long).cores.filter((core) => core.length >= NEEDLE_CHARS_MIN).map((core) => Buffer.from(core));
}

/** Objects that take in none of the configuration's secrets. @template {{stage(key?: string | null): any}} T @param {T} objects @param {string[]} secrets @returns {T} */
export function watched(objects, secrets) {
  const wanted = needles(secrets);
  if (!wanted.length) return objects;
  const stage = objects.stage.bind(objects);
  const overlap = Math.max(1, ...wanted.map((one) => one.length)) - 1;
  objects.stage = (key) => {
    const [inner, offset] = stage(key);
    const [write, keepPartial] = [inner.write.bind(inner), inner.keepPartial.bind(inner)];
    let end = Buffer.alloc(0);
    let leaked = false;
    inner.write = (/** @type {Buffer} */ data) => {
      const seen = Buffer.concat([end, data]);
      if (wanted.some((needle) => seen.includes(needle))) {
        leaked = true;
        throw new SecretInData();
      }
      end = overlap ? seen.subarray(-overlap) : Buffer.alloc(0);
      write(data);
    };
    inner.keepPartial = () => (leaked ? inner.abort() : keepPartial());
    return [inner, offset];
  };
  return objects;
}
