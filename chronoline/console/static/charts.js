// Charts as SVG: a frame with axes, and what three kinds of charts draw into it.

const NS = "http://www.w3.org/2000/svg";
const EDGE = { left: 52, right: 12, top: 8, bottom: 24 };

export function element(name, attributes = {}, text = "") {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

const numbers = new Intl.NumberFormat("en");
export const showNumber = (value) => numbers.format(value);

export function compact(value) {
  if (value >= 1e9) return `${+(value / 1e9).toPrecision(3)} bn`;
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e3) return `${+(value / 1e3).toPrecision(3)} k`;
  return showNumber(+value.toPrecision(3));
}

// A lateness as the pages of the server show it.
export const showMs = (ms) => (ms < 1e3 ? `${showNumber(Math.max(1, Math.ceil(ms)))} ms` : `${showNumber(Math.ceil(ms / 100) / 10)} s`);

// Values at which an axis from 0 to `most` has its lines: about four, at round numbers.
export function linearTicks(most, wanted = 4) {
  const rough = Math.max(most, 1e-9) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let value = 0; value <= most + step * 0.999; value += step) ticks.push(value);
  return ticks;
}

// Times are UTC, as on the pages that the server makes.
const DAY = 86400e3, MONTH = 28 * DAY;
const SPANS = [1, 10, 100, 1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3600e3, 4 * 3600e3, 12 * 3600e3, DAY, 7 * DAY];
const MONTHS = [1, 3, 12, 60, 120, 600, 1200];

export function timeTicks(from, to, most = 8) {
  const step = SPANS.find((each) => (to - from) / each <= most);
  const ticks = [];
  if (step !== undefined) {
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
    return { ticks, step };
  }
  const months = MONTHS.find((each) => (to - from) / (each * MONTH) <= most * 1.1) ?? MONTHS.at(-1);
  const first = new Date(from);
  for (let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months; ; month += months) {
    const at = Date.UTC(Math.floor(month / 12), month % 12);
    if (at > to) return { ticks, step: MONTH };
    if (at >= from) ticks.push(at);
  }
}

const NAMES = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

export function showTick(at, step) {
  const when = new Date(at), text = when.toISOString();
  if (step >= MONTH) return `${NAMES[when.getUTCMonth()]} ${when.getUTCFullYear()}`;
  const day = `${when.getUTCDate()} ${NAMES[when.getUTCMonth()]}`;
  if (step >= DAY) return day;
  if (step >= 12 * 3600e3) return `${day} ${text.slice(11, 16)}`;
  if (step >= 60e3) return text.slice(11, 16);
  return step >= 1e3 ? text.slice(11, 19) : text.slice(14, 23);
}

export function showTime(at, step = 1e3) {
  return `${new Date(at).toISOString().slice(0, step < 1e3 ? 23 : 19).replace("T", " ")} UTC`;
}

// The frame of a chart: it fills its host, and is drawn again when the host's size changes.
export class Frame {
  constructor(host, draw) {
    this.host = host;
    this.svg = element("svg", { "aria-hidden": "true" });
    host.append(this.svg);
    this.draw = draw;
    new ResizeObserver(() => this.redraw()).observe(host);
  }

  get width() { return Math.max(this.host.clientWidth, 120); }
  get height() { return Math.max(this.host.clientHeight, 80); }
  get inner() { return { x: EDGE.left, y: EDGE.top, width: this.width - EDGE.left - EDGE.right, height: this.height - EDGE.top - EDGE.bottom }; }

  redraw() {
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren();
    this.draw(this);
  }

  horizontal(y, label) {
    const { x, width } = this.inner;
    this.svg.append(element("line", { class: "grid", x1: x, x2: x + width, y1: y, y2: y }));
    this.svg.append(element("text", { x: x - 6, y: y + 4, "text-anchor": "end" }, label));
  }

  below(x, label, anchor = "middle") {
    this.svg.append(element("text", { x, y: this.height - 6, "text-anchor": anchor }, label));
  }

  // The times from `from` to `to` below the axis, and their zone.
  times(from, to) {
    const { x, width } = this.inner;
    const { ticks, step } = timeTicks(from, to, Math.max(2, width / 110));
    this.below(x - 6, "UTC", "end");
    for (const at of ticks) {
      const place = x + (width * (at - from)) / Math.max(to - from, 1);
      if (place > x + 16) this.below(Math.min(place, this.width - 30), showTick(at, step));
    }
  }

  empty(words) {
    const { x, y, width, height } = this.inner;
    this.svg.append(element("text", { x: x + width / 2, y: y + height / 2, "text-anchor": "middle" }, words));
  }
}

export function legend(host, entries) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const [name, words] of entries) {
    const item = document.createElement("li");
    item.className = name;
    const mark = element("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" });
    mark.append(element("rect", { width: 16, height: 12, rx: 3 }));
    const label = document.createElement("span");
    label.textContent = words;
    item.append(mark, label);
    list.append(item);
  }
  host.after(list);
}

// Lines over the last ten minutes, and the values of the second under the pointer. With `log` the axis is
// logarithmic, from 1 on.
export function lines(host, samples, series, { log = false, show = compact, say = showNumber } = {}) {
  // Later lines lie on top, and the legend begins with them.
  legend(host, series.map(([name, words]) => [name, words]).reverse());
  const words = document.createElement("p");
  words.className = "soft";
  words.textContent = "Point at a second for its values.";
  host.nextElementSibling.after(words);
  let pointed = null;
  const span = () => [Math.min(samples[0].at, samples.at(-1).at - 60e3), samples.at(-1).at];
  const frame = new Frame(host, (f) => {
    if (!samples.length) return f.empty("Nothing yet: the first second is being counted.");
    const { x, y, width, height } = f.inner;
    const [from, to] = span();
    const found = series.flatMap(([, , read]) => samples.map(read)).filter((each) => each != null);
    const most = Math.max(log ? 10 : 1, ...found);
    const ticks = log ? [1, 10, 100, 1e3, 1e4, 1e5].filter((each) => each < most * 10) : linearTicks(most);
    const top = ticks.at(-1);
    const up = log ? (value) => y + height * (1 - Math.log10(Math.max(value, 1)) / Math.log10(top)) : (value) => y + height * (1 - value / top);
    for (const tick of ticks) f.horizontal(up(tick), show(tick));
    const along = (at) => x + (width * (at - from)) / Math.max(to - from, 1);
    f.times(from, to);
    for (const [name, , read] of series) {
      let path = "", pen = "M";
      for (const each of samples) {
        const value = read(each);
        if (value == null) { pen = "M"; continue; }
        path += `${pen}${along(each.at).toFixed(1)} ${up(value).toFixed(1)}`;
        if (pen === "M") path += "h.01";
        pen = "L";
      }
      f.svg.append(element("path", { class: name, d: path || "M0 0" }));
    }
    if (pointed && pointed.at >= from) f.svg.append(element("line", { class: "cursor", x1: along(pointed.at), x2: along(pointed.at), y1: y, y2: y + height }));
  });
  host.addEventListener("pointermove", (event) => {
    if (!samples.length) return;
    const { x, width } = frame.inner, [from, to] = span();
    const at = from + ((event.offsetX - x) / width) * (to - from);
    pointed = samples.reduce((best, each) => (Math.abs(each.at - at) < Math.abs(best.at - at) ? each : best));
    const values = [...series].reverse().map(([, label, read]) => `${label} ${read(pointed) == null ? "–" : say(read(pointed))}`);
    words.textContent = `${showTime(pointed.at)}: ${values.join(", ")}`;
    frame.redraw();
  });
  host.addEventListener("pointerleave", () => { pointed = null; frame.redraw(); });
  frame.redraw();
  return frame;
}

// Pairs of bars: messages beside the control.
export function histogram(host, bars) {
  legend(host, [["late", "messages"], ["control", "control"]]);
  new Frame(host, (f) => {
    const { x, y, width, height } = f.inner;
    for (const part of [0, 0.25, 0.5, 0.75, 1]) f.horizontal(y + height * (1 - part), `${part * 100} %`);
    const slot = width / bars.length, thick = Math.max(2, slot * 0.36);
    const every = Math.ceil(60 / slot);
    bars.forEach((bar, place) => {
      const left = x + place * slot + slot * 0.12;
      for (const [name, part, shift] of [["late", bar.part, 0], ["control", bar.control_part, thick]]) {
        f.svg.append(element("rect", { class: name, x: left + shift, width: thick, y: y + height * (1 - part), height: height * part }));
      }
      if (place % every === 0) f.below(left + thick, bar.bound);
    });
  }).redraw();
}
