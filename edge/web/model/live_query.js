// A subscription of the console, on a connection of its own: an error in it does not disturb the rest of the page.
import { batch, signal } from "../ui.js";
import { connection } from "./connection.js";
import { messageOf } from "./errors.js";
import { socketAddress, subscription } from "./first_connection.js";
import { t } from "./text.js";

const PAUSE = 200;  // ms; the page changes once for all notifications within this time
const CHANGES = 100;  // notifications that the page shows
const ROWS = 50;  // rows of one of them

/** A subscription to a query. Its signals: `state` (connecting, live, lost, failed or ended), `error`, `columns`, `rows`
 *  ([{key, row, count, fresh}]: the current result, a bag), `changes` (the last notifications, the newest first). */
export class LiveQuery {
  constructor(sparql) {
    this.sparql = sparql;
    this.state = signal("connecting");
    this.error = signal("");
    this.columns = signal([]);
    this.rows = signal([]);
    this.changes = signal([]);
    this.bag = new Map();
    this.waiting = [];
    // After a loss, the page's own connection finds out when the gateway is back.
    this.unfollow = connection.subscribe(({ state }) => state === "live" && !this.socket && this.connect());
  }

  async connect() {
    const socket = this.socket = {};
    try {
      const url = await socketAddress();
      if (this.socket !== socket) return;
      this.socket = new WebSocket(url);
    } catch (error) {
      return this.fail(error instanceof TypeError ? t("gateway.unreachable") : messageOf(error));  // the browser's text is English
    }
    const current = this.socket;
    current.onopen = () => current.send(subscription("console", this.sparql));
    current.onmessage = ({ data }) => this.socket === current && this.receive(JSON.parse(data));
    current.onclose = () => {
      if (this.socket !== current) return;
      this.socket = undefined;
      this.state.value = "lost";
    };
  }

  receive(message) {
    if (message.error) return this.fail(messageOf({ error: message.error, message: message.error_description || message.error }));
    if (!message.notification) return;
    if (message.notification.sequence === 0) {
      this.waiting = [];
      this.bag.clear();
      this.state.value = "live";
    }
    this.waiting.push([Date.now(), message.notification]);
    this.timer ??= setTimeout(() => this.publish(), PAUSE);
  }

  publish() {
    this.timer = undefined;
    const fresh = new Set(), told = [];
    for (const [at, { sequence, addedResults: added, removedResults: removed }] of this.waiting.splice(0)) {
      if (added.head?.vars?.length) this.columns.value = added.head.vars;
      removed.results.bindings.forEach((row) => this.count(row, -1));
      for (const row of added.results.bindings) fresh.add(this.count(row, 1));
      told.push({ key: `${at}-${sequence}`, at, sequence, added: some(added), removed: some(removed) });
    }
    batch(() => {
      this.changes.value = [...told.reverse(), ...this.changes.value].slice(0, CHANGES);
      this.rows.value = [...this.bag].map(([key, { row, count }]) => ({ key, row, count, fresh: fresh.has(key) }));
    });
  }

  count(row, by) {
    const key = JSON.stringify(Object.entries(row).sort());
    const count = (this.bag.get(key)?.count ?? 0) + by;
    if (count > 0) this.bag.set(key, { row, count });
    else this.bag.delete(key);
    return key;
  }

  fail(reason) {
    this.error.value = reason;
    this.close("failed");
  }

  close(state = "ended") {
    this.unfollow();
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = {};
    socket?.close?.();
    this.state.value = state;
  }
}

function some({ results: { bindings } }) {
  return { total: bindings.length, rows: bindings.slice(0, ROWS) };
}
