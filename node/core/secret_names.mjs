/** Names that tell of a value that it is a secret. */

export const SECRET_WORDS =
  "(?:token|secret|signature|password|passwd|passphrase|pwd|credentials?|authorization" +
  "|(?:api|access|account|subscription|private|shared|signing|storage|client|auth)[_-]?key(?:[_-]?id)?)";
// `.*[a-z](?=[A-Z])` ignores case in Python, too: any two letters.
const SECRET_NAME = new RegExp(`^(?:(?:|.*[^a-z]|.*[a-z](?=[A-Z]))${SECRET_WORDS}s?|(?:key|sig|sas|auth|pass))$`, "i");

/** @param {string} name */
export function isSecretName(name) {
  return SECRET_NAME.test(name);
}
