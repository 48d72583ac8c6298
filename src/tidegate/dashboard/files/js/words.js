// What the machine's words mean to people. One place, so that all pages say the same.

const WAITS = {
  exhausted: "the allowance is used up",
  blocked: "the upstream asked us to rest",
  retired: "the credential was retired",
  concurrency: "as many calls as allowed are under way",
  minute: "this minute’s share is used up",
  probing: "one call finds out how much is left",
  no_credential: "there is no valid credential",
  resting: "the host asked for a rest",
};

const PARTS = { waits: "what waits", failed: "what failed", dead: "dead letters", active: "active runs" };

/** Why something waits, as part of a sentence. */
export const whyWaits = (reason) => WAITS[reason] ?? reason.replaceAll("_", " ");

const JOB_STATES = { enqueued: "waiting", ready: "to retry", unavailable: "withheld" };
const TRIGGERS = { manual: "by hand", scheduled: "by a schedule", signup: "at a sign-up" };

/** "REPO_COMMITS" → "repo commits". */
export const kindName = (kind) => kind.toLowerCase().replaceAll("_", " ");

/** A job's state as people say it. */
export const jobState = (state) => JOB_STATES[state] ?? state;

/** Why a run was begun. */
export const triggerName = (trigger) => TRIGGERS[trigger] ?? trigger;

/** What a part of an answer is called. */
export const partName = (part) => PARTS[part] ?? part.replace("dead/", "dead letters of ").replaceAll("_", " ");

/** Runs that are not over. */
export const ACTIVE = ["planning", "running", "finalizing"];

/** How many jobs of a run need no more work. */
export const endedJobs = (run) => run.succeeded_jobs + run.failed_jobs + run.canceled_jobs;
