// Requests to the server. The page uses the public API only, so a script can do everything that the page can.

import { heardFromServer } from "./clock.js";
import { shared, useShared } from "./state.js";

const SESSION = "/v1/session";
const WITHIN_MS = 20_000;
const NO_ANSWER = "The server does not answer. It may be restarting, or the network connection failed.";

/** The error of a request: the server's problem document if there is one. */
export class Problem extends Error {
  constructor(told) {
    super(told.detail);
    Object.assign(this, { status: 0, slug: "unknown", retryAfter: null, runId: null, field: null, ...told });
  }
}

const current = shared({ state: "unknown" });

/** The user of the page: {state: "unknown" | "out" | "in" | "away", role, needsKey, csrf, expiresAt, problem}. */
export const session = () => current.get();

/** The session as a hook: the component is rendered again when it changes. */
export const useSession = () => useShared(current);

/** Ask the server for the session. */
export async function loadSession() {
  try {
    enter(await call("GET", SESSION));
  } catch (problem) {
    // A signed-in user stays signed in while the server is unavailable.
    if (problem.status !== 401 && session().state !== "in") current.set({ state: "away", problem });
  }
  return session();
}

/** Sign in with a key; throws a `Problem` if it is refused. */
export async function signIn(key) {
  enter(await call("POST", SESSION, { key }));
}

export async function signOut() {
  await call("DELETE", SESSION);
  current.set({ state: "out" });
}

/** Why the user may not make changes; null if they may. */
export function useWhyNotAct() {
  const { role } = useSession();
  return role === "operate" ? null : "Your key is read-only. Sign in with a key of the role “operate” to make changes.";
}

/**
 * The JSON body of the answer; null if there is no body. Throws a `Problem` for any other answer.
 * @param {string} method
 * @param {string} path from the root: "/v1/runs?limit=20"
 * @param {unknown} [body] sent as JSON
 * @param {AbortSignal} [signal] to cancel the request
 */
export async function call(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  heardFromServer(response.headers.get("date"));
  if (response.ok) return response.status === 204 ? null : await readJson(response);
  const problem = await toProblem(response);
  const isWrongKey = method === "POST" && path === SESSION;
  if (problem.status === 401 && !isWrongKey) current.set({ state: "out" });
  throw problem;
}

async function send(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  const { csrf } = session();
  if (csrf && method !== "GET") headers["X-Tidegate-CSRF"] = csrf;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const tooLong = AbortSignal.timeout(WITHIN_MS);
  try {
    return await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, tooLong]) : tooLong,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ slug: "no-answer", title: "No answer", detail: NO_ANSWER });
  }
}

async function readJson(response) {
  try {
    return await response.json();
  } catch {
    const detail = "It is not JSON, or incomplete.";
    throw new Problem({ status: response.status, title: "The answer cannot be read", detail });
  }
}

async function toProblem(response) {
  let told = {};
  try {
    told = await response.json();
  } catch {
    // A proxy answered with its own error page.
  }
  return new Problem({
    status: response.status,
    title: told.title ?? `The server answered ${response.status}`,
    detail: told.detail ?? "The answer has no reason.",
    slug: (told.type ?? "").split("#").pop() || "unknown",
    retryAfter: Number(response.headers.get("retry-after")) || null,
    runId: told.run_id ?? null,
    field: told.field ?? null,
  });
}

function enter({ role, needs_key, csrf, expires_at }) {
  current.set({ state: "in", role, needsKey: needs_key, csrf, expiresAt: expires_at });
}
