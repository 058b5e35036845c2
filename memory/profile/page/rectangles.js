'use strict';
// A cycle as rectangles: its requests from left to right, or time, by address.

const BINS = 128;

// Where requests lie that are not in the pages: above them, each in the lowest gap.
function placeOutside(requests, top) {
  const places = Float64Array.from(requests.offset);
  const outside = [];
  for (let i = 0; i < requests.count; ++i) if (requests.offset[i] < 0) outside.push(i);
  let live = [], most = top, level = top;
  const first = outside.length <= 4000;  // more are put one above the other
  for (const i of outside) {
    live = live.filter((other) => requests.released[other] > i);
    let at = top;
    if (first) {
      live.sort((a, b) => places[a] - places[b]);
      for (const other of live) {
        if (places[other] >= at + requests.taken[i]) break;
        at = Math.max(at, places[other] + requests.taken[other]);
      }
    } else {
      if (live.length === 0) level = top;
      at = level;
      level += requests.taken[i];
    }
    places[i] = at;
    live.push(i);
    most = Math.max(most, at + requests.taken[i]);
  }
  return {places, most};
}

class Rectangles {
  constructor(canvas, handlers) {
    this.canvas = canvas;
    this.handlers = handlers;
    this.byTime = false;
    this.kind = null;
    this.selected = -1;
    this.hovered = -1;
    this.matches = null;
    canvas.addEventListener('mousemove', (event) => this.hover(event));
    canvas.addEventListener('mouseleave', () => this.setHovered(-1));
    canvas.addEventListener('pointerdown', (event) => this.pointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.pointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.pointerUp(event));
    canvas.addEventListener('dblclick', () => this.reset());
    canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(kind, layers) {
    this.layers = layers;
    if (kind !== this.kind) {
      this.kind = kind;
      this.selected = this.hovered = -1;
      if (kind !== null) this.layOut();
    }
    this.draw();
  }
  layOut() {
    const {requests} = this.kind;
    this.pages = 0;
    for (let i = 0; i < requests.count; ++i) {
      if (requests.offset[i] >= 0) this.pages = Math.max(this.pages, requests.offset[i] + requests.taken[i]);
    }
    Object.assign(this, placeOutside(requests, this.pages));
    this.reset(false);
  }
  reset(draws = true) {
    this.from = 0;
    this.to = this.extent();
    this.grid = null;
    if (draws) this.draw();
  }
  extent() { return Math.max(1, this.byTime ? this.kind.duration : this.kind.requests.count); }
  setByTime(byTime) {
    this.byTime = byTime;
    if (this.kind !== null) this.reset();
  }
  left(i) { return this.byTime ? this.kind.requests.born[i] : i; }
  right(i) {
    return this.byTime ? this.kind.requests.died[i] : Math.min(this.kind.requests.released[i], this.kind.requests.count);
  }

  area() {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    return {x: 68, y: 12, width: Math.max(10, width - 76), height: Math.max(10, height - 36)};
  }
  scaleX(value) { return this.box.x + (value - this.from) / (this.to - this.from) * this.box.width; }
  scaleY(bytes) { return this.box.y + this.box.height * (1 - bytes / this.high); }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (width === 0) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    if (this.kind === null) return;
    this.box = this.area();
    this.high = Math.max(1, this.most, this.kind.peak, this.kind.bound) * 1.05;
    this.grid = null;
    this.drawAxes(context);
    context.save();
    context.beginPath();
    context.rect(this.box.x, this.box.y, this.box.width, this.box.height);
    context.clip();
    this.drawRequests(context);
    context.restore();
    this.drawBounds(context);
    this.drawSelection(context);
  }

  drawAxes(context) {
    const {box} = this;
    context.font = '12px ' + themeColor('--font');
    context.fillStyle = themeColor('--muted');
    context.strokeStyle = themeColor('--grid');
    context.lineWidth = 1;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const bytes of byteTicks(this.high, 5)) {
      const y = Math.round(this.scaleY(bytes)) + 0.5;
      context.beginPath();
      context.moveTo(box.x, y);
      context.lineTo(box.x + box.width, y);
      context.stroke();
      context.fillText(tickText(bytesText(bytes)), box.x - 8, y);
    }
    context.textBaseline = 'top';
    const ticks = roundTicks(this.from, this.to, Math.max(2, box.width / 110));
    for (const value of ticks) {
      if (!this.byTime && value !== Math.round(value)) continue;
      const x = this.scaleX(value);
      context.textAlign = x < box.x + 20 ? 'left' : x > box.x + box.width - 40 ? 'right' : 'center';
      const text = this.byTime ? tickText(timeText(value, this.to - this.from)) : value.toLocaleString('en-US');
      context.fillText(text, x, box.y + box.height + 6);
    }
  }

  drawRequests(context) {
    const {requests} = this.kind, pixels = this.box.width / (this.to - this.from);
    const bad = themeColor('--bad');
    const gap = requests.count < 2000 ? 0.5 : 0;
    const layerOf = this.layers.preparedKind(this.kind).layers;
    const colors = this.layers.names.map((_, layer) => this.layers.color(layer));
    for (let i = 0; i < requests.count; ++i) {
      const left = this.left(i), right = this.right(i);
      if (right < this.from || left > this.to) continue;
      const x = this.scaleX(left), width = Math.max(1, (right - left) * pixels - gap);
      const y = this.scaleY(this.places[i] + requests.taken[i]);
      const height = Math.max(0.5, this.scaleY(this.places[i]) - y - gap);
      const layer = layerOf[i];
      const dim = this.matches !== null && !this.matches(requests, i);
      context.globalAlpha = dim ? 0.12 : (requests.flags[i] & OUTSIDE) !== 0 ? 0.55 : 0.9;
      context.fillStyle = layer >= 0 ? colors[layer] : themeColor('--muted');
      context.fillRect(x, y, width, height);
      if (height > 3 && width > 3 && (requests.flags[i] & (MISSED | LEAKED)) !== 0) {
        context.globalAlpha = dim ? 0.2 : 1;
        context.strokeStyle = bad;
        context.lineWidth = 1.5;
        context.setLineDash((requests.flags[i] & LEAKED) !== 0 ? [] : [4, 3]);
        context.strokeRect(x + 1, y + 1, width - 2, height - 2);
        context.setLineDash([]);
      }
      if (!dim && width > 90 && height > 15) this.drawName(context, i, x, y, width, height, layer >= 0 ? colors[layer] : '#888888');
    }
    context.globalAlpha = 1;
  }
  drawName(context, i, x, y, width, height, color) {
    const {requests} = this.kind;
    const left = Math.max(x, this.box.x), room = Math.min(x + width, this.box.x + this.box.width) - left - 12;
    if (room < 60) return;
    const text = this.handlers.nameOf(requests, i);
    context.globalAlpha = 1;
    context.fillStyle = readableOn(color);
    context.font = '11px ' + themeColor('--font');
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    context.fillText(text.length * 6 > room ? text.slice(0, Math.floor(room / 6) - 1) + '\u2026' : text, left + 6,
                     y + height / 2);
  }

  drawBounds(context) {
    const lines = [[this.kind.peak, 'peak', '--text', []], [this.kind.bound, 'bound', '--good', [6, 4]]];
    const near = Math.abs(this.scaleY(this.kind.peak) - this.scaleY(this.kind.bound)) < 15;
    context.font = '600 12px ' + themeColor('--font');
    for (const [bytes, name, color, dash] of lines) {
      const y = Math.round(this.scaleY(bytes)) + 0.5;
      context.strokeStyle = context.fillStyle = themeColor(color);
      context.lineWidth = 1.5;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(this.box.x, y);
      context.lineTo(this.box.x + this.box.width, y);
      context.stroke();
      context.setLineDash([]);
      context.textAlign = 'right';
      context.textBaseline = 'bottom';
      const text = near ? `peak ${bytesText(this.kind.peak)}, bound ${bytesText(this.kind.bound)}`
                        : `${name} ${bytesText(bytes)}`;
      if (near && name === 'bound') continue;
      const metrics = context.measureText(text);
      const x = this.box.x + this.box.width - 4, bottom = Math.max(y - 3, 13);
      context.fillStyle = themeColor('--surface');
      context.globalAlpha = 0.85;
      context.fillRect(x - metrics.width - 4, bottom - 14, metrics.width + 8, 15);
      context.globalAlpha = 1;
      context.fillStyle = themeColor(color);
      context.fillText(text, x, bottom);
    }
  }

  drawSelection(context) {
    for (const [i, color, width] of [[this.hovered, '--text', 1.5], [this.selected, '--accent', 2.5]]) {
      if (i < 0 || i >= this.kind.requests.count) continue;
      const x = this.scaleX(this.left(i)), y = this.scaleY(this.places[i] + this.kind.requests.taken[i]);
      context.strokeStyle = themeColor(color);
      context.lineWidth = width;
      context.strokeRect(x, y, Math.max(2, this.scaleX(this.right(i)) - x), Math.max(2, this.scaleY(this.places[i]) - y));
    }
  }

  // Which requests are in which part of the picture.
  index() {
    if (this.grid !== null) return this.grid;
    const {requests} = this.kind;
    this.grid = Array.from({length: BINS}, () => []);
    const bin = (value) => Math.max(0, Math.min(BINS - 1, Math.floor((value - this.from) / (this.to - this.from) * BINS)));
    for (let i = 0; i < requests.count; ++i) {
      if (this.right(i) < this.from || this.left(i) > this.to) continue;
      for (let b = bin(this.left(i)); b <= bin(this.right(i)); ++b) this.grid[b].push(i);
    }
    return this.grid;
  }
  at(event) {
    if (this.kind === null || !this.box) return -1;
    const area = this.canvas.getBoundingClientRect();
    const x = event.clientX - area.left, y = event.clientY - area.top;
    const value = this.from + (x - this.box.x) / this.box.width * (this.to - this.from);
    const bytes = (1 - (y - this.box.y) / this.box.height) * this.high;
    const slackX = (this.to - this.from) / this.box.width * 2, slackY = this.high / this.box.height;
    const b = Math.floor((value - this.from) / (this.to - this.from) * BINS);
    if (b < 0 || b >= BINS) return -1;
    const {requests} = this.kind;
    for (const slack of [0, 1]) {
      for (const i of this.index()[b]) {
        if (value >= this.left(i) - slack * slackX && value <= this.right(i) + slack * slackX &&
            bytes >= this.places[i] - slack * slackY && bytes <= this.places[i] + requests.taken[i] + slack * slackY) {
          return i;
        }
      }
    }
    return -1;
  }
  hover(event) {
    if (this.dragFrom !== undefined) return;
    this.setHovered(this.at(event), event);
  }
  setHovered(i, event = null) {
    if (i !== this.hovered) {
      this.hovered = i;
      this.draw();
    }
    this.handlers.onHover(i, event);
  }
  select(i) {
    this.selected = i;
    this.draw();
    this.handlers.onSelect(i);
  }

  pointerDown(event) {
    this.canvas.focus({preventScroll: true});
    this.dragFrom = event.clientX;
  }
  pointerMove(event) {
    if (this.dragFrom === undefined || event.pointerType === 'touch' || Math.abs(event.clientX - this.dragFrom) < 4) return;
    this.draw();
    const context = this.canvas.getContext('2d'), left = this.canvas.getBoundingClientRect().left;
    context.fillStyle = themeColor('--chosen');
    context.fillRect(this.dragFrom - left, this.box.y, event.clientX - this.dragFrom, this.box.height);
  }
  pointerUp(event) {
    if (this.dragFrom === undefined) return;
    const from = this.dragFrom;
    this.dragFrom = undefined;
    if (event.pointerType === 'touch' || Math.abs(event.clientX - from) < 4) return this.select(this.at(event));
    const left = this.canvas.getBoundingClientRect().left;
    const value = (x) => this.from + (x - left - this.box.x) / this.box.width * (this.to - this.from);
    this.span(value(Math.min(from, event.clientX)), value(Math.max(from, event.clientX)));
  }
  span(from, to) {
    const least = this.byTime ? 100 : 2, length = Math.min(this.extent(), Math.max(least, to - from));
    this.from = Math.max(0, Math.min(from, this.extent() - length));
    this.to = this.from + length;
    this.draw();
  }
  zoom(factor) {
    const middle = this.selected >= 0 ? (this.left(this.selected) + this.right(this.selected)) / 2 : (this.from + this.to) / 2;
    const half = (this.to - this.from) * factor / 2;
    this.span(middle - half, middle + half);
  }

  key(event) {
    if (this.kind === null) return;
    const count = this.kind.requests.count, by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10}[event.key];
    if (by !== undefined) this.select(Math.max(0, Math.min(count - 1, this.selected + by)));
    else if (event.key === 'Home') this.select(0);
    else if (event.key === 'End') this.select(count - 1);
    else if (event.key === '+' || event.key === '=') this.zoom(0.5);
    else if (event.key === '-') this.zoom(2);
    else if (event.key === '0') this.reset();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
