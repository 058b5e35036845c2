'use strict';
// The stacked curve: dygraphs draws it; what it draws is computed anew for the span that is in view.

class Curve {
  // `onSpan(from, to)` after zooming, `onHover(time or null)`, `onPick(time)`.
  constructor(host, recording, handlers) {
    this.host = host;
    this.recording = recording;
    this.handlers = handlers;
    this.from = 0;
    this.to = recording.duration;
    this.graph = null;
    this.marks = [];
    this.hover = null;
    host.addEventListener('mousemove', (event) => this.hoverAt(event));
    host.addEventListener('mouseleave', () => this.setHover(null));
    host.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
  }

  setLayers(layers) {
    this.layers = layers;
    if (this.graph !== null) this.graph.destroy();
    this.graph = null;
    this.draw();
  }

  columns() { return Math.max(100, Math.min(1500, Math.round(this.host.clientWidth * 1.2))); }

  // dygraphs joins points by lines: each row is there when it begins and when it ends.
  steps(rows) {
    const points = [], little = (this.to - this.from) * 1e-5;  // dygraphs stacks by times, which have to differ
    const reversed = (row) => [row[0], ...row.slice(1).reverse()];
    for (let i = 0; i < rows.length; ++i) {
      const row = reversed(rows[i]);
      if (i > 0) {
        const before = points[points.length - 1].slice();
        before[0] = row[0] - little;
        points.push(before);
      }
      points.push(row);
    }
    return points;
  }

  draw() {
    this.rows = this.layers.view(this.from, this.to, this.columns());
    this.most = Math.max(1, ...this.rows.map((row) => row.reduce((sum, bytes, i) => i === 0 ? 0 : sum + bytes, 0)));
    const data = this.steps(this.rows);
    const names = this.layers.names;
    const options = {
      file: data, dateWindow: [this.from, this.to], valueRange: [0, this.most * 1.1],
      colors: names.map((_, layer) => this.layers.color(layer)).reverse(),
    };
    this.drawing = true;
    if (this.graph !== null) this.graph.updateOptions(options);
    else this.make(data, names, options);
    this.drawing = false;
  }
  make(data, names, options) {
    // Names may be equal to others' or empty: dygraphs knows them by number.
    this.graph = new Dygraph(this.host, data, {
      ...options, labels: ['time', ...names.map((_, layer) => `layer ${names.length - 1 - layer}`)],
      stackedGraph: true, fillAlpha: 0.85, strokeWidth: 0, highlightCircleSize: 0, showLabelsOnHighlight: false, legend: 'never',
      animatedZooms: false, xRangePad: 0, rightGap: 8, drawGapEdgePoints: false, axisLabelFontSize: 12, xAxisHeight: 26, panEdgeFraction: 0,
      gridLineColor: themeColor('--grid'), axisLineColor: themeColor('--line'),
      axes: {
        x: {ticker: (a, b, pixels) => roundTicks(a, b, Math.max(2, pixels / 95))
          .map((v) => ({v, label: tickText(timeText(v, b - a))})), drawGrid: false},
        y: {axisLabelWidth: 68, ticker: (a, b) => byteTicks(b, 4).map((v) => ({v, label: tickText(bytesText(v))}))},
      },
      interactionModel: this.interaction(),
      zoomCallback: (from, to) => this.show(from, to), drawCallback: (graph) => this.drawn(graph),
      underlayCallback: (context, area, graph) => this.drawMarks(context, area, graph),
    });
    // dygraphs' own picture says nothing to readers of screens.
    this.host.setAttribute('role', 'img');
  }

  // Two fingers zoom and move; one scrolls the page. A double click shows all, and not only what was computed.
  interaction() {
    const model = Dygraph.defaultInteractionModel;
    const two = (of) => (event, graph, context) => { if (event.touches.length > 1) of(event, graph, context); };
    return {...model, touchstart: two(model.touchstart), touchmove: two(model.touchmove), dblclick: () => this.reset()};
  }
  // dygraphs has moved by itself (fingers, Shift and drag): what is in view now is computed.
  drawn(graph) {
    if (this.drawing) return;
    const [from, to] = graph.xAxisRange();
    if (from === this.from && to === this.to) return;
    cancelAnimationFrame(this.soon);
    this.soon = requestAnimationFrame(() => this.show(from, to));
  }

  // Above the curve: when the chosen cycle ran, and findings.
  drawMarks(context, area, graph) {
    context.fillStyle = themeColor('--accent');
    let until = -1;
    for (const [from, to] of this.chosen || []) {
      if (from > this.to || to < this.from) continue;
      const left = graph.toDomXCoord(Math.max(from, this.from)), right = graph.toDomXCoord(Math.min(to, this.to));
      if (right <= until) continue;
      until = Math.max(left + 1.5, right);
      context.fillRect(left, area.y, until - left, 3);
    }
    let last = -10;
    for (const mark of this.marks) {
      if (mark.time < this.from || mark.time > this.to) continue;
      const x = graph.toDomXCoord(mark.time);
      if (x - last < 3) continue;
      last = x;
      context.fillStyle = themeColor('--bad');
      context.beginPath();
      context.moveTo(x, area.y + 12);
      context.lineTo(x - 4, area.y + 5);
      context.lineTo(x + 4, area.y + 5);
      context.fill();
    }
  }

  show(from, to) {
    const least = 100;  // nanoseconds
    const length = Math.min(this.recording.duration, Math.max(least, to - from));
    from = Math.max(0, Math.min(from, this.recording.duration - length));
    this.from = from;
    this.to = from + length;
    this.draw();
    this.handlers.onSpan(this.from, this.to);
  }
  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }
  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }
  reset() { this.show(0, this.recording.duration); }
  // Spans of time, in order.
  setChosen(spans) {
    this.chosen = spans;
    if (this.graph !== null) this.graph.updateOptions({});
  }

  timeAt(event) {
    const box = this.host.getBoundingClientRect();
    return Math.max(this.from, Math.min(this.to, this.graph.toDataXCoord(event.clientX - box.left)));
  }
  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY) && !event.altKey) return;
    event.preventDefault();
    if (event.ctrlKey || event.altKey) this.zoom(Math.pow(1.002, event.deltaY), this.timeAt(event));
    else this.pan((event.deltaX || event.deltaY) / 1000);
  }
  hoverAt(event) {
    const time = this.timeAt(event);
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.setHover(time, event);
    });
  }
  setHover(time, event = null) {
    this.hover = time;
    this.handlers.onHover(time, event);
  }
  // What the layers have at that time, as drawn.
  rowAt(time) {
    let low = 0, high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rows[middle][0] <= time) low = middle;
      else high = middle - 1;
    }
    return this.rows[low];
  }
}
