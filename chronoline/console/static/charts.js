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

function compact(value) {
  if (value >= 1e9) return `${+(value / 1e9).toPrecision(3)} bn`;
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  return showNumber(+value.toPrecision(3));
}

// Values at which an axis from 0 to `most` has its lines: about four, at round numbers.
export function linearTicks(most, wanted = 4) {
  const rough = Math.max(most, 1e-9) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let value = 0; value <= most + step * 0.999; value += step) ticks.push(value);
  return ticks;
}

const SPANS = [
  [1, 1], [10, 10], [100, 100], [1e3, 1e3], [5e3, 5e3], [15e3, 15e3], [60e3, 60e3], [300e3, 300e3], [900e3, 900e3], [3600e3, 3600e3],
  [4 * 3600e3, 4 * 3600e3], [12 * 3600e3, 12 * 3600e3], [86400e3, 86400e3], [7 * 86400e3, 7 * 86400e3], [30 * 86400e3, 30 * 86400e3], [91 * 86400e3, 91 * 86400e3], [365 * 86400e3, 365 * 86400e3],
].map(([each]) => each);

export function timeTicks(from, to, most = 8) {
  const step = SPANS.find((each) => (to - from) / each <= most) ?? SPANS.at(-1);
  const shift = new Date(from).getTimezoneOffset() * 60e3;
  const ticks = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) ticks.push(at);
  return { ticks, step };
}

export function showTick(at, step) {
  const when = new Date(at);
  if (step >= 28 * 86400e3) return when.toLocaleDateString([], { month: "short", year: "numeric" });
  if (step >= 86400e3) return when.toLocaleDateString([], { day: "numeric", month: "short" });
  if (step >= 12 * 3600e3) return when.toLocaleString([], { day: "numeric", month: "short", hour: "2-digit" });
  if (step >= 60e3) return when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (step >= 1e3) return when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return `${when.toLocaleTimeString([], { minute: "2-digit", second: "2-digit" })}.${String(when.getMilliseconds()).padStart(3, "0")}`;
}

export function showTime(at, step = 1e3) {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }) + (step < 1e3 ? `.${String(at % 1000).padStart(3, "0")}` : "");
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

// Lines over the last ten minutes. With `log` the axis is logarithmic, from 1 on.
export function lines(host, samples, series, { log = false, unit = "" } = {}) {
  legend(host, series.map(([name, words]) => [name, words]));
  const frame = new Frame(host, (f) => {
    if (!samples.length) return f.empty("Nothing yet: the first second is being counted.");
    const { x, y, width, height } = f.inner;
    const to = samples.at(-1).at, from = Math.min(samples[0].at, to - 60e3);
    const found = series.flatMap(([, , read]) => samples.map(read)).filter((each) => each != null);
    const most = Math.max(log ? 10 : 1, ...found);
    const ticks = log ? [1, 10, 100, 1e3, 1e4, 1e5].filter((each) => each < most * 10) : linearTicks(most);
    const top = ticks.at(-1);
    const up = log ? (value) => y + height * (1 - Math.log10(Math.max(value, 1)) / Math.log10(top)) : (value) => y + height * (1 - value / top);
    for (const tick of ticks) f.horizontal(up(tick), compact(tick) + unit);
    const along = (at) => x + (width * (at - from)) / Math.max(to - from, 1);
    const { ticks: times, step } = timeTicks(from, to, Math.max(2, width / 110));
    for (const at of times) f.below(along(at), showTick(at, step));
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
  });
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
    const every = Math.ceil(44 / slot);
    bars.forEach((bar, place) => {
      const left = x + place * slot + slot * 0.12;
      for (const [name, part, shift] of [["late", bar.part, 0], ["control", bar.control_part, thick]]) {
        f.svg.append(element("rect", { class: name, x: left + shift, width: thick, y: y + height * (1 - part), height: height * part }));
      }
      if (place % every === 0) f.below(left + thick, bar.bound === "more" ? "more" : `≤ ${compact(+bar.bound)} ms`);
    });
  }).redraw();
}
