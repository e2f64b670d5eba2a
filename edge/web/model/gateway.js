// The gateway's HTTP interface, with the user's token if the gateway requires one. The token is stored for this tab
// only, and is never part of a URL. The credentials of a client are stored with it, or, if the user wishes, for this
// browser: a token lasts an hour, and they give the next one.
import { t } from "./text.js";
import { removeToken, setToken, token } from "./token.js";

const CLIENT = "sepa-edge.client";

/** Sign in with credentials. `stay`: also after this tab was closed. */
export async function signIn(client, stay) {
  setToken(await tokenOf(client));
  (stay ? localStorage : sessionStorage).setItem(CLIENT, JSON.stringify({ client_id: client.client_id, client_secret: client.client_secret }));
}

export function signOut() {
  for (const storage of [sessionStorage, localStorage]) storage.removeItem(CLIENT);
  removeToken();
}

let renewal;

/** Whether the stored credentials have given a new token. */
export function renewed() {
  renewal ??= renew().finally(() => { renewal = undefined; });
  return renewal;
}

async function renew() {
  const stored = sessionStorage.getItem(CLIENT) ?? localStorage.getItem(CLIENT);
  if (!stored) return false;
  try {
    setToken(await tokenOf(JSON.parse(stored)));
    return true;
  } catch (error) {
    // Others say nothing about the credentials: the gateway does not answer, or has too many requests.
    if (!(error instanceof Refused) || ![400, 401].includes(error.status)) throw error;
    signOut();  // revoked
    return false;
  }
}

/** An answer of the gateway that reports an error: its status, its code, and the description as text. */
export class Refused extends Error {
  constructor(status, { error = "", error_description: description = "" }) {
    super(description || `HTTP ${status}`);
    this.status = status;
    this.error = error;
  }
}

/** The gateway does not answer. */
export class Unreachable extends Error {}

/** The user may no longer see what was asked for. */
export class SessionEnded extends Error {}

let session = 0;

/** Discard the answers to all requests that are under way. */
export function endSession() {
  session += 1;
}

async function within(work) {
  const begun = session;
  const result = await work();
  if (session !== begun) throw new SessionEnded();
  return result;
}

/** Request a path. Returns the response; throws `Refused` with the gateway's reason, or `SessionEnded`. */
export async function request(path, options = {}) {
  let answer = await within(() => send(path, options));
  if (answer.status === 401 && await within(() => renewed().catch(() => false))) answer = await within(() => send(path, options));
  if (answer.ok) return answer;
  throw new Refused(answer.status, await within(() => answer.json().catch(() => ({}))));
}

async function send(path, options) {
  const headers = { ...options.headers, ...(token() && { Authorization: `Bearer ${token()}` }) };
  try {
    return await fetch(`.${path}`, { ...options, headers });  // relative: a proxy may serve the page below a path
  } catch (error) {
    if (error instanceof TypeError) throw new Unreachable(t("gateway.unreachable"));  // the browser's text is English
    throw error;
  }
}

export function getJson(path, options) {
  return within(async () => (await request(path, options)).json());
}

/** Execute a SPARQL update. */
export async function update(sparql) {
  await request("/update", { method: "POST", headers: { "Content-Type": "application/sparql-update" }, body: sparql });
}

/** The answer to a SPARQL query as text in a format. */
export async function query(sparql, mediaType) {
  const headers = { "Content-Type": "application/sparql-query", Accept: mediaType };
  return (await request("/query", { method: "POST", headers, body: sparql })).text();
}

/** Recent values of observations (`GET /api/series`). `period` has `from`, `to` and `points`. */
export function series(observations, period) {
  const parameters = new URLSearchParams(period);
  for (const each of observations) parameters.append("observation", each);
  return getJson(`/api/series?${parameters}`);
}

// OAuth 2.0, client credentials (RFC 6749, section 4.4).

/** Register with a code. Returns `{client_id, client_secret}`, which the gateway tells only once. */
export async function register(code) {
  const body = JSON.stringify({ register: { client_identity: code, grant_types: ["client_credentials"] } });
  return (await post("/oauth/register", { "Content-Type": "application/json" }, body)).credentials;
}

/** A token for the credentials of a client. */
export async function tokenOf(client) {
  const secret = btoa(`${client.client_id}:${client.client_secret}`);
  return (await post("/oauth/token", { Authorization: `Basic ${secret}` })).access_token;
}

async function post(path, headers, body) {
  const answer = await fetch(`.${path}`, { method: "POST", headers, body });
  const content = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, content);
  return content;
}
