// Questions to the server. A problem becomes an ApiError whose message is a sentence for the reader.

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // 0: the server did not answer at all
  }
}

// A node that does not exist is no fault of the page: with its status in the body, the console stays empty.
const HEADERS = { Accept: "application/json", Prefer: "status-in-body" };
const GONE = "The explorer was stopped; start it again with `pprgnn explore RUN`.";

async function get(path, parameters, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(key, value);
  }
  let answer;
  try {
    answer = await fetch(`/api/${path}?${query}`, { signal, headers: HEADERS });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(GONE, 0);
  }
  const body = await answer.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  const status = body?.status ?? answer.status;
  if (answer.ok && body !== null && body.status === undefined) return body;
  const unreadable = `The server answered in a way that cannot be read (${status}); its terminal says why.`;
  throw new ApiError(typeof body?.detail === "string" ? body.detail : unreadable, status);
}

export const fetchRuns = (signal) => get("runs", {}, signal);
export const search = (parameters, signal) => get("search", parameters, signal);
// Features belong to the view that is shown: the next one aborts them, too.
let shown;
export const fetchFeatures = ({ run, graph, node, decision }) =>
  get("features", { run, graph, node, target: decision.target }, shown);

// Going back to where one was is common, and answers do not change while the server runs.
const KEPT = 30;
const kept = new Map();

export async function explain({ run, graph, node, name, target, all }, limit, signal) {
  shown = signal;
  const parameters = { run, graph, node, name, target, all, limit };
  const key = JSON.stringify(parameters);
  const known = kept.get(key);
  const answer = known ?? (await get("explain", parameters, signal));
  kept.delete(key);
  kept.set(key, answer);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return answer;
}
