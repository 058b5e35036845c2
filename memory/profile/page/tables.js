'use strict';
// Cycles, arrays and findings as tables; two cycles side by side.

const MOST_ROWS = 200;

// Cycles of one workspace that follow each other and are alike, as one row.
function cycleRows(recording) {
  const {cycles, kindsOfCycles} = recording, rows = [], last = new Map();
  for (let i = 0; i < cycles.count; ++i) {
    const kind = cycles.kind[i], place = kindsOfCycles[kind].place;
    const previous = last.get(place);
    if (previous && previous.kind === kind) {
      previous.count += cycles.repeats[i];
      previous.last = i;
      previous.time += cycles.end[i] - cycles.begin[i];
      continue;
    }
    const row = {kind, place, first: i, last: i, count: cycles.repeats[i], time: cycles.end[i] - cycles.begin[i]};
    last.set(place, row);
    rows.push(row);
  }
  return rows;
}

function generations(recording, row) {
  const {cycles} = recording, first = cycles.generation[row.first];
  if (first === 0) return 'all';  // of another program: all it did is shown as one cycle
  const last = cycles.generation[row.last] + cycles.repeats[row.last] - 1;
  return first === last ? `${first.toLocaleString('en-US')}` : `${first.toLocaleString('en-US')}\u2013${last.toLocaleString('en-US')}`;
}

function number(text, bad = false) { return element('td', {class: bad ? 'number bad' : 'number'}, text); }

const CYCLE_HEADS = ['Workspace', 'Cycle', 'Cycles', 'Requests', 'Requested', 'Bound', 'Peak', 'Over bound', 'Outside', 'Missed', 'Leaked', 'Time each', ''];

function cyclesTable(recording, rows, chosen, compared, onChoose, onCompare) {
  const body = element('tbody');
  for (const row of rows.slice(0, MOST_ROWS)) {
    const kind = recording.kindsOfCycles[row.kind], requests = kind.requests.count;
    const line = element('tr', {class: row === chosen ? 'chosen' : row === compared ? 'compared' : null, tabindex: 0},
      element('td', {}, recording.strings[recording.places[row.place][0]].replace(/^workspace /, '')),
      number(generations(recording, row)), number(row.count.toLocaleString('en-US')), number(requests.toLocaleString('en-US')),
      number(bytesText(kind.requested)), number(bytesText(kind.bound)), number(bytesText(kind.peak)),
      number(kind.bound > 0 ? `${(100 * (kind.peak / kind.bound - 1)).toFixed(1)}\u00a0%` : ''),
      number(kind.outside.toLocaleString('en-US')), number(kind.misses.toLocaleString('en-US'), kind.misses > 0),
      number(kind.leaked.toLocaleString('en-US'), kind.leaked > 0), number(timeText(row.time / row.count)),
      element('td', {}, element('button', {type: 'button', class: 'small', 'aria-pressed': row === compared ? 'true' : 'false',
        onclick: (event) => { event.stopPropagation(); onCompare(row === compared ? null : row); }}, 'compare')));
    line.addEventListener('click', () => onChoose(row));
    line.addEventListener('keydown', (event) => { if (event.key === 'Enter' && event.target === line) onChoose(row); });
    body.append(line);
  }
  const table = element('table', {}, element('thead', {}, element('tr', {}, ...CYCLE_HEADS.map((text, i) =>
    element('th', {class: i === 0 || i === 12 ? null : 'number', scope: 'col'}, text)))), body);
  const note = rows.length > MOST_ROWS ? element('p', {class: 'hint'}, `The first ${MOST_ROWS} of ${countText(rows.length, 'row')}.`) : null;
  return element('div', {class: 'scroll'}, table, note);
}

// What differs between the requests of two kinds of cycle.
function comparison(recording, names, a, b, titleA, titleB, onSelect) {
  const heads = [['Requests', a.requests.count, b.requests.count, (n) => n.toLocaleString('en-US')],
                 ['Requested', a.requested, b.requested, bytesText], ['Bound', a.bound, b.bound, bytesText],
                 ['Peak', a.peak, b.peak, bytesText], ['Outside', a.outside, b.outside, (n) => n.toLocaleString('en-US')],
                 ['Missed', a.misses, b.misses, (n) => n.toLocaleString('en-US')],
                 ['Leaked', a.leaked, b.leaked, (n) => n.toLocaleString('en-US')], ['Time', a.duration, b.duration, (n) => timeText(n)]];
  const totals = element('table', {class: 'fit'}, element('thead', {}, element('tr', {}, element('th', {}, ''),
    element('th', {class: 'number'}, titleA), element('th', {class: 'number'}, titleB), element('th', {class: 'number'}, 'Change'))),
    element('tbody', {}, ...heads.map(([name, from, to, text]) => element('tr', {}, element('td', {}, name), number(text(from)),
      number(text(to)), number(to === from ? '\u2013' : (to > from ? '+' : '') + text(to - from).replace('-', '\u2212'))))));
  const rows = [], most = Math.max(a.requests.count, b.requests.count);
  let different = 0;
  for (let i = 0; i < most; ++i) {
    const inA = i < a.requests.count, inB = i < b.requests.count;
    const what = [];
    if (!inA || !inB) what.push(inA ? 'only in the first' : 'only in the second');
    else {
      if (a.requests.bytes[i] !== b.requests.bytes[i]) what.push(`size ${bytesText(a.requests.bytes[i])} \u2192 ${bytesText(b.requests.bytes[i])}`);
      const outA = a.requests.offset[i] < 0, outB = b.requests.offset[i] < 0;
      if (outA !== outB) what.push(outB ? 'pages \u2192 outside' : 'outside \u2192 pages');
      else if (a.requests.offset[i] !== b.requests.offset[i]) what.push('another address');
      if (a.requests.released[i] !== b.requests.released[i]) what.push('another lifetime');
    }
    if (what.length === 0) continue;
    if (++different > 50) continue;
    const of = inA ? a : b;
    rows.push(element('tr', {}, number((i + 1).toLocaleString('en-US')),
      element('td', {}, element('button', {type: 'button', class: 'link', onclick: () => onSelect(of, i)}, names.label(of.requests, i))),
      number(bytesText(of.requests.bytes[i])), element('td', {}, what.join(', '))));
  }
  const list = different === 0 ? element('p', {class: 'hint'}, 'Their requests are alike in size, place and lifetime.') :
    element('div', {class: 'scroll'}, element('p', {class: 'hint'}, different > 50 ? `${countText(different, 'request')} differ; the first 50:` : `${countText(different, 'request differs', 'requests differ')}:`),
      element('table', {}, element('thead', {}, element('tr', {}, ...['Request', 'Array', 'Size', 'What differs'].map((text, i) =>
        element('th', {class: i === 0 || i === 2 ? 'number' : null}, text)))), element('tbody', {}, ...rows)));
  return element('div', {class: 'comparison'}, totals, list);
}

const ORDERS = {
  size: {title: 'Size', of: (a, i) => a.bytes[i]},
  life: {title: 'Lives', of: (a, i, duration) => Math.min(a.died[i], duration) - a.born[i]},
  weight: {title: 'Size \u00d7 time', of: (a, i, duration) => a.bytes[i] * (Math.min(a.died[i], duration) - a.born[i])},
};

// The first rows, by `order`, of arrays of cycles and of others that match.
function arraysTable(recording, names, matches, order, accepts, onSelect, onOrder) {
  const found = [];
  let count = 0;
  const add = (arrays, kindNumber, duration) => {
    for (let i = 0; i < arrays.count; ++i) {
      if (!accepts(arrays, i) || (matches !== null && !matches(arrays, i))) continue;
      ++count;
      found.push({arrays, i, kindNumber, value: ORDERS[order].of(arrays, i, duration)});
    }
  };
  add(recording.arrays, -1, recording.duration);
  recording.kindsOfCycles.forEach((kind, n) => add(kind.requests, n, kind.duration));
  found.sort((a, b) => b.value - a.value || a.arrays.born[a.i] - b.arrays.born[b.i]);
  const body = element('tbody', {}, ...found.slice(0, MOST_ROWS).map(({arrays, i, kindNumber}) => {
    const duration = kindNumber < 0 ? recording.duration : recording.kindsOfCycles[kindNumber].duration;
    const life = Math.min(arrays.died[i], duration) - arrays.born[i];
    const line = element('tr', {tabindex: 0},
      element('td', {class: 'name'}, names.title(arrays, i)), element('td', {}, names.parts(arrays, i)[1]), number(bytesText(arrays.bytes[i])),
      number(arrays.died[i] === Infinity ? 'to the end' : timeText(life)), element('td', {}, names.owner(arrays, i)), element('td', {}, names.place(arrays, i)),
      element('td', {}, ...names.flags(arrays, i).map(([, text, bad]) => element('span', {class: bad ? 'flag bad' : 'flag'}, text))));
    line.addEventListener('click', () => onSelect(arrays, i, kindNumber));
    line.addEventListener('keydown', (event) => { if (event.key === 'Enter') onSelect(arrays, i, kindNumber); });
    return line;
  }));
  const head = (text, key, className) => element('th', {class: className, scope: 'col', 'aria-sort': key === order ? 'descending' : null},
    key === undefined ? text : element('button', {type: 'button', class: 'link', onclick: () => onOrder(key)}, text + (key === order ? ' \u2193' : '')));
  return element('div', {class: 'scroll'},
    element('p', {class: 'hint'}, count > MOST_ROWS ? `${countText(count, 'array')}; the first ${MOST_ROWS} by ${ORDERS[order].title.toLowerCase()}.` : `${countText(count, 'array')}.`),
    element('table', {}, element('thead', {}, element('tr', {}, head('Array'), head('Shape'), head('Size', 'size', 'number'),
      head('Lives', 'life', 'number'), head('Owner'), head('Where'), head(''))), body));
}

// Arrays that went wrong, by kind of finding: [title, text, arrays].
function findingsOf(recording) {
  const findings = {leaked: [], missed: [], outside: []};
  recording.kindsOfCycles.forEach((kind, kindNumber) => {
    const {requests} = kind;
    for (let i = 0; i < requests.count; ++i) {
      const flags = requests.flags[i];
      if ((flags & LEAKED) !== 0) findings.leaked.push({arrays: requests, i, kindNumber});
      if ((flags & MISSED) !== 0) findings.missed.push({arrays: requests, i, kindNumber});
      else if ((flags & OUTSIDE) !== 0) findings.outside.push({arrays: requests, i, kindNumber});
    }
  });
  const {arrays} = recording;
  for (let i = 0; i < arrays.count; ++i) if ((arrays.flags[i] & LEAKED) !== 0) findings.leaked.push({arrays, i, kindNumber: -1});
  return findings;
}
