// The token of the user, for this tab.
const KEY = "sepa-edge.token";

export function token() {
  return sessionStorage.getItem(KEY);
}

export function setToken(text) {
  sessionStorage.setItem(KEY, text);
}

export function removeToken() {
  sessionStorage.removeItem(KEY);
}

/** The member of a message over WebSocket that carries the token, if there is one. */
export function tokenHeader() {
  return token() && { authorization: `Bearer ${token()}` };
}
