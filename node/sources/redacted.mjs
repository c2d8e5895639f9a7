/** Redacted sources. */

/** A source whose names and validators are redacted, whatever upstream calls its objects. @param {any} inner @param {(text: string) => string} hide */
export function redactedSource(inner, hide) {
  const own = new Map();
  const cleaned = (/** @type {any} */ found) => ({
    ...found,
    uri: hide(found.uri),
    path: hide(found.path).replaceAll("***", "redacted"),
    media_type: hide(found.media_type),
    etag: found.etag ? hide(found.etag) : found.etag,
    version: found.version ? hide(found.version) : found.version,
    ...(found.origin === undefined ? {} : { origin: hide(found.origin) }),
  });
  return {
    answersEmpty: inner.answersEmpty === true,
    discover: async (/** @type {any} */ window) =>
      (await inner.discover(window)).map((/** @type {any} */ found) => {
        const shown = cleaned(found);
        own.set(JSON.stringify(shown), found);
        return shown;
      }),
    open: async (/** @type {any} */ found, /** @type {number} */ offset) => {
      const download = await inner.open(own.get(JSON.stringify(found)) ?? found, offset);
      return { ...download, found: cleaned(download.found) };
    },
  };
}
