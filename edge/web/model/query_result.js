// The answer to a query, as the page shows it.
import { request } from "./gateway.js";

const ACCEPT = "application/sparql-results+json, text/turtle";
const NUMBER = /#(integer|decimal|double|float|long|int|short|byte|unsigned\w+|non\w+Integer|positiveInteger|negativeInteger)$/;
const TIME = /#(dateTime|date|dateTimeStamp)$/;
const POINTS = 5000;

/** {kind, text, columns, rows, milliseconds}; `kind` is rows, boolean or graph. Throws `Refused`. */
export async function ask(sparql, signal) {
  const began = performance.now();
  const answer = await request("/query", { method: "POST", headers: { "Content-Type": "application/sparql-query", Accept: ACCEPT }, body: sparql, signal });
  const text = await answer.text();
  const milliseconds = performance.now() - began;
  if (answer.headers.get("content-type").startsWith("text/turtle")) return { kind: "graph", text, milliseconds };
  const result = JSON.parse(text);
  if ("boolean" in result) return { kind: "boolean", text, boolean: result.boolean, milliseconds };
  return { kind: "rows", text, columns: result.head.vars, rows: result.results.bindings.map((row) => ({ row })), milliseconds };
}

/** {x, timed, lines: [{name, values}]} for a chart: the columns of numbers over the first column of times, or over the
 *  number of the row. undefined without a column of numbers. */
export function columnsOfNumbers({ columns, rows }) {
  const all = rows.slice(0, POINTS).map(({ row }) => row);
  const every = (name, datatype) => all.some((row) => row[name]) && all.every((row) => !row[name] || datatype.test(row[name].datatype ?? ""));
  const numeric = columns.filter((name) => every(name, NUMBER));
  if (!numeric.length) return undefined;
  const time = columns.find((name) => every(name, TIME));
  const sorted = time ? all.filter((row) => row[time]).sort((one, other) => Date.parse(one[time].value) - Date.parse(other[time].value)) : all;
  return {
    timed: time !== undefined,
    x: sorted.map((row, index) => (time ? Date.parse(row[time].value) / 1000 : index + 1)),
    lines: numeric.map((name) => ({ name, values: sorted.map((row) => (row[name] ? Number(row[name].value) : null)) })),
  };
}
