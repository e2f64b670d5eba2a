// How a new gateway's operator comes in: with its code, which the page is told for a while after a start.
import { setToken } from "./token.js";

const TEXTS = {
  open: "Nobody looks after it yet. With this code, which counts once, that will be you.",
  closed: "Nobody looks after it yet. Its code is on its console. If the gateway is set up so, it also stands here for a "
    + "while after each start, for who comes from its own network.",
};

const section = document.getElementById("enrolment");
const field = document.getElementById("code");
const problem = document.getElementById("enrolment-error");
const credentials = document.getElementById("credentials");

/** Offer it, where the gateway waits for somebody. */
export async function offerEnrolment() {
  const answer = await fetch("/api/enrolment").catch(() => undefined);
  const { state, code } = answer?.ok ? await answer.json() : {};
  section.hidden = !(state in TEXTS);
  if (section.hidden) return;
  document.getElementById("enrolment-text").textContent = TEXTS[state];
  field.value = code ?? "";
}

export function hideEnrolment() {
  section.hidden = true;
}

/** Call `entered` once somebody has become the operator. */
export function watchEnrolment(entered) {
  document.getElementById("enrolment-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      const client = await register(field.value.trim().toUpperCase());
      show(client);  // the code is used up; whatever comes now, these are not lost
      setToken(await tokenOf(client));
    } catch (error) {
      problem.textContent = error.message;
      return;
    }
    section.hidden = true;
    entered();
  });
  document.getElementById("credentials-kept").addEventListener("click", () => {
    credentials.hidden = true;
    for (const id of ["client-id", "client-secret"]) document.getElementById(id).textContent = "";
  });
}

// OAuth 2.0, client credentials (RFC 6749, section 4.4).
async function register(code) {
  const register = { client_identity: code, grant_types: ["client_credentials"] };
  const headers = { "Content-Type": "application/json" };
  return (await ask("/oauth/register", { headers, body: JSON.stringify({ register }) })).credentials;
}

async function tokenOf(client) {
  const headers = { Authorization: `Basic ${btoa(`${client.client_id}:${client.client_secret}`)}` };
  return (await ask("/oauth/token", { headers })).access_token;
}

async function ask(path, options) {
  const answer = await fetch(path, { method: "POST", ...options });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error_description);
  return body;
}

function show(client) {
  document.getElementById("client-id").textContent = client.client_id;
  document.getElementById("client-secret").textContent = client.client_secret;
  credentials.hidden = false;
}
