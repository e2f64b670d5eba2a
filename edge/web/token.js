// The user's token, if the gateway requires one. It is stored for this tab only, and is never part of a URL.
const KEY = "sepa-edge.token";

const REASONS = {
  invalid_request: ["This gateway requires a token", "Enter a token to see the graphs that its client may read."],
  invalid_grant: ["This token is not valid", "It has expired, or is not for this gateway. Enter another one."],
  invalid_client: ["This client is not allowed", "It is unknown to the gateway, or was revoked. Enter the token of another client."],
  forbidden: ["This client may not subscribe", "Ask the operator to allow it (edge clients allow), or enter the token of another client."],
};

const entry = document.getElementById("entry");
const field = document.getElementById("token");
const leave = document.getElementById("leave");

export function token() {
  return sessionStorage.getItem(KEY);
}

export function setToken(text) {
  sessionStorage.setItem(KEY, text);
}

/** Whether an error of the gateway concerns authentication or permissions. */
export function concernsToken(error) {
  return error.status_code === 401 || error.status_code === 403;
}

/** Fetch with the token. */
export function fetchAs(path) {
  return fetch(path, { headers: token() ? { Authorization: `Bearer ${token()}` } : {} });
}

/** Show why a token is required or was refused, and ask for another one. */
export function askForToken(error) {
  const [title, text] = REASONS[error.error] ?? REASONS.invalid_grant;
  document.getElementById("entry-title").textContent = title;
  document.getElementById("entry-text").textContent = text;
  document.getElementById("entry-error").textContent = token() ? error.error_description : "";
  entry.hidden = false;
  leave.hidden = true;
  field.value = "";
  field.focus();
}

/** Call `entered` after another token was entered, and `left` after the token was removed. */
export function watchToken(entered, left) {
  document.getElementById("entry-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim().replace(/^bearer\s+/i, "");
    if (!text) return;
    setToken(text);
    field.value = "";
    entry.hidden = true;
    entered();
  });
  leave.addEventListener("click", () => {
    sessionStorage.removeItem(KEY);
    left();
  });
}

/** Hide the form: the gateway has accepted the token, or requires none. */
export function tokenAccepted() {
  entry.hidden = true;
  leave.hidden = !token();
}
