'use strict';
// What is known of one array, and the small window beside the pointer.

class Names {
  constructor(recording) {
    this.recording = recording;
    this.lower = recording.strings.map((text) => text.toLowerCase());
  }
  text(number) { return this.recording.strings[number]; }
  // "relu" and "f32 [64, 128]" of "relu: f32 [64, 128]".
  parts(arrays, i) {
    const name = this.text(arrays.name[i]), colon = name.indexOf(': ');
    return colon < 0 ? [name, ''] : [name.slice(0, colon), name.slice(colon + 2)];
  }
  // The innermost function that says something where no operator wrote it.
  title(arrays, i) {
    const [op] = this.parts(arrays, i);
    if (op !== '') return op;
    const site = this.text(arrays.site[i]).split(' < ')[0];
    if (site !== '') return site.replace(/^tidepool::/, '').replace('(anonymous namespace)::', '');
    return (arrays.flags[i] & IMPORTED) !== 0 ? 'imported array' : 'array';
  }
  label(arrays, i) {
    const shape = this.parts(arrays, i)[1];
    return shape === '' ? this.title(arrays, i) : `${this.title(arrays, i)} ${shape}`;
  }
  owner(arrays, i) { return this.text(arrays.owner[i]) || '(unknown)'; }
  place(arrays, i) { return this.text(this.recording.places[arrays.place[i]][0]); }

  // Whether all words of `query` are in what is known of an array; null: there are no words.
  matcher(query) {
    const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
    if (words.length === 0) return null;
    const found = words.map((word) => this.lower.map((text) => text.includes(word)));
    const {places} = this.recording;
    return (arrays, i) => found.every((has) => has[arrays.name[i]] || has[arrays.site[i]] || has[arrays.owner[i]] ||
                                               has[places[arrays.place[i]][0]]);
  }

  flags(arrays, i) {
    const flags = arrays.flags[i];
    return [[LEAKED, 'leaked', true], [MISSED, 'missed its plan', true], [OUTSIDE, 'outside of the pages', false],
            [AT_START, 'there at the start', false], [IMPORTED, 'imported', false]]
      .filter(([bit]) => (flags & bit) !== 0);
  }

  // [name, value] of what is worth a line.
  facts(arrays, i, kind) {
    const {recording} = this, [, shape] = this.parts(arrays, i);
    const alive = arrays.died[i] === Infinity;
    const life = (alive ? recording.duration : arrays.died[i]) - arrays.born[i];
    const [owner, tag] = this.owner(arrays, i).split(' #');
    const facts = [['Shape', shape], ['Size', exactBytes(arrays.bytes[i])], ['Owner', owner], ['Tag', tag || '']];
    if (arrays.taken[i] !== arrays.bytes[i]) facts.push(['Takes', exactBytes(arrays.taken[i])]);
    facts.push(['Where', this.place(arrays, i)]);
    if (arrays.offset[i] >= 0) facts.push(['Address', '+' + exactBytes(arrays.offset[i])]);
    facts.push(['Lives', alive ? `${timeText(life)}, until the end` : timeText(life)]);
    if (kind) {
      const last = Math.min(arrays.released[i], arrays.count);
      facts.push(['Request', `${(i + 1).toLocaleString('en-US')} of ${arrays.count.toLocaleString('en-US')}`]);
      facts.push(['Released', last >= arrays.count ? 'at the end of the cycle' : `before request ${(last + 1).toLocaleString('en-US')}`]);
      facts.push(['Made', `${timeText(arrays.born[i], kind.duration)} into the cycle`]);
    } else {
      facts.push(['Made', `at ${timeText(arrays.born[i], recording.duration)}`]);
    }
    return facts.filter(([, value]) => value !== '');
  }
}

// The panel of the array that was chosen.
function showDetails(panel, names, arrays, i, kind, cycleText) {
  if (arrays === null || i < 0) {
    panel.replaceChildren(element('p', {class: 'hint'}, 'Choose an array: click on a rectangle or a row of the table, or go through requests with the arrow keys.'));
    return;
  }
  const facts = names.facts(arrays, i, kind);
  if (kind && cycleText) facts.splice(facts.length - 3, 0, ['Cycle', cycleText]);
  const list = element('dl');
  for (const [name, value] of facts) list.append(element('dt', {}, name), element('dd', {}, value));
  const site = names.text(arrays.site[i]);
  panel.replaceChildren(
    element('h3', {}, names.title(arrays, i)),
    element('p', {class: 'flags'}, ...names.flags(arrays, i).map(([, text, bad]) => element('span', {class: bad ? 'flag bad' : 'flag'}, text))),
    list);
  if (site !== '') {
    const frames = element('ol', {class: 'site'});
    for (const frame of site.split(' < ')) frames.append(element('li', {}, frame.replaceAll('tidepool::', '').replaceAll('(anonymous namespace)::', '')));
    panel.append(element('h4', {}, 'Made at'), frames);
  }
}

class Tip {
  constructor(host) { this.host = host; }
  hide() { this.host.hidden = true; }
  show(event, ...children) {
    this.host.replaceChildren(...children);
    this.host.hidden = false;
    const box = this.host.getBoundingClientRect(), gap = 16;
    const left = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
    const top = Math.min(event.clientY + gap, innerHeight - box.height - 8);
    this.host.style.left = `${Math.max(8, left)}px`;
    this.host.style.top = `${Math.max(8, top)}px`;
  }
}
