// The forecast of a topic: stacked bars over a range that is moved by dragging and zoomed by the wheel.

import { Frame, compact, element, legend, linearTicks, showNumber, showTime } from "./charts.js";

const STATUSES = ["available", "processing", "waiting"];
const LAST = Date.UTC(9999, 11, 31);
const SHORTEST_MS = 100;
const AGAIN_MS = 300;
const OLD_MS = 2000;

export class Forecast {
  constructor(section) {
    this.section = section;
    this.url = section.dataset.forecast;
    this.host = section.querySelector("[data-chart]");
    this.hover = section.querySelector("[data-role=hover]");
    this.age = section.querySelector("[data-role=age]");
    this.rows = section.querySelector("[data-role=table] tbody");
    // The clock of the node, since this machine's may differ.
    this.ahead = Number(section.dataset.now) - Date.now();
    this.from = this.now();
    this.to = this.from + 3600e3;
    this.data = null;
    this.cursor = null;
    this.asked = 0;
    this.ranges = [...section.querySelectorAll("[data-span]")];
    this.wider = this.ranges.filter((each) => Number(each.dataset.span) > this.to - this.from);
    legend(this.host, STATUSES.map((each) => [each, each]));
    this.frame = new Frame(this.host, (frame) => this.draw(frame));
    this.listen();
    this.load();
  }

  now() { return Date.now() + this.ahead; }

  // Ranges

  show(from, to) {
    const span = Math.max(SHORTEST_MS, Math.min(to - from, LAST));
    this.from = Math.max(0, Math.min(Math.round(from), LAST - span));
    this.to = Math.round(this.from + span);
    this.cursor = null;
    // The counts of a bar that was shown are none of this range.
    this.hover.textContent = `${showTime(this.from)} to ${showTime(this.to)}`;
    this.frame.redraw();
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.load(), 120);
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.press(null);
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  move(part) {
    this.press(null);
    const by = (this.to - this.from) * part;
    this.show(this.from + by, this.to + by);
  }

  press(pressed) {
    this.wider = [];
    this.mark(pressed);
  }

  mark(pressed) {
    for (const each of this.ranges) each.setAttribute("aria-pressed", String(each === pressed));
  }

  choose(button) {
    this.mark(button);
    this.show(this.now(), this.now() + Number(button.dataset.span));
  }

  // Until a range is chosen, an empty one gives way to the next wider one, if messages wait at all.
  widen() {
    const waits = document.querySelector("[data-count=waiting]")?.textContent !== "0";
    const isEmpty = !STATUSES.some((each) => this.data[each].some(Boolean));
    if (isEmpty && waits && this.wider.length) this.choose(this.wider.shift());
    else this.wider = [];
  }

  listen() {
    for (const button of this.ranges) {
      button.addEventListener("click", () => {
        this.press(button);
        this.choose(button);
      });
    }
    const moves = { earlier: () => this.move(-0.5), later: () => this.move(0.5), in: () => this.zoom(0.5), out: () => this.zoom(2) };
    for (const button of this.section.querySelectorAll("[data-move]")) button.addEventListener("click", moves[button.dataset.move]);
    const keys = {
      ArrowLeft: () => this.point((this.cursor ?? 1) - 1), ArrowRight: () => this.point((this.cursor ?? -1) + 1),
      PageUp: moves.earlier, PageDown: moves.later, "+": moves.in, "=": moves.in, "-": moves.out,
    };
    this.host.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    this.host.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
    }, { passive: false });
    this.drag();
  }

  // One finger or the mouse moves the range, two fingers zoom it.
  drag() {
    const pointers = new Map();
    this.host.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event.offsetX);
      this.host.setPointerCapture(event.pointerId);
      this.point(this.place(event));
    });
    for (const end of ["pointerup", "pointercancel"]) this.host.addEventListener(end, (event) => pointers.delete(event.pointerId));
    this.host.addEventListener("pointerleave", () => { if (!pointers.size) this.point(null); });
    this.host.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (before === undefined) return this.point(this.place(event));
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      pointers.set(event.pointerId, event.offsetX);
      if (other === undefined) {
        if (before !== event.offsetX) this.move(((before - event.offsetX) / this.frame.inner.width));
      } else if (Math.abs(event.offsetX - other) > 8) {
        this.zoom(Math.abs(before - other) / Math.abs(event.offsetX - other));
      }
    });
  }

  at(event) {
    const { x, width } = this.frame.inner;
    return this.from + ((event.offsetX - x) / width) * (this.to - this.from);
  }

  place(event) {
    if (!this.data) return null;
    const place = Math.floor((this.at(event) - this.data.starts[0]) / this.data.step);
    return place >= 0 && place < this.data.starts.length ? place : null;
  }

  point(place) {
    if (!this.data) return;
    this.cursor = place === null ? null : Math.max(0, Math.min(place, this.data.starts.length - 1));
    this.say();
    this.frame.redraw();
  }

  say() {
    if (this.cursor === null || !this.data) return;
    const { starts, step } = this.data;
    const start = starts[this.cursor];
    const parts = STATUSES.map((each) => [this.data[each][this.cursor], each]).filter(([count]) => count);
    const words = parts.map(([count, status]) => `${showNumber(count)} ${status}`).join(", ") || "none";
    const said = `${showTime(start, step)} to ${showTime(start + step, step)}: ${words}`;
    if (this.hover.textContent !== said) this.hover.textContent = said;
  }

  // Data

  async load() {
    clearTimeout(this.soon);
    const asked = ++this.asked;
    const steps = Math.max(20, Math.min(200, Math.floor(this.frame.inner.width / 5)));
    let found;
    try {
      const answer = await fetch(`${this.url}?from=${this.from}&to=${this.to}&steps=${steps}`);
      if (!answer.ok) throw new Error(String(answer.status));
      found = await answer.json();
    } catch (error) {
      if (asked !== this.asked) return;
      this.age.textContent = "The forecast could not be read.";
      this.soon = setTimeout(() => this.again(), OLD_MS);
      return;
    }
    if (asked !== this.asked) return;
    if (found.counting) {
      this.age.textContent = "Counting…";
      this.soon = setTimeout(() => this.load(), AGAIN_MS);
      if (!found.starts) return;
    }
    this.data = found;
    const isOld = found.age_ms > OLD_MS;
    if (!found.counting) {
      this.age.textContent = isOld ? `Counted ${Math.round(found.age_ms / 1000)} s ago.` : "";
      if (isOld) this.soon = setTimeout(() => this.again(), OLD_MS);
      this.host.dataset.loaded = `${found.from}-${found.to}`;
    }
    this.fill();
    this.point(this.cursor);
    this.widen();
  }

  // The node may be counting anew.
  again() {
    if (document.hidden) this.soon = setTimeout(() => this.again(), OLD_MS);
    else this.load();
  }

  fill() {
    const { starts, step } = this.data;
    this.rows.replaceChildren(...starts.flatMap((start, place) => {
      const counts = STATUSES.map((each) => this.data[each][place]);
      if (!counts.some(Boolean)) return [];
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.textContent = showTime(start, step);
      row.append(head, ...counts.reverse().map((count) => {
        const cell = document.createElement("td");
        cell.className = "n";
        cell.textContent = showNumber(count);
        return cell;
      }));
      return [row];
    }));
  }

  draw(frame) {
    const { x, y, width, height } = frame.inner;
    const along = (at) => x + (width * (at - this.from)) / (this.to - this.from);
    const data = this.data;
    const totals = data ? data.starts.map((_, place) => STATUSES.reduce((sum, each) => sum + data[each][place], 0)) : [];
    const ticks = linearTicks(Math.max(1, ...totals)).filter(Number.isInteger);
    const top = ticks.at(-1);
    for (const tick of ticks) frame.horizontal(y + height * (1 - tick / top), compact(tick));
    frame.times(this.from, this.to);
    if (!data) return;
    data.starts.forEach((start, place) => {
      const left = Math.max(x, along(start)), right = Math.min(x + width, along(Math.min(start + data.step, data.to)));
      if (right <= left) return;
      let bottom = y + height;
      for (const status of STATUSES) {
        const tall = (height * data[status][place]) / top;
        if (!tall) continue;
        bottom -= tall;
        frame.svg.append(element("rect", { class: status, x: left, width: Math.max(1, right - left - 1), y: bottom, height: tall }));
      }
      if (place === this.cursor) {
        const middle = (left + right) / 2;
        frame.svg.append(element("line", { class: "cursor", x1: middle, x2: middle, y1: y, y2: y + height }));
      }
    });
    if (!totals.some(Boolean)) frame.empty("No message is due in this range.");
  }
}
