// What pages do after they have loaded: charts, and the state of the node as it changes.

import { histogram, lines, showMs, showNumber } from "./charts.js";
import { Forecast } from "./forecast.js";

const KEPT = 600;
const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "[]");

// What the page draws. The arrays stay, their content comes with events and with fresh copies of the page.
const samples = read("samples"), bars = read("histogram");
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
if (late) redraw.push(histogram(late, bars));
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
// A node sends an event a second. One that stands still, or a network that is gone, closes no connection.
const SILENT_MS = 10000;
let refreshed = Date.now();

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
  const lines = found.map((each) => {
    const line = document.createElement("p"), what = document.createElement("strong");
    line.className = `banner ${each.ready ? "warn" : "bad"}`;
    what.textContent = `${each.ready ? "Degraded" : "Not ready"} (${each.type}):`;
    line.append(what, ` ${each.reason}`);
    return line;
  });
  const words = (of) => JSON.stringify([...of].map((each) => each.textContent));
  if (words(lines) === words(problems.children)) return;
  problems.replaceChildren(...lines);
  refreshed = 0;
}

// A part in which a link has the focus, or words are selected, stays as it is meanwhile.
function isInUse(host) {
  const focus = document.activeElement, selection = getSelection();
  return (host !== focus && host.contains(focus)) || (!selection.isCollapsed && host.contains(selection.anchorNode));
}

function replace(list, fresh, keep = () => []) {
  const found = JSON.parse(fresh?.textContent ?? "[]");
  if (found.length) list.splice(0, list.length, ...found, ...keep(found.at(-1)));
}

// Parts that no event carries are taken from a fresh copy of the page.
async function refresh() {
  const hosts = document.querySelectorAll("[data-refresh]");
  if (!hosts.length || Date.now() - refreshed < REFRESHED_EVERY_MS) return;
  refreshed = Date.now();
  const answer = await fetch(location.href).catch(() => null);
  // The topic was deleted, or the right to it taken away.
  if ([403, 404].includes(answer?.status)) return location.reload();
  if (!answer?.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const host of hosts) {
    const found = fresh.getElementById(host.id);
    if (found && !isInUse(host)) host.replaceChildren(...found.childNodes);
  }
  // Seconds for which the page was hidden or the node was away came by no event.
  replace(samples, fresh.getElementById("samples"), (last) => samples.filter((each) => each.at > last.at));
  replace(bars, fresh.getElementById("histogram"));
  for (const section of document.querySelectorAll("[data-forecast]")) section.forecast.load();
}

const body = document.body;
if (body.dataset.live && !location.pathname.endsWith("/sign-in")) {
  let events = null, again = null, silence = null;
  const listen = () => {
    clearTimeout(silence);
    silence = setTimeout(() => { offline.hidden = false; follow(); }, SILENT_MS);
  };
  const end = () => { clearTimeout(silence); events?.close(); };
  const show = (message) => {
    listen();
    const event = JSON.parse(message.data);
    if (!offline.hidden) refreshed = 0;
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
    end();
    // A hidden page has no stream: browsers open only six connections to a node, for all their tabs.
    if (document.hidden) return;
    listen();
    events = new EventSource(body.dataset.live);
    events.onmessage = show;
    events.onerror = () => {
      offline.hidden = false;
      // A browser gives up at an answer that is no stream, such as that of a node that starts.
      if (events.readyState !== EventSource.CLOSED) return;
      clearTimeout(again);
      again = setTimeout(follow, 2000);
    };
    events.addEventListener("signed-out", () => { end(); location.reload(); });
  };
  follow();
  document.addEventListener("visibilitychange", () => { refreshed = 0; follow(); });
  addEventListener("pagehide", end);
  addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
}
