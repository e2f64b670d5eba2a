// The first connection of the page. It begins while the other modules are still loading, so that the gateway evaluates
// the subscription to the values meanwhile. `connection.js` takes it over.
import { tokenHeader } from "./token.js";

/** The subscription to all values. */
export const VALUES = "observations";
export const QUERY = `PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?observation ?label ?place ?sensor ?property ?value ?unit ?time WHERE {
  ?observation a sosa:Observation ; sosa:hasResult ?quantity .
  ?quantity a qudt:QuantityValue ; qudt:numericValue ?value .
  OPTIONAL { ?observation rdfs:label ?label }
  OPTIONAL { ?observation sosa:hasFeatureOfInterest ?place }
  OPTIONAL { ?observation sosa:madeBySensor ?sensor }
  OPTIONAL { ?observation sosa:observedProperty ?property }
  OPTIONAL { ?quantity qudt:unit ?unit }
  OPTIONAL { ?quantity time:hasTime ?instant . ?instant time:inXSDDateTimeStamp ?time }
}`;

/** URL of the WebSocket gate, from here. */
export async function socketAddress() {
  // Without the token, which it does not need: index.html lets the browser ask before the modules are there.
  const answer = await fetch("./api/endpoints");
  if (!answer.ok) throw new Error(`/api/endpoints: ${answer.status}`);
  const { ws, wss } = await answer.json();
  const socket = location.protocol === "https:" ? wss : ws;
  if (!socket) throw new Error("/api/endpoints has no address for WebSocket");
  const url = new URL(socket, document.baseURI);  // a proxy that serves the page below a path names its own, relative to it
  if (url.protocol.startsWith("http")) url.protocol = url.protocol.replace("http", "ws");
  // A loopback address names the gateway's machine, which may not be the user's. The host of this page is the gateway.
  if (/^(localhost|127\.|0\.0\.0\.0$|\[::1?\]$)/.test(url.hostname)) url.hostname = location.hostname;
  return url.href;
}

/** The message that subscribes to a query. */
export function subscription(alias, sparql) {
  return JSON.stringify({ subscribe: { sparql, alias, ...tokenHeader() } });
}

/** {socket, waiting} with the messages that have arrived, or undefined if it failed. */
export const first = begin().catch((error) => console.warn(error));

async function begin() {
  const socket = new WebSocket(await socketAddress()), waiting = [];
  socket.onopen = () => socket.send(subscription(VALUES, QUERY));
  socket.onmessage = (event) => waiting.push(event);
  return { socket, waiting };
}
