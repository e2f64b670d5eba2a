// Documents of the operator: mapping files and rules. Each has an entity tag, so that no client overwrites what another one
// has saved.
import { request } from "./gateway.js";

const TYPE = "text/plain; charset=utf-8";

/** {text, tag} of the document at a path, or of its previous version. */
export async function readDocument(path, previous = false) {
  const answer = await request(`${path}${previous ? "?previous=true" : ""}`);
  return { text: await answer.text(), tag: answer.headers.get("ETag") };
}

/** Write a document that still has this tag. null: it must not exist; undefined: whatever it is now. Returns its new tag;
 *  throws `Refused` with status 412 if another client has changed it. */
export async function writeDocument(path, text, tag, type = TYPE) {
  const answer = await request(path, { method: "PUT", headers: { "Content-Type": type, ...condition(tag) }, body: text });
  return answer.headers.get("ETag");
}

/** Delete a document that still has this tag. */
export async function deleteDocument(path, tag) {
  await request(path, { method: "DELETE", headers: condition(tag) });
}

function condition(tag) {
  return tag === undefined ? {} : tag === null ? { "If-None-Match": "*" } : { "If-Match": tag };
}

/** {text, tag} of a document as it is now; the text is undefined and the tag null if it was deleted. */
export async function presentDocument(path) {
  try {
    return await readDocument(path);
  } catch (error) {
    if (error.status !== 404) throw error;
    return { text: undefined, tag: null };
  }
}
