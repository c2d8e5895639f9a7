/** Documents checked against `contracts/schemas`. */

import { createRequire } from "node:module";
import { contract } from "./contracts.mjs";
import { SchemaViolation } from "./errors.mjs";

/** @type {any} */
let ajv = null;
/** @type {Map<string, any>} */
const validators = new Map();

/** Raise unless the document matches the named schema. @param {string} schema @param {any} document */
export function requireValid(schema, document) {
  let validate = validators.get(schema);
  if (!validate) {
    if (!ajv) {
      const Ajv = createRequire(import.meta.url)("ajv/dist/2020.js").default; // late: a start-up is measured
      ajv = new Ajv({ strict: false, validateFormats: false, logger: false });
    }
    validate = ajv.compile(contract(`schemas/${schema}.schema.json`));
    validators.set(schema, validate);
  }
  if (validate(document)) return;
  const problem = validate.errors[0];
  throw new SchemaViolation(`${schema}: ${problem.instancePath.slice(1) || "the document"}: ${problem.message}`);
}
