// What pages do after they have loaded: charts, and the state of the node as it changes.

import { histogram, lines, showMs, showNumber } from "./charts.js";
import { Forecast } from "./forecast.js";

const KEPT = 600;
const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "[]");

const samples = read("samples");
const redraw = [];

const lateness = document.querySelector("[data-chart=lateness]");
if (lateness) {
  redraw.push(lines(lateness, samples, [
    ["control", "control, p99", (each) => each.control], ["p999", "p99.9", (each) => each.late.p999],
    ["p99", "p99", (each) => each.late.p99], ["p50", "p50", (each) => each.late.p50],
  ], { log: true, show: showMs, say: (ms) => `≤ ${showMs(ms)}` }));
}
const rates = document.querySelector("[data-chart=rates]");
if (rates) redraw.push(lines(rates, samples, [["out", "out", (each) => each.out], ["in", "in", (each) => each.in]]));

const late = document.querySelector("[data-chart=histogram]");
if (late) histogram(late, read("histogram"));
for (const section of document.querySelectorAll("[data-forecast]")) section.forecast = new Forecast(section);

// Counts that were not there yet when the page was made

async function count(section) {
  const answer = await fetch(section.dataset.counts).catch(() => null);
  const found = answer?.ok ? await answer.json() : { counting: true };
  if (found.counting) return setTimeout(count, 700, section);
  for (const host of section.querySelectorAll("[data-count]")) host.textContent = showNumber(found[host.dataset.count]);
  document.querySelector("[data-role=counted]").textContent = "";
}
for (const section of document.querySelectorAll("[data-counts]")) count(section);

// Pages of which a part is being read are loaded again.
if (document.querySelector("[data-again]")) setTimeout(() => location.reload(), 1500);

// The node, as it changes

const offline = document.getElementById("offline");
const problems = document.getElementById("problems");
const REFRESHED_EVERY_MS = 5000;
let shown = null, refreshed = Date.now();

function showValues(event) {
  const values = { in: event.sample.in, out: event.sample.out, held: event.held, dead: event.dead };
  for (const [name, value] of Object.entries(values)) {
    for (const host of document.querySelectorAll(`[data-live-value=${name}]`)) host.textContent = value === null ? "…" : showNumber(value);
  }
  for (const host of document.querySelectorAll("[data-live-value=p99]")) {
    host.textContent = event.sample.late.p99 == null ? "–" : `≤ ${showMs(event.sample.late.p99)}`;
  }
}

function showProblems(found) {
  const key = JSON.stringify(found);
  if (key === shown) return;
  if (shown !== null) refreshed = 0;
  shown = key;
  problems.replaceChildren(...found.map((each) => {
    const line = document.createElement("p"), what = document.createElement("strong");
    line.className = `banner ${each.ready ? "warn" : "bad"}`;
    what.textContent = `${each.ready ? "Degraded" : "Not ready"} (${each.type}):`;
    line.append(what, ` ${each.reason}`);
    return line;
  }));
}

// Parts that no event carries are taken from a fresh copy of the page.
async function refresh() {
  if (!document.querySelector("[data-refresh]") || Date.now() - refreshed < REFRESHED_EVERY_MS) return;
  refreshed = Date.now();
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const host of document.querySelectorAll("[data-refresh]")) {
    const found = fresh.getElementById(host.id), left = host.scrollLeft;
    if (!found || host.contains(document.activeElement)) continue;
    host.replaceWith(document.adoptNode(found));
    found.scrollLeft = left;
  }
}

const body = document.body;
if (body.dataset.live && !location.pathname.endsWith("/sign-in")) {
  let events = null, again = null;
  const show = (message) => {
    const event = JSON.parse(message.data);
    offline.hidden = true;
    body.dataset.seen = String(event.sample.at);
    samples.push(event.sample);
    if (samples.length > KEPT) samples.shift();
    showValues(event);
    showProblems(event.problems);
    refresh();
    for (const each of redraw) each.redraw();
  };
  const follow = () => {
    events?.close();
    // A hidden page has no stream: browsers open only six connections to a node, for all their tabs.
    if (document.hidden) return;
    events = new EventSource(body.dataset.live);
    events.onmessage = show;
    events.onerror = () => {
      offline.hidden = false;
      // A browser gives up at an answer that is no stream, such as that of a node that starts.
      if (events.readyState !== EventSource.CLOSED) return;
      clearTimeout(again);
      again = setTimeout(follow, 2000);
    };
    events.addEventListener("signed-out", () => { events.close(); location.reload(); });
  };
  follow();
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", () => events?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
}
