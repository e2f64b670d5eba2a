// Devices that adapters read themselves: serial ports, Modbus devices, and edge nodes of Sparkplug, with their states.
const BEGINNINGS = { modbus: "urn:sepa-edge:modbus:", sparkplug: "urn:sepa-edge:sparkplug:" };

/** [{kind, name, state, reason, missing, device}] of a response of `/health`. `missing` are the names of the values that a
 *  connected device does not give; `device` is the IRI; undefined: there is none.
 *  Without the right to administer, a client gets no reasons. A client without a token gets nothing, and the list is empty. */
export function sources(health) {
  const found = [];
  for (const kind of ["sparkplug", "modbus", "serial"]) {
    const all = health?.[kind];
    for (const [name, text] of all && typeof all === "object" ? Object.entries(all) : []) {
      const [, state, reason] = /^([^:]*)(?:: )?(.*)$/s.exec(text);
      found.push({ kind, name, state, reason, missing: health[`${kind}_missing`]?.[name], device: BEGINNINGS[kind] && BEGINNINGS[kind] + name.split("/").map(encoded).join("/") });
    }
  }
  return found;
}

// As the gateway encodes names: all but letters, digits, "_.-~" and ":".
function encoded(name) {
  return encodeURIComponent(name).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`).replaceAll("%3A", ":");
}
