// Enrolment of the operator of a new gateway by its code, which the gateway shows for a limited time after a start.
import { setToken } from "./token.js";

const TEXTS = {
  open: "Enter this code to register as its operator. The code is valid once.",
  closed: "Enter the code from the gateway's console to register as its operator. If so configured, this page also "
    + "shows the code for a limited time after each start, to clients in the gateway's own network.",
};

const section = document.getElementById("enrolment");
const field = document.getElementById("code");
const problem = document.getElementById("enrolment-error");
const credentials = document.getElementById("credentials");

/** Show the form if the gateway has no operator. */
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

/** Call `entered` after the user has registered as operator and the page has a token. */
export function watchEnrolment(entered) {
  document.getElementById("enrolment-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      const client = await register(field.value.trim().toUpperCase());
      show(client);  // before the next request: the code is valid once, so an error must not lose the credentials
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
