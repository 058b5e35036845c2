'use strict';
// What was recorded, from the page's own data: profile_columns.cc says how it is written. Times are nanoseconds since
// the recording began, whole numbers.

const OUTSIDE = 1, MISSED = 2, LEAKED = 4, AT_START = 8, IMPORTED = 16;

class Columns {
  constructor(base64) {
    const text = atob(base64);
    this.bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) this.bytes[i] = text.charCodeAt(i);
    this.at = 0;
  }
  number() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
  signed() {
    const value = this.number();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}

function emptyColumns(count, fields) {
  const columns = {count};
  for (const [name, type] of Object.entries(fields)) columns[name] = new type(count);
  return columns;
}

const ARRAY_FIELDS = {
  born: Float64Array, died: Float64Array, bytes: Float64Array, taken: Float64Array, offset: Float64Array,
  name: Uint32Array, site: Uint32Array, owner: Uint32Array, place: Uint32Array, kind: Uint8Array, flags: Uint8Array,
  released: Int32Array,
};

function readSteps(columns, count) {
  const steps = emptyColumns(count, {time: Float64Array, bytes: Float64Array, device: Uint16Array, owner: Uint32Array,
                                     kind: Uint8Array, atStart: Uint8Array});
  let time = 0;
  for (let i = 0; i < count; ++i) {
    steps.time[i] = time += columns.number();
    steps.bytes[i] = columns.signed();
    steps.device[i] = columns.number();
    steps.owner[i] = columns.number();
    const kind = columns.number();
    steps.kind[i] = kind >> 1;
    steps.atStart[i] = kind & 1;
  }
  return steps;
}

function readArrays(columns, count) {
  const arrays = emptyColumns(count, ARRAY_FIELDS);
  let born = 0;
  for (let i = 0; i < count; ++i) {
    arrays.born[i] = born += columns.signed();
    const life = columns.number();
    arrays.died[i] = life === 0 ? Infinity : born + life - 1;
    arrays.bytes[i] = arrays.taken[i] = columns.number();
    arrays.offset[i] = columns.number() - 1;
    arrays.name[i] = columns.number();
    arrays.site[i] = columns.number();
    arrays.owner[i] = columns.number();
    arrays.place[i] = columns.number();
    arrays.kind[i] = columns.number();
    arrays.flags[i] = columns.number();
  }
  return arrays;
}

// The requests of a kind of cycle.
function readCycleKind(columns, [place, owner, count, duration, bound, peak, requested, misses, outside, leaked]) {
  const requests = emptyColumns(count, ARRAY_FIELDS);
  let born = 0;
  for (let i = 0; i < count; ++i) {
    requests.born[i] = born += columns.signed();
    requests.died[i] = born + columns.number();
    requests.released[i] = i + columns.signed();
    requests.bytes[i] = columns.number();
    requests.taken[i] = requests.bytes[i] + columns.number();
    requests.offset[i] = columns.number() - 1;
    requests.name[i] = columns.number();
    requests.site[i] = columns.number();
    requests.owner[i] = columns.number();
    requests.flags[i] = columns.number();
    requests.place[i] = place;
  }
  return {place, owner, duration, bound, peak, requested, misses, outside, leaked, requests};
}

function readRecording(headerText, columnsText) {
  const recording = JSON.parse(headerText);
  const columns = new Columns(columnsText);
  recording.steps = readSteps(columns, recording.steps);
  recording.arrays = readArrays(columns, recording.arrays);
  recording.kindsOfCycles = recording.cycle_kinds.map((numbers) => readCycleKind(columns, numbers));
  const count = recording.cycles;
  const cycles = emptyColumns(count, {kind: Uint32Array, repeats: Uint32Array, generation: Float64Array,
                                      begin: Float64Array, end: Float64Array});
  let generation = 0, begin = 0;
  for (let i = 0; i < count; ++i) {
    cycles.kind[i] = columns.number();
    cycles.repeats[i] = columns.number();
    cycles.generation[i] = generation += columns.signed();
    cycles.begin[i] = begin += columns.signed();
    cycles.end[i] = begin + columns.number();
  }
  recording.cycles = cycles;
  recording.duration = Math.max(1, recording.duration);
  return recording;
}
