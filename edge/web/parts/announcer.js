// Changes of the page in words, for screen readers: announced when they are not busy.

/** Say a text. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}
