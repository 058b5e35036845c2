'use strict';
// Puts the page together: what is chosen, what shows it, and the keys.

class App {
  constructor(recording) {
    this.recording = recording;
    this.names = new Names(recording);
    this.tip = new Tip(byId('tip'));
    this.device = Math.max(0, recording.device_peaks.indexOf(Math.max(...recording.device_peaks)));
    const hasOperators = recording.kindsOfCycles.some((kind) => kind.requests.name.some((name) => name !== 0));
    this.grouping = hasOperators ? 'operator' : recording.kindsOfCycles.length > 0 ? 'tag' : 'kind';
    this.withFree = false;
    this.order = 'size';
    this.tab = 'cycles';
    this.matches = null;
    this.rows = cycleRows(recording);
    this.chosen = null;
    this.compared = null;
    this.picked = {arrays: null, i: -1, kind: null};
    this.curve = new Curve(byId('curve'), recording, {
      onSpan: () => this.showSpan(), onHover: (time, event) => this.hoverTime(time, event)});
    const handlers = (canvas) => ({nameOf: (arrays, i) => this.names.label(arrays, i),
      onHover: (i, event) => this.hoverArray(canvas(), i, event), onSelect: (i) => this.pick(canvas().kind.requests, i, canvas().kind)});
    this.rectangles = new Rectangles(byId('cycle'), handlers(() => this.rectangles));
    this.second = new Rectangles(byId('second'), handlers(() => this.second));
    this.findings = findingsOf(recording);
    this.curve.marks = this.marks();
    this.build();
  }

  // ---- what stands once --------------------------------------------------------------------
  build() {
    const {recording} = this;
    byId('title').textContent = recording.title;
    byId('facts').textContent = [recording.subtitle, recording.began, timeText(recording.duration),
      ...this.countsText()].filter((t) => t).join('  \u00b7  ');
    this.segments(byId('devices'), recording.devices.map((name, i) => [i, name, `${recording.tiers[i]}, peak ${bytesText(recording.device_peaks[i] || 0)}`]),
      () => this.device, (device) => { this.device = device; this.showLayers(); });
    byId('devices').hidden = recording.devices.length < 2;
    this.segments(byId('groupings'), Object.entries(GROUPINGS).map(([key, {title}]) => [key, title]),
      () => this.grouping, (grouping) => { this.grouping = grouping; this.showLayers(); });
    this.segments(byId('axis'), [[false, 'Requests'], [true, 'Time']], () => this.rectangles.byTime,
      (byTime) => { this.rectangles.setByTime(byTime); this.second.setByTime(byTime); });
    byId('free').addEventListener('change', (event) => { this.withFree = event.target.checked; this.showLayers(); });
    byId('search').addEventListener('input', (event) => this.search(event.target.value));
    for (const [id, action] of [['zoom-in', () => this.curve.zoom(0.5)], ['zoom-out', () => this.curve.zoom(2)], ['zoom-all', () => this.curve.reset()],
      ['cycle-in', () => this.both((r) => r.zoom(0.5))], ['cycle-out', () => this.both((r) => r.zoom(2))], ['cycle-all', () => this.both((r) => r.reset())]]) {
      byId(id).addEventListener('click', action);
    }
    byId('help').addEventListener('click', () => byId('keys').showModal());
    let pressedAt = 0;  // a click, not the end of a drag
    byId('curve').addEventListener('pointerdown', (event) => { pressedAt = event.clientX; }, true);
    byId('curve').addEventListener('click', (event) => { if (Math.abs(event.clientX - pressedAt) < 4) this.chooseAt(this.curve.timeAt(event)); });
    this.tabs = this.tabList();
    document.addEventListener('keydown', (event) => this.key(event));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.showLayers());
    new ResizeObserver(() => { if (this.curve.graph) this.curve.draw(); }).observe(byId('curve'));
    this.chosen = this.rowToBegin();
    const hasCycles = this.rows.length > 0;
    byId('cycle-section').hidden = !hasCycles;
    if (this.rows.some((row) => generations(recording, row) === 'all')) byId('cycle-heading').textContent = 'Allocations';
    if (!hasCycles) this.tab = 'arrays';
    showDetails(byId('details'), this.names, null, -1);
    this.showLayers();
    this.showTab();
  }

  countsText() {
    const {recording, rows} = this;
    if (rows.some((row) => recording.cycles.generation[row.first] === 0)) {
      return [countText(recording.kindsOfCycles.reduce((sum, kind) => sum + kind.requests.count, 0), 'allocation')];
    }
    if (rows.length === 0) return [countText(recording.arrays.count, 'array')];
    return [countText(rows.reduce((sum, row) => sum + row.count, 0), 'cycle'), `${countText(recording.arrays.count, 'array')} outside of them`];
  }

  both(action) {
    for (const rectangles of [this.rectangles, this.second]) if (rectangles.kind !== null) action(rectangles);
  }

  // The longest run: what a program does most of the time.
  rowToBegin() {
    return this.rows.reduce((best, row) => best === null || row.time > best.time ? row : best, null);
  }

  segments(host, choices, current, choose) {
    const buttons = choices.map(([value, text, title]) => element('button', {type: 'button', title, onclick: () => {
      choose(value);
      mark();
    }}, text));
    const mark = () => choices.forEach(([value], i) => buttons[i].setAttribute('aria-pressed', value === current() ? 'true' : 'false'));
    host.replaceChildren(...buttons);
    mark();
  }

  tabList() {
    const {findings, recording} = this;
    const bad = findings.leaked.length + findings.missed.length;
    const tabs = [['cycles', 'Cycles', this.rows.length], ['arrays', 'Arrays', null], ['findings', 'Findings', bad]];
    if (recording.notes.length > 0) tabs.push(['notes', 'Notes', recording.notes.length]);
    const buttons = tabs.map(([key, title, count]) => element('button', {type: 'button', role: 'tab', id: `tab-${key}`, 'aria-controls': 'table',
      onclick: () => { this.tab = key; this.showTab(); }}, title, count === null ? null : element('span', {class: key === 'findings' && bad > 0 ? 'count bad' : 'count'}, count.toLocaleString('en-US'))));
    byId('tabs').replaceChildren(...buttons);
    return tabs.map(([key], i) => [key, buttons[i]]);
  }

  marks() {
    const {cycles, kindsOfCycles} = this.recording, marks = [];
    for (let i = 0; i < cycles.count; ++i) {
      const kind = kindsOfCycles[cycles.kind[i]];
      if (kind.leaked + kind.misses > 0) marks.push({time: cycles.begin[i]});
    }
    return marks;
  }

  // ---- what changes ------------------------------------------------------------------------
  showLayers() {
    this.layers = new Layers(this.recording, this.device, this.grouping, this.withFree);
    this.curve.setLayers(this.layers);
    this.showCycle();
    this.showSpan();
  }

  showSpan() {
    const {from, to} = this.curve;
    byId('span').textContent = from <= 0 && to >= this.recording.duration ? `all of ${timeText(this.recording.duration)}` :
      `${timeText(from, to - from)} to ${timeText(to, to - from)}, ${timeText(to - from)}`;
    byId('curve').setAttribute('aria-label', `Memory of ${this.recording.devices[this.device]} over ${timeText(to - from)}, at most ${bytesText(this.curve.most)}`);
    this.showLegend(null);
    byId('peak').textContent = `highest ${bytesText(this.curve.most)}`;
  }

  showLegend(row) {
    const values = row || this.curve.rows.reduce((best, r) => sumOf(r) > sumOf(best) ? r : best);
    const chips = this.layers.names.map((name, layer) => element('li', {},
      element('i', {style: `background:${this.layers.color(layer)}`}), element('span', {}, name), element('b', {}, bytesText(values[layer + 1]))));
    byId('legend').replaceChildren(...chips);
    byId('legend-of').textContent = row ? `at ${timeText(row[0], this.curve.to - this.curve.from)}, ${bytesText(sumOf(row))}` : `when highest, ${bytesText(sumOf(values))}`;
  }

  showCycle() {
    const row = this.chosen;
    if (row === null) return;
    const kind = this.recording.kindsOfCycles[row.kind];
    this.rectangles.matches = this.second.matches = this.matches;
    this.rectangles.show(kind, this.layers);
    byId('cycle-title').textContent = this.cycleText(row);
    byId('cycle-facts').textContent = `${countText(kind.requests.count, 'request')}, ${bytesText(kind.requested)} requested, at most ${bytesText(kind.bound)} alive at once, ` +
      `${bytesText(kind.peak)} taken (${kind.bound > 0 ? (100 * (kind.peak / kind.bound - 1)).toFixed(1) : '0'}\u00a0% over the bound)`;
    byId('cycle').setAttribute('aria-label', `Requests of ${this.cycleText(row)} as rectangles of ${this.rectangles.byTime ? 'time' : 'requests'} by address. Arrow keys go through them.`);
    const other = this.compared === null ? null : this.recording.kindsOfCycles[this.compared.kind];
    byId('second-part').hidden = other === null;
    if (other !== null) {
      byId('second-title').textContent = this.cycleText(this.compared);
      this.second.show(other, this.layers);
      byId('comparison').replaceChildren(comparison(this.recording, this.names, kind, other, this.cycleText(row), this.cycleText(this.compared),
        (of, i) => { (of === kind ? this.rectangles : this.second).select(i); byId('cycle-section').scrollIntoView({block: 'start'}); }));
    }
    const {cycles} = this.recording, spans = [];
    for (let i = row.first; i <= row.last; ++i) if (cycles.kind[i] === row.kind) spans.push([cycles.begin[i], cycles.end[i]]);
    this.curve.setChosen(spans);
  }
  cycleText(row) {
    const name = this.recording.strings[this.recording.places[row.place][0]].replace(/^workspace /, ''), which = generations(this.recording, row);
    return which === 'all' ? name : `${name}, cycle ${which}`;
  }
  choose(row) {
    this.chosen = row;
    const device = this.recording.places[row.place][1];
    if (device !== this.device) {
      this.device = device;
      this.build();
      return;
    }
    this.showCycle();
    if (this.tab === 'cycles') this.showTab();
  }
  compare(row) {
    this.compared = row;
    this.showCycle();
    this.showTab();
  }
  // The cycle that is open then.
  chooseAt(time) {
    const {cycles} = this.recording;
    for (const row of this.rows) {
      if (time < cycles.begin[row.first] || time > cycles.end[row.last]) continue;
      return this.choose(row);
    }
  }

  showTab() {
    for (const [key, button] of this.tabs) button.setAttribute('aria-selected', key === this.tab ? 'true' : 'false');
    byId('table').setAttribute('aria-labelledby', `tab-${this.tab}`);
    byId('table').replaceChildren(this.tabContent());
  }
  tabContent() {
    const select = (arrays, i, kindNumber) => this.selectArray(arrays, i, kindNumber);
    const table = (accepts) => arraysTable(this.recording, this.names, this.matches, this.order, accepts, select, (order) => { this.order = order; this.showTab(); });
    if (this.tab === 'cycles') {
      return this.rows.length === 0 ? element('p', {class: 'hint'}, 'No cycle of a workspace was recorded.') :
        cyclesTable(this.recording, this.rows, this.chosen, this.compared, (row) => this.choose(row), (row) => this.compare(row));
    }
    if (this.tab === 'arrays') return table(() => true);
    if (this.tab === 'notes') return element('ul', {class: 'notes'}, ...this.recording.notes.map((note) => element('li', {}, note)));
    const {leaked, missed, outside} = this.findings;
    const part = (title, text, list, flag) => element('section', {}, element('h3', {}, `${title} `, element('span', {class: list.length > 0 && flag !== OUTSIDE ? 'count bad' : 'count'}, list.length.toLocaleString('en-US'))),
      element('p', {class: 'hint'}, text), list.length === 0 ? null : table((arrays, i) => (arrays.flags[i] & flag) !== 0 && (flag !== OUTSIDE || (arrays.flags[i] & MISSED) === 0)));
    return element('div', {}, part('Leaked', 'Arrays that were alive when their cycle ended: their handles stay, their memory is used again.', leaked, LEAKED),
      part('Missed', 'Requests that a plan had a place for and that could not be followed.', missed, MISSED),
      part('Outside', 'Requests that the pages did not serve: the first cycle of each kind is learned so; in later ones a policy keeps the pages small.', outside, OUTSIDE));
  }

  selectArray(arrays, i, kindNumber) {
    if (kindNumber < 0) return this.pick(arrays, i, null);
    const row = this.rows.find((r) => r.kind === kindNumber);
    if (row !== undefined) this.choose(row);
    this.rectangles.select(i);
  }
  pick(arrays, i, kind) {
    this.picked = {arrays, i, kind};
    const row = kind === null ? null : [this.chosen, this.compared].find((r) => r !== null && this.recording.kindsOfCycles[r.kind] === kind);
    showDetails(byId('details'), this.names, i < 0 ? null : arrays, i, kind, row ? this.cycleText(row) : '');
  }

  search(query) {
    this.matches = this.names.matcher(query);
    if (this.matches !== null && this.tab === 'cycles') this.tab = 'arrays';
    this.showCycle();
    this.showTab();
  }

  // ---- under the pointer -------------------------------------------------------------------
  hoverTime(time, event) {
    if (time === null || event === null) {
      this.tip.hide();
      return this.showLegend(null);
    }
    const row = this.curve.rowAt(time);
    this.showLegend([time, ...row.slice(1)]);
    const lines = this.layers.names.map((name, layer) => [name, row[layer + 1], this.layers.color(layer)]).filter(([, bytes]) => bytes > 0).reverse();
    this.tip.show(event, element('div', {class: 'tip-head'}, element('b', {}, timeText(time, this.curve.to - this.curve.from)), element('b', {}, bytesText(sumOf(row)))),
      element('table', {}, ...lines.map(([name, bytes, color]) => element('tr', {}, element('td', {}, element('i', {style: `background:${color}`}), name), number(bytesText(bytes))))),
      ...this.largestAt(time));
  }
  // The largest arrays that are alive then.
  largestAt(time) {
    const found = [], {arrays, cycles, kindsOfCycles} = this.recording;
    for (let i = 0; i < arrays.count; ++i) if (arrays.born[i] <= time && arrays.died[i] > time) found.push([arrays.bytes[i], arrays, i]);
    for (let c = 0; c < cycles.count; ++c) {
      if (cycles.begin[c] > time || cycles.end[c] < time || cycles.repeats[c] > 1) continue;
      const kind = kindsOfCycles[cycles.kind[c]], {requests} = kind, length = cycles.end[c] - cycles.begin[c];
      const at = length > 0 ? (time - cycles.begin[c]) * kind.duration / length : 0;
      for (let i = 0; i < requests.count; ++i) if (requests.born[i] <= at && requests.died[i] > at) found.push([requests.bytes[i], requests, i]);
    }
    if (found.length === 0) return [];
    found.sort((a, b) => b[0] - a[0]);
    return [element('p', {class: 'tip-note'}, `${countText(found.length, 'array')} alive; the largest:`),
            element('table', {}, ...found.slice(0, 5).map(([bytes, of, i]) => element('tr', {}, element('td', {}, this.names.label(of, i)), number(bytesText(bytes)))))];
  }
  hoverArray(rectangles, i, event) {
    if (i < 0 || event === null) return this.tip.hide();
    const {requests} = rectangles.kind;
    this.tip.show(event, element('div', {class: 'tip-head'}, element('b', {}, this.names.title(requests, i)), element('b', {}, bytesText(requests.bytes[i]))),
      element('p', {class: 'flags'}, ...this.names.flags(requests, i).map(([, text, bad]) => element('span', {class: bad ? 'flag bad' : 'flag'}, text))),
      element('table', {}, ...this.names.facts(requests, i, rectangles.kind).filter(([name]) => name !== 'Size').map(([name, value]) => element('tr', {}, element('th', {}, name), element('td', {}, value)))));
  }

  // ---- keys --------------------------------------------------------------------------------
  key(event) {
    const typing = event.target instanceof HTMLInputElement && event.target.type === 'search';
    if (event.key === 'Escape') {
      if (typing) {
        event.target.value = '';
        this.search('');
        event.target.blur();
      }
      this.tip.hide();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || byId('keys').open) return;
    const at = this.rows.indexOf(this.chosen);
    const actions = {
      '/': () => byId('search').focus(), '?': () => byId('keys').showModal(),
      '+': () => this.curve.zoom(0.5), '=': () => this.curve.zoom(0.5), '-': () => this.curve.zoom(2), '0': () => this.curve.reset(),
      ArrowLeft: () => this.curve.pan(-0.25), ArrowRight: () => this.curve.pan(0.25),
      '[': () => { if (at > 0) this.choose(this.rows[at - 1]); }, ']': () => { if (at + 1 < this.rows.length) this.choose(this.rows[at + 1]); },
      k: () => this.group('kind'), o: () => this.group('owner'), p: () => this.group('operator'), t: () => this.group('tag'),
      u: () => { byId('free').checked = this.withFree = !this.withFree; this.showLayers(); },
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }
  group(grouping) {
    this.grouping = grouping;
    this.showLayers();
    [...byId('groupings').children].forEach((button, i) => button.setAttribute('aria-pressed', Object.keys(GROUPINGS)[i] === grouping ? 'true' : 'false'));
  }
}

function sumOf(row) {
  let sum = 0;
  for (let i = 1; i < row.length; ++i) sum += row[i];
  return sum;
}

const loadingBegan = performance.now();
window.app = new App(readRecording(byId('header-data').textContent, byId('columns-data').textContent));
window.loadMilliseconds = performance.now() - loadingBegan;
