/** Evidence of an attempt: the record of it, and the circumstances that its lineage event reports. Pure. */

/** @param {any} more */
export function circumstances(more = {}) {
  return { invocation: null, gates: [], policies: null, key_documents: {}, inputs: [], outputs: [], version_id: null, report: null, columns: [], code: null, ...more };
}

/** @param {any} more */
export function newAttempt(more) {
  return {
    delay_ms: 0, ended_at_ms: null, ending: null, outcome: null, error_code: null, error_class: null, error_message: null,
    retryable: null, inputs_hash: null, validation: null, code_sha: null, energy: null, ...more,
  };
}
