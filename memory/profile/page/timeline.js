'use strict';
// Bytes over time in layers, from steps of the ledger and the requests of cycles.
//
// A span of time is cut into columns. Of each, the moment at which all layers together were highest is shown, so that
// a peak is seen however far one is zoomed out. Cycles are expanded into requests where few enough are in view, and
// count by the moment of their own peak otherwise.

const MOST_LAYERS = 9;
const MOST_EXPANDED = 40000;  // requests in view
const UNREFERENCED = 'unreferenced';

// What a layer is by, from kind, owner and place of bytes.
const GROUPINGS = {
  kind: {title: 'Kind', of: (r, kind) => r.kinds[kind]},
  owner: {title: 'Owner', of: (r, kind, owner) => r.strings[owner].split(' #')[0] || '(unknown)'},
  operator: {title: 'Operator', of: (r, kind, owner, name) => name !== undefined ? name || '(no operator)' : r.strings[owner].replace(/^process #/, '').replace(' #', ' ') || r.kinds[kind]},
  tag: {title: 'Tag', of: (r, kind, owner) => r.strings[owner].split(' #')[1] || '(no tag)'},
};

class Layers {
  // `withFree`: pages that no array uses as well.
  constructor(recording, device, grouping, withFree) {
    this.recording = recording;
    this.device = device;
    this.grouping = GROUPINGS[grouping];
    this.withFree = withFree;
    this.free = recording.kinds.indexOf(UNREFERENCED);
    this.allocated = Math.max(0, recording.kinds.indexOf('allocated'));
    this.rawNames = [];
    this.rawNumbers = new Map();
    this.cache = new Map();
    this.layerOfRaw = null;
    this.prepare();
  }

  // `operator`: of an array of a cycle.
  raw(kind, owner, operator) {
    const key = operator === undefined ? kind * 4294967296 + owner : `${owner} ${operator}`;
    let raw = this.cache.get(key);
    if (raw === undefined) {
      const name = kind === this.free ? '\u0000free' : this.grouping.of(this.recording, kind, owner, operator);
      raw = this.rawNumbers.get(name);
      if (raw === undefined) {
        raw = this.rawNames.length;
        this.rawNames.push(name);
        this.rawNumbers.set(name, raw);
      }
      this.cache.set(key, raw);
    }
    return raw;
  }
  layer(kind, owner) { return this.layerOfRaw[this.raw(kind, owner)]; }
  rawOfRequest(requests, i) { return this.raw(this.allocated, requests.owner[i], this.recording.strings[requests.name[i]].split(': ')[0]); }
  onDevice(kindOfCycle) { return this.recording.places[kindOfCycle.place][1] === this.device; }

  // Which layers there are: the largest, by the most each ever had.
  prepare() {
    const {recording} = this, {steps} = recording;
    const now = [], most = [];
    for (let i = 0; i < steps.count; ++i) {
      if (steps.device[i] !== this.device) continue;
      const raw = this.raw(steps.kind[i], steps.owner[i]);
      now[raw] = (now[raw] || 0) + steps.bytes[i];
      most[raw] = Math.max(most[raw] || 0, now[raw]);
    }
    for (const kind of recording.kindsOfCycles) {
      if (!this.onDevice(kind)) continue;
      const sums = new Map();
      const {requests} = kind;
      for (let i = 0; i < requests.count; ++i) {
        const raw = this.rawOfRequest(requests, i);
        sums.set(raw, (sums.get(raw) || 0) + requests.taken[i]);
      }
      let all = 0;
      for (const sum of sums.values()) all += sum;
      for (const [raw, sum] of sums) most[raw] = Math.max(most[raw] || 0, sum * kind.bound / Math.max(1, all));
    }
    const free = this.rawNumbers.get('\u0000free');
    const order = this.rawNames.map((_, raw) => raw).filter((raw) => raw !== free && (most[raw] || 0) > 0);
    order.sort((a, b) => most[b] - most[a]);
    const kept = order.length > MOST_LAYERS + 1 ? order.slice(0, MOST_LAYERS) : order;
    this.names = kept.map((raw) => this.rawNames[raw]);
    this.layerOfRaw = new Int32Array(this.rawNames.length).fill(-1);
    kept.forEach((raw, layer) => { this.layerOfRaw[raw] = layer; });
    if (kept.length < order.length) {
      const rest = this.names.push(`${order.length - kept.length} others`) - 1;
      for (const raw of order.slice(MOST_LAYERS)) this.layerOfRaw[raw] = rest;
    }
    this.freeLayer = -1;
    if (free !== undefined && this.withFree) {
      this.freeLayer = this.names.push('pages not in use') - 1;
      this.layerOfRaw[free] = this.freeLayer;
    }
    this.layerOfStep = new Int32Array(steps.count);
    for (let i = 0; i < steps.count; ++i) {
      this.layerOfStep[i] = steps.device[i] === this.device ? this.layer(steps.kind[i], steps.owner[i]) : -2;
    }
    this.colors = this.names.map((_, layer) => [layer, layer === this.freeLayer]);
    for (const kind of recording.kindsOfCycles) kind.prepared = null;
  }

  color(layer) { return layer < 0 ? themeColor('--muted') : layerColor(...this.colors[layer]); }

  // The changes of a kind of cycle in order, and what its layers have when it is highest.
  preparedKind(kind) {
    if (kind.prepared !== null) return kind.prepared;
    const {requests} = kind, count = requests.count;
    const order = new Uint32Array(2 * count);  // request, then request + count for its end
    for (let i = 0; i < 2 * count; ++i) order[i] = i;
    const timeOf = (e) => e < count ? requests.born[e] : requests.died[e - count];
    order.sort((a, b) => timeOf(a) - timeOf(b) || b - a);  // ends before beginnings
    const times = Float64Array.from(order, timeOf);
    const layers = new Int32Array(count);
    for (let i = 0; i < count; ++i) layers[i] = this.layerOfRaw[this.rawOfRequest(requests, i)];
    const now = new Float64Array(this.names.length), peak = new Float64Array(this.names.length);
    let total = 0, most = -1;
    for (const e of order) {
      const request = e < count ? e : e - count;
      const bytes = e < count ? requests.taken[request] : -requests.taken[request];
      total += bytes;
      if (layers[request] >= 0) now[layers[request]] += bytes;
      if (total > most) {
        most = total;
        peak.set(now);
      }
    }
    if (this.freeLayer >= 0) peak[this.freeLayer] = -Math.max(0, most);
    return kind.prepared = {order, times, layers, peak};
  }

  // Rows of [time, ...layers] for `columns` columns of [from, to].
  view(from, to, columns) {
    const {steps} = this.recording;
    const now = new Float64Array(this.names.length);
    const sweep = new Sweep(now, from, to, columns);
    const streams = this.streams(from, to);
    let step = 0;
    for (;;) {
      // The next change of all streams and steps.
      while (step < steps.count && this.layerOfStep[step] < 0) ++step;
      let next = step < steps.count ? steps.time[step] : Infinity, of = null;
      for (const stream of streams) {
        if (stream.time < next) {
          next = stream.time;
          of = stream;
        }
      }
      if (next > to || next === Infinity) break;
      sweep.reach(next);
      if (of === null) {
        now[this.layerOfStep[step]] += steps.bytes[step];
        ++step;
      } else {
        of.apply(now);
      }
    }
    return sweep.finish();
  }

  // One for each place: the changes of its cycles that reach into [from, to].
  streams(from, to) {
    const {cycles, kindsOfCycles} = this.recording;
    let requests = 0;
    const byPlace = new Map();
    for (let i = 0; i < cycles.count; ++i) {
      if (cycles.begin[i] > to || cycles.end[i] < from) continue;
      const kind = kindsOfCycles[cycles.kind[i]];
      if (!this.onDevice(kind)) continue;
      requests += kind.requests.count * cycles.repeats[i];
      if (!byPlace.has(kind.place)) byPlace.set(kind.place, []);
      byPlace.get(kind.place).push(i);
    }
    const expand = requests <= MOST_EXPANDED;
    return [...byPlace.values()].map((list) => new CycleStream(this, list, expand));
  }
}

// The changes of one workspace's cycles, in order.
class CycleStream {
  constructor(layers, list, expand) {
    Object.assign(this, {layers, list, expand, at: -1, repeat: 0, event: 0, time: 0});
    this.nextCycle();
  }
  nextCycle() {
    const {cycles, kindsOfCycles} = this.layers.recording;
    if (this.at >= 0 && this.expand && ++this.repeat < cycles.repeats[this.list[this.at]]) {
      // Alike cycles that are one entry, spaced evenly.
    } else {
      this.repeat = 0;
      if (++this.at >= this.list.length) {
        this.time = Infinity;
        return;
      }
    }
    const cycle = this.list[this.at];
    this.kind = kindsOfCycles[cycles.kind[cycle]];
    this.prepared = this.layers.preparedKind(this.kind);
    const count = this.expand ? cycles.repeats[cycle] : 1;
    const length = (cycles.end[cycle] - cycles.begin[cycle]) / count;
    this.begin = cycles.begin[cycle] + this.repeat * length;
    this.length = length;
    this.scale = this.kind.duration > 0 ? length / this.kind.duration : 0;
    this.event = 0;
    this.setTime();
  }
  setTime() {
    if (!this.expand) {
      if (this.event >= 2) return this.nextCycle();
      this.time = this.event === 0 ? this.begin : this.begin + this.length;
      return;
    }
    if (this.event >= this.prepared.order.length) return this.nextCycle();
    this.time = this.begin + this.prepared.times[this.event] * this.scale;
  }
  apply(now) {
    const {order, layers, peak} = this.prepared;
    if (this.expand) {
      const count = this.kind.requests.count, e = order[this.event];
      const request = e < count ? e : e - count;
      const bytes = e < count ? this.kind.requests.taken[request] : -this.kind.requests.taken[request];
      if (layers[request] >= 0) now[layers[request]] += bytes;
      if (this.layers.freeLayer >= 0) now[this.layers.freeLayer] -= bytes;
    } else {
      const sign = this.event === 0 ? 1 : -1;
      for (let layer = 0; layer < peak.length; ++layer) now[layer] += sign * peak[layer];
    }
    ++this.event;
    this.setTime();
  }
}

// Of each column the moment at which most was in all layers.
class Sweep {
  constructor(now, from, to, columns) {
    Object.assign(this, {now, from, to, columns, column: -1, rows: []});
    this.width = (to - from) / columns;
    this.most = -1;
    this.best = new Float64Array(now.length);
  }
  total() {
    let total = 0;
    for (const bytes of this.now) total += bytes;
    return total;
  }
  keep() {
    const total = this.total();
    if (total > this.most) {
      this.most = total;
      this.best.set(this.now);
    }
  }
  // What is now has held since the last change, and holds until `time`.
  reach(time) {
    if (time <= this.from) return;
    if (this.column < 0) this.begin(0);
    else this.keep();
    const column = Math.min(this.columns - 1, Math.floor((time - this.from) / this.width));
    if (column <= this.column) return;
    this.push();
    if (column > this.column + 1) {  // nothing changed between the two
      this.begin(this.column + 1);
      this.push();
    }
    this.begin(column);
  }
  begin(column) {
    this.column = column;
    this.best.set(this.now);
    this.most = this.total();
  }
  push() { this.rows.push([this.from + this.column * this.width, ...this.best.map((bytes) => Math.max(0, bytes))]); }
  finish() {
    this.reach(this.to);
    this.push();
    this.rows.push([this.to, ...this.now.map((bytes) => Math.max(0, bytes))]);
    return this.rows;
  }
}
