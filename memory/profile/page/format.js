'use strict';
// Numbers, times and elements as people read them.

function bytesText(bytes) {
  const sign = bytes < 0 ? '\u2212' : '';
  bytes = Math.abs(bytes);
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    ++unit;
  }
  const digits = unit === 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
  return `${sign}${bytes.toFixed(digits)}\u00a0${units[unit]}`;
}

// Of a scale: without zeros that say nothing.
function tickText(text) { return text.replace(/(\.\d*?)0+(?=\u00a0)/, '$1').replace(/\.(?=\u00a0)/, ''); }

function exactBytes(bytes) {
  if (bytes < 1024) return bytesText(bytes);
  return `${bytesText(bytes)} (${bytes.toLocaleString('en-US')})`;
}

// `span`: how long what is shown is, which says how many digits matter.
function timeText(nanoseconds, span = Math.abs(nanoseconds)) {
  const [unit, name] = span >= 1e9 ? [1e9, 's'] : span >= 1e6 ? [1e6, 'ms'] : span >= 1e3 ? [1e3, '\u00b5s'] : [1, 'ns'];
  const digits = unit === 1 ? 0 : Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.max(span / unit, 1e-9)))));
  return `${(nanoseconds / unit).toFixed(digits)}\u00a0${name}`;
}

function countText(count, one, many = one + 's') {
  return `${count.toLocaleString('en-US')} ${count === 1 ? one : many}`;
}

function percentText(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)}\u00a0%` : '';
}

// element('td', {class: 'number'}, 'text', child)
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

const byId = (id) => document.getElementById(id);

// Bytes at which a scale has its lines: about `count`, of powers of two.
function byteTicks(most, count) {
  if (!(most > 0)) return [0];
  let step = Math.pow(2, Math.floor(Math.log2(most / count)));
  while (most / step > count * 1.5) step *= 2;
  const ticks = [];
  for (let value = 0; value <= most; value += step) ticks.push(value);
  return ticks;
}

function roundTicks(from, to, count) {
  const rough = (to - from) / count;
  if (!(rough > 0)) return [from];
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9; value += step) ticks.push(value);
  return ticks;
}

// Of the theme that is in use.
function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function layerColor(index, special) {
  return special ? themeColor('--layer-free') : themeColor(`--layer-${index % 10}`);
}

// Black or white, whichever is read on that color ("#rrggbb").
function readableOn(color) {
  const part = (at) => Math.pow(parseInt(color.slice(at, at + 2), 16) / 255, 2.2);
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.3 ? '#16191d' : '#ffffff';
}
