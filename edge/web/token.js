// The visitor's token, where the gateway wants one. It is kept for this tab only, and is never part of an address.
const KEY = "sepa-edge.token";

const REASONS = {
  invalid_request: ["This gateway wants to know who you are", "Enter a token of yours, to see what its client may see."],
  invalid_grant: ["This token does not count any more", "It has expired, or is not for this gateway. Enter another one."],
  invalid_client: ["This client may not come in", "It is not known here, or its rights have ended. Enter the token of another one."],
  forbidden: ["This client may not subscribe", "Who runs the gateway can allow it (edge clients allow). Or enter the token of another one."],
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

/** Whether an error of the gateway is about who asks. */
export function concernsToken(error) {
  return error.status_code === 401 || error.status_code === 403;
}

/** Fetch with the token. */
export function fetchAs(path) {
  return fetch(path, { headers: token() ? { Authorization: `Bearer ${token()}` } : {} });
}

/** Say why no token, or no such token, will do, and let another one be entered. */
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

/** Call `entered` when there is another token, `left` when there is none any more. */
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

/** The token does. */
export function tokenCounts() {
  entry.hidden = true;
  leave.hidden = !token();
}
