// Display texts for values of the API.

const WAITS = {
  exhausted: "the quota is used up",
  blocked: "the upstream asked for a pause",
  retired: "the credential was retired",
  concurrency: "the maximum number of calls is in progress",
  minute: "the limit per minute is reached",
  probing: "one call probes the remaining quota",
  no_credential: "there is no valid credential",
  resting: "the host asked for a pause",
};

const PARTS = { waits: "what waits", failed: "what failed", dead: "dead letters", active: "active runs" };

/** Why something waits, as part of a sentence. */
export const whyWaits = (reason) => WAITS[reason] ?? reason.replaceAll("_", " ");

const JOB_STATES = { enqueued: "waiting", ready: "to retry", unavailable: "withheld" };
const TRIGGERS = { manual: "by hand", scheduled: "by a schedule", signup: "at a sign-up" };

/** "REPO_COMMITS" → "repo commits". */
export const kindName = (kind) => kind.toLowerCase().replaceAll("_", " ");

/** The display text of a job's state. */
export const jobState = (state) => JOB_STATES[state] ?? state;

/** The display text of a run's trigger. */
export const triggerName = (trigger) => TRIGGERS[trigger] ?? trigger;

/** The display name of a part of an answer. */
export const partName = (part) => PARTS[part] ?? part.replace("dead/", "dead letters of ").replaceAll("_", " ");

/** States of active runs. */
export const ACTIVE = ["planning", "running", "finalizing"];

/** Number of jobs of a run that have ended. */
export const endedJobs = (run) => run.succeeded_jobs + run.failed_jobs + run.canceled_jobs;
