/** The records of the kernel: the same names and shapes as in `kfm.model.records`. */

export type Window = { start_ms: number; end_ms: number; spec: string };
export type Work = { source_id: string; window: Window; partition: string | null; output_version: string };
export type Trigger = {
  type: "cron" | "webhook" | "upstream-event" | "manual" | "retry";
  source_id: string;
  dataset_id: string;
  request_uuid?: string | null;
  message_id?: string | null;
  source_uri?: string | null;
  content_tag?: string | null;
  member_keys?: string[];
  envelope?: Record<string, string>;
  force?: number;
  correction?: string | null;
  actor: string;
  claimed_actor: string | null;
  rationale: string | null;
  ticket: string | null;
};
export type Run = {
  run_id: string; source_id: string; dataset_id: string; pipeline_id: string; idempotency_key: string;
  work_key: string; work_base: string; revision: number; trigger_type: string; window_spec: string;
  window_start_ms: number; window_end_ms: number; partition: string | null; pipeline_version: string;
  status: "running" | "success" | "failed"; attempts: number; fence: number; start_time_ms: number;
  end_time_ms: number | null; fingerprint: string | null; version_id: string | null;
  error_code: string | null; error_message: string | null; force: number; correction: string | null; outcome: string | null;
};
export type GateResult = {
  gate: string; allowed: boolean; reason: string; policy_ids: string[];
  overridable: boolean; overridden: boolean; halts: boolean;
  code?: string; cause?: string; remedy?: string; command?: string; until_ms?: number;
};
export type GateDecision = {
  allowed: boolean; results: GateResult[]; first_blocker: GateResult | null; halts: boolean;
  approval?: [string, string];
};
export type Invocation = {
  invocation_id: string; run_id: string | null; source_id: string; dataset_id: string; trigger_type: string;
  idempotency_key: string; outcome: string | null; actor: string; requested_at_ms: number;
  claimed_actor: string | null; rationale: string | null; ticket: string | null; reason: string | null;
  reason_code: string | null; gates: GateResult[]; window_start_ms: number | null; window_end_ms: number | null;
};
export type Lock = {
  scope: string; fence: number; holder: { worker_id: string; run_id: string } | null;
  acquired_at_ms: number; lease_until_ms: number;
};
export type Found = {
  uri: string; path: string; media_type: string; size: number | null; modified_ms: number | null;
  etag: string | null; checksum: string | null; version: string | null; origin?: string;
};
export type Fetched = { found: Found; sha256: string; size: number };
export type Asset = {
  path: string; sha256: string; size: number; media_type: string; source_uri: string | null;
  modified_ms: number | null; roles: string[];
};
export type Item = {
  id: string; source_id: string; window_start_ms: number; window_end_ms: number; partition: string | null;
  assets: Asset[]; bbox: [string, string, string, string] | null; run_state?: any; as_of?: [number, number];
};
export type Manifest = {
  dataset_id: string; title: string; description: string; domain: string; keywords: string[];
  rights: any; items: Item[];
};
export type Promotion = {
  dataset_id: string; sequence: number; version_id: string; run_id: string; fence: number;
  policy_epoch: number; promoted_at_ms: number;
};
/** How a version was named: by the hash of its whole manifest (1), or by that of its root document. */
export type Form = 1 | 2;
export type Head = [Promotion, Manifest, Form] | null;
export type Check = { name: string; passed: boolean; detail: string; path: string | null; sample: string[] };
export type Report = { checks: Check[] };
export type GovernanceEntry = {
  kind: string; subject: string; actor: string; recorded_at_ms: number; rationale: string | null;
  ticket: string | null; details: Record<string, any>;
};
export type Classification = { retryable: boolean; error_class: string };
export type RetryState = {
  run_id: string; attempt: number; grants: number; grant_attempts: number; granted_at_ms: number;
  not_before_ms: number | null; fate: "retry" | "spent" | "quarantine"; error_class: string; reason: string;
  updated_at_ms: number; fingerprint: string | null; day_grants: number;
};
export type UpdateRequest = {
  request_id: string; key: string; kind: string; source_id: string; dataset_id: string; window_start_ms: number; window_end_ms: number;
  actor: string; accepted_at_ms: number; not_before_ms: number; claimed_actor: string | null; rationale: string | null;
  ticket: string | null; correction: string | null; schedule_id: string | null; instant_ms: number | null; request_uuid: string | null;
  envelope_hash: string | null; needs_approval: boolean; details: Record<string, any>; state: string; outcome: string | null;
  reason: string | null; run_id: string | null; plan_digest: string | null; claimed_by: string | null; claim_until_ms: number;
  tries: number; cancel: string | null; ended_at_ms: number | null; blocked_by: string | null; is_bound: boolean; by_person: boolean;
  tried_at_ms: number | null;
};
export type Breaker = {
  provider: string; state: "closed" | "open" | "half-open"; failures: number; opened_at_ms: number | null;
  probe_until_ms: number | null; fence: number; tripped_at_ms: number | null; closed_at_ms: number | null;
};
export type Clock = { nowMs(): number; monotonicMs(): number; sleepMs(ms: number): Promise<void> | void };
export type Ids = { "new": () => string };
